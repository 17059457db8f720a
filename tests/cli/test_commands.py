"""A command costs what it needs, and a failure that is our own is not dressed up as another."""

from __future__ import annotations

import subprocess
import sys

import pytest

from partibus.cli.commands import exit_code
from partibus.store import StoreError, StoreInUse

HEAVY = ("partibus.client", "partibus.gateway", "partibus.management", "starlette", "rich", "lark")


@pytest.mark.parametrize("command", ["version", "serve --help"])
def test_a_quick_command_loads_no_heavy_module(command: str) -> None:
    script = (
        "import sys; from partibus.cli.commands import commands\n"
        f"commands({command.split()!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_each_kind_of_failure_has_its_code() -> None:
    assert exit_code(StoreInUse("in use")) == 4
    assert exit_code(StoreError("damaged")) == 5
    assert exit_code(KeyError("our own mistake")) is None
