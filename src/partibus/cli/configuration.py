"""`partibus config`: configuration files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.options import FILE
from partibus.cli.output import show_one, shown
from partibus.config import read_configuration
from partibus.store.configuration import declare


@click.group("config")
def config_commands() -> None:
    """Work with configuration files."""


@config_commands.command("validate")
@click.argument("file", type=FILE)
@shown
def validate_command(file: Path, output: str) -> None:
    """Check a configuration file without starting anything."""
    configuration = declare(read_configuration(file)).configuration
    if output == "json":
        row = {
            "file": str(file),
            "namespace": configuration.name,
            "queues": len(configuration.queues),
            "topics": len(configuration.topics),
            "pipelines": len(configuration.pipelines),
        }
        show_one(row, output)
        return
    counts = f"{len(configuration.queues)} queues, {len(configuration.topics)} topics"
    if configuration.pipelines:
        counts += f", {len(configuration.pipelines)} pipelines"
    click.echo(f"{file}: namespace {configuration.name}, {counts}")


@config_commands.command("export")
@click.option("--keys", is_flag=True, help="With the keys of access rules.")
@reached
def export_command(keys: bool, connection_string: str | None, data: Path) -> None:
    """Print the entities of a running broker as a configuration file that makes them again."""
    with administration(connection_string, data) as admin:
        found = admin.extension("GET", "configuration?keys=true" if keys else "configuration")
    click.echo(json.dumps(found, indent=2))
