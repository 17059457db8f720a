"""`partibus access-rule`: who may do what, on the namespace or on one entity."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from partibus.cli.connecting import administration, connection_string_of, reached
from partibus.cli.output import show_done, show_list, show_one, shown

COLUMNS = ("name", "rights")
KEY_COLUMNS = (*COLUMNS, "primaryKey", "secondaryKey")
RIGHTS = ("Send", "Listen", "Manage")

entity_option = click.option("--entity", help="The queue or topic. Default: the namespace.")


def _path(entity: str | None, rule: str = "") -> str:
    base = f"entities/{entity}/access-rules" if entity else "access-rules"
    return f"{base}/{quote(rule, safe='')}" if rule else base


@click.group("access-rule")
def access_commands() -> None:
    """Access rules: list, show, create, rotate, delete."""


@access_commands.command("list")
@entity_option
@click.option("--keys", is_flag=True, help="Show the keys, too.")
@shown
@reached
def list_command(
    entity: str | None, keys: bool, output: str, connection_string: str | None, data: Path
) -> None:
    """All rules of the namespace or of an entity."""
    with administration(connection_string, data) as admin:
        found: Any = admin.extension("GET", _path(entity))["rules"]
    columns = KEY_COLUMNS if keys else COLUMNS
    show_list([{name: each.get(name) for name in columns} for each in found], columns, output)


@access_commands.command("show")
@click.argument("name")
@entity_option
@shown
@reached
def show_command(
    name: str, entity: str | None, output: str, connection_string: str | None, data: Path
) -> None:
    """One rule, with its keys and what a client needs to use it."""
    with administration(connection_string, data) as admin:
        found = admin.extension("GET", _path(entity, name))
    _show(found, entity, output, connection_string, data)


@access_commands.command("create")
@click.argument("name")
@entity_option
@click.option(
    "--right", "rights", type=click.Choice(RIGHTS), multiple=True, required=True, help="Repeat it."
)
@shown
@reached
def create_command(
    name: str,
    entity: str | None,
    rights: tuple[str, ...],
    output: str,
    connection_string: str | None,
    data: Path,
) -> None:
    """Make a rule with new keys, or change the rights of one that exists."""
    with administration(connection_string, data) as admin:
        made = admin.extension("PUT", _path(entity, name), {"rights": list(rights)})
    _show(made, entity, output, connection_string, data)


@access_commands.command("rotate")
@click.argument("name")
@entity_option
@shown
@reached
def rotate_command(
    name: str, entity: str | None, output: str, connection_string: str | None, data: Path
) -> None:
    """Give a rule a new primary key; the old one stays good as the secondary."""
    with administration(connection_string, data) as admin:
        made = admin.extension("POST", f"{_path(entity, name)}/rotate")
    _show(made, entity, output, connection_string, data)


@access_commands.command("delete")
@click.argument("name")
@entity_option
@click.confirmation_option("--yes", prompt="Delete the rule and lock out who uses it?")
@shown
@reached
def delete_command(
    name: str, entity: str | None, output: str, connection_string: str | None, data: Path
) -> None:
    """Remove a rule."""
    with administration(connection_string, data) as admin:
        admin.extension("DELETE", _path(entity, name))
    show_done({"deleted": name}, "deleted", output)


def _show(
    rule: dict[str, object], entity: str | None, output: str, given: str | None, data: Path
) -> None:
    """A rule with what a client needs to use it."""
    own = connection_string_of(given, data, str(rule["name"]), str(rule["primaryKey"]), entity)
    show_one({**rule, "connectionString": own}, output)
