"""Kinds of options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

DIRECTORY = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
PORT = click.IntRange(0, 65535)


def setting(name: str, help_text: str, **kind: Any) -> Callable[[Any], Any]:
    """An option that can also be given as an environment variable."""
    variable = f"PARTIBUS_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, envvar=variable, show_envvar=True, help=help_text, **kind)


data_option = setting(
    "--data",
    "The data directory of the broker.",
    type=DIRECTORY,
    default="partibus-data",
    show_default=True,
)
