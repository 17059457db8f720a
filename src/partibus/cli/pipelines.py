"""`partibus pipeline list`, `show`, `pause`, `resume`, `remove`: pipelines that a broker runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.output import show_done, show_list, show_one, shown
from partibus.cli.pipeline_jobs import pipeline_commands

__all__ = ["pipeline_commands"]

COLUMNS = ("name", "state", "messages", "messagesPerSecond", "lag", "failures", "error")


@pipeline_commands.command("list")
@shown
@reached
def list_command(output: str, connection_string: str | None, data: Path) -> None:
    """List the pipelines of the configuration: state, rate and lag of each."""
    with administration(connection_string, data) as admin:
        found: Any = admin.extension("GET", "pipelines")
    show_list(found["pipelines"], COLUMNS, output)


@pipeline_commands.command("show")
@click.argument("name")
@shown
@reached
def show_command(name: str, output: str, connection_string: str | None, data: Path) -> None:
    """Show the pipeline NAME: what it was declared as, how it is, its lag by fragment."""
    with administration(connection_string, data) as admin:
        found = admin.extension("GET", f"pipelines/{quote(name, safe='')}")
    show_one(found, output)


@pipeline_commands.command("pause")
@click.argument("name")
@shown
@reached
def pause_command(name: str, output: str, connection_string: str | None, data: Path) -> None:
    """Pause the pipeline NAME, also over restarts, until it is resumed."""
    _order(name, "pause", output, connection_string, data)


@pipeline_commands.command("resume")
@click.argument("name")
@shown
@reached
def resume_command(name: str, output: str, connection_string: str | None, data: Path) -> None:
    """Resume the pipeline NAME where it was. One that has finished runs once more."""
    _order(name, "resume", output, connection_string, data)


@pipeline_commands.command("remove")
@click.argument("name")
@click.confirmation_option("--yes", prompt="Forget how far the pipeline is?")
@shown
@reached
def remove_command(name: str, output: str, connection_string: str | None, data: Path) -> None:
    """Forget the pipeline NAME, which is not in the configuration any more.

    Nothing is kept or reserved for it any more, and its checkpoint is deleted.
    """
    with administration(connection_string, data) as admin:
        admin.extension("DELETE", f"pipelines/{quote(name, safe='')}")
    show_done({"removed": name}, "removed", output)


def _order(name: str, what: str, output: str, connection_string: str | None, data: Path) -> None:
    with administration(connection_string, data) as admin:
        done = admin.extension("POST", f"pipelines/{quote(name, safe='')}/{what}")
    show_done(done, f"{what}d", output)
