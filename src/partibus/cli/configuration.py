"""`partibus config`: configuration files."""

from __future__ import annotations

from pathlib import Path

import click

from partibus.cli.options import FILE
from partibus.config import read_configuration
from partibus.store.configuration import declare


@click.group("config")
def config_commands() -> None:
    """Work with configuration files."""


@config_commands.command("validate")
@click.argument("file", type=FILE)
def validate_command(file: Path) -> None:
    """Check a configuration file without starting anything."""
    configuration = declare(read_configuration(file)).configuration
    counts = f"{len(configuration.queues)} queues, {len(configuration.topics)} topics"
    if configuration.pipelines:
        counts += f", {len(configuration.pipelines)} pipelines"
    click.echo(f"{file}: namespace {configuration.name}, {counts}")
