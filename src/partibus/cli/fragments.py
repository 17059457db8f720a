"""`partibus fragments` and `partibus where`: how an entity is spread, and what a key goes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.output import show_list, show_one, shown

COLUMNS = (
    "partition", "store", "node", "available", "active", "deferred", "scheduled", "deadLetters",
    "bytes",
)  # fmt: skip


@click.command("fragments")
@click.argument("entity")
@shown
@reached
def fragments_command(entity: str, output: str, connection_string: str | None, data: Path) -> None:
    """Show the fragments of ENTITY: store, node, health, counts and size.

    Partition 0 is the one fragment of a conventional entity.
    """
    with administration(connection_string, data) as admin:
        found: Any = admin.extension("GET", f"fragments/{entity}")
    show_list(found["fragments"], COLUMNS, output)


@click.command("where")
@click.argument("entity")
@click.argument("key")
@shown
@reached
def where_command(
    entity: str, key: str, output: str, connection_string: str | None, data: Path
) -> None:
    """Show the fragment of ENTITY that messages with this KEY (session or partition key) go to."""
    with administration(connection_string, data) as admin:
        found: Any = admin.extension("GET", f"fragments/{entity}?key={quote(key, safe='')}")
    place = next(each for each in found["fragments"] if each["partition"] == found["partition"])
    shown_names = ("partition", "store", "node", "available")
    show_one({"key": key, **{name: place[name] for name in shown_names}}, output)
