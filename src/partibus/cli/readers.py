"""`partibus reader`: who reads entities in bulk, what that costs, and removing who is no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.output import show_done, show_list, shown
from partibus.client.administration import Administration

COLUMNS = (
    "entity", "name", "mode", "state", "lag", "oldestSeconds", "keptBytes", "keptPercent",
    "reserved", "epoch",
)  # fmt: skip
FRAGMENT_COLUMNS = ("fragment", "state", "place", "lag", "keptBytes", "reserved")
STAGED_COLUMNS = ("entity", "writer", "batch", "attempts", "bytes", "decided", "ageSeconds")
# Which door removes a reader of which mode.
DOORS = {"browse": "readers", "consume": "consumers"}


_of_mode = click.option(
    "--mode",
    type=click.Choice(["", *DOORS]),
    default="",
    help="Where one that browses and one that consumes have the same name.",
)


@click.group("reader")
def reader_commands() -> None:
    """Bulk readers of entities: Spark's queries, by the names they have."""


@reader_commands.command("list")
@click.argument("entity", required=False)
@shown
@reached
def list_command(
    entity: str | None, output: str, connection_string: str | None, data: Path
) -> None:
    """List the readers of ENTITY, or of all: how far behind each is, and what is kept for it."""
    with administration(connection_string, data) as admin:
        rows = _readers(admin, entity)
    if output != "json":
        rows = [{name: each[name] for name in COLUMNS} for each in rows]
    show_list(rows, COLUMNS, output)


@reader_commands.command("show")
@click.argument("entity")
@click.argument("name")
@_of_mode
@shown
@reached
def show_command(
    entity: str, name: str, mode: str, output: str, connection_string: str | None, data: Path
) -> None:
    """Show the reader NAME of ENTITY fragment by fragment."""
    with administration(connection_string, data) as admin:
        found = _find(admin, entity, name, mode)
    show_list(found["fragments"], FRAGMENT_COLUMNS, output)


@reader_commands.command("remove")
@click.argument("entity")
@click.argument("name")
@_of_mode
@click.confirmation_option("--yes", prompt="Remove the reader? Its query cannot go on.")
@shown
@reached
def remove_command(
    entity: str, name: str, mode: str, output: str, connection_string: str | None, data: Path
) -> None:
    """Remove the reader NAME of ENTITY.

    Nothing is kept for it any more; what is reserved for it comes back, in its old order.
    """
    with administration(connection_string, data) as admin:
        found = _find(admin, entity, name, mode)
        admin.extension("DELETE", f"bulk/{found['entity']}/{DOORS[found['mode']]}/{name}")
    if found["mode"] == "consume":
        done, line = "givenBack", f"{found['reserved']} messages given back"
        freed = found["reserved"]
    else:
        done, line = "bytesFreed", f"{found['keptBytes']} bytes not kept any more"
        freed = found["keptBytes"]
    show_done({"removed": name, done: freed}, line, output)


@click.command("staged")
@shown
@reached
def staged_command(output: str, connection_string: str | None, data: Path) -> None:
    """List bulk writes that were begun and are not published."""
    with administration(connection_string, data) as admin:
        found: Any = admin.extension("GET", "staged")
    show_list(found["staged"], STAGED_COLUMNS, output)


def _readers(admin: Administration, entity: str | None) -> list[dict[str, Any]]:
    path = f"bulk/{entity}/readers" if entity else "readers"
    found: Any = admin.extension("GET", path)
    if found["storesMissing"]:
        missing = ", ".join(map(str, found["storesMissing"]))
        click.echo(f"stores {missing} do not answer; their fragments are missing", err=True)
    rows: list[dict[str, Any]] = found["readers"]
    return rows


def _find(admin: Administration, entity: str, name: str, mode: str) -> dict[str, Any]:
    found = [
        each
        for each in _readers(admin, entity)
        if each["name"] == name and mode in ("", each["mode"])
    ]
    # Those of the sub-queues are listed, too.
    exact = [each for each in found if each["entity"].lower() == entity.lower()]
    found = exact or found
    if not found:
        raise click.UsageError(f"'{entity}' has no reader '{name}'")
    if len(found) > 1:
        places = ", ".join(f"'{each['entity']}' --mode {each['mode']}" for each in found)
        raise click.UsageError(f"there are several readers '{name}'; say which one: {places}")
    return found[0]
