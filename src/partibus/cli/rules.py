"""`partibus rule`: which messages a subscription gets, and what is changed in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.entities import confirmed, settings_of, subscription_path, with_arguments
from partibus.cli.output import show_done, show_list, show_one, shown

COLUMNS = ("Name", "Filter", "Action")


def rule_path(topic: str, subscription: str, name: str) -> str:
    """Where a rule stands."""
    return f"{subscription_path(topic, subscription)}/rules/{name}"


@click.group("rule")
def rule_commands() -> None:
    """Rules of a subscription: create, list, show, update, delete."""


def described(command: Any) -> Any:
    """Give a command the options that say what a rule is."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("--sql", help="An SQL filter: \"region = 'north' AND amount > 5\"."),
    click.option(
        "--correlation",
        multiple=True,
        callback=settings_of,
        metavar="NAME=VALUE",
        help="A correlation filter: Label=order. Other names are properties. Repeat it.",
    ),
    click.option("--none", "is_false", is_flag=True, help="A filter that lets nothing through."),
    click.option("--action", help="What is changed: \"SET priority = 'high'\"."),
)


@rule_commands.command("create")
@with_arguments("topic", "subscription", "name")
@described
@shown
@reached
def create_command(
    topic: str,
    subscription: str,
    name: str,
    output: str,
    connection_string: str | None,
    data: Path,
    **given: Any,
) -> None:
    """Add a rule; without a filter it lets everything through."""
    properties = {"Filter": _EVERYTHING, **_properties(**given), "Name": name}
    with administration(connection_string, data) as admin:
        created = admin.create("Rule", rule_path(topic, subscription, name), properties)
        show_one(_short(created) if output == "table" else created, output)


@rule_commands.command("update")
@with_arguments("topic", "subscription", "name")
@described
@shown
@reached
def update_command(
    topic: str,
    subscription: str,
    name: str,
    output: str,
    connection_string: str | None,
    data: Path,
    **given: Any,
) -> None:
    """Give a rule another filter or action; what is not named stays."""
    properties = _properties(**given)
    if not properties:
        raise click.UsageError("say what to change: --sql, --correlation, --none or --action")
    with administration(connection_string, data) as admin:
        changed = admin.update("Rule", rule_path(topic, subscription, name), properties)
        show_one(_short(changed) if output == "table" else changed, output)


def _properties(
    sql: str | None, correlation: dict[str, str], is_false: bool, action: str | None
) -> dict[str, object]:
    if bool(sql) + bool(correlation) + is_false > 1:
        raise click.UsageError("--sql, --correlation and --none exclude each other")
    properties: dict[str, object] = {}
    if sql or correlation or is_false:
        properties["Filter"] = _filter(sql, correlation)
    if action:
        properties["Action"] = {"type": "SqlRuleAction", "SqlExpression": action}
    return properties


_EVERYTHING = {"type": "TrueFilter", "SqlExpression": "1=1", "CompatibilityLevel": 20}
_NOTHING = {"type": "FalseFilter", "SqlExpression": "1=0", "CompatibilityLevel": 20}
_FIELDS = (
    "CorrelationId", "MessageId", "To", "ReplyTo", "Label", "SessionId", "ReplyToSessionId",
    "ContentType",
)  # fmt: skip


def _filter(sql: str | None, correlation: dict[str, str]) -> dict[str, object]:
    if sql:
        return {"type": "SqlFilter", "SqlExpression": sql, "CompatibilityLevel": 20}
    if correlation:
        found: dict[str, object] = {"type": "CorrelationFilter"}
        found |= {name: correlation[name] for name in _FIELDS if name in correlation}
        properties = [
            {"Key": name, "Value": {"type": "string", "text": value}}
            for name, value in correlation.items()
            if name not in _FIELDS
        ]
        if properties:
            found["Properties"] = {"KeyValueOfstringanyType": properties}
        return found
    return _NOTHING


@rule_commands.command("list")
@with_arguments("topic", "subscription")
@shown
@reached
def list_command(
    topic: str, subscription: str, output: str, connection_string: str | None, data: Path
) -> None:
    """All rules of a subscription."""
    with administration(connection_string, data) as admin:
        found = list(admin.list(f"{subscription_path(topic, subscription)}/rules"))
    rows = found if output == "json" else [_short(each) for each in found]
    show_list(rows, COLUMNS, output)


@rule_commands.command("show")
@with_arguments("topic", "subscription", "name")
@shown
@reached
def show_command(
    topic: str, subscription: str, name: str, output: str, connection_string: str | None, data: Path
) -> None:
    """One rule."""
    with administration(connection_string, data) as admin:
        found = admin.get(rule_path(topic, subscription, name))
    show_one(_short(found) if output == "table" else found, output)


@rule_commands.command("delete")
@with_arguments("topic", "subscription", "name")
@confirmed
@shown
@reached
def delete_command(
    topic: str, subscription: str, name: str, output: str, connection_string: str | None, data: Path
) -> None:
    """Remove a rule."""
    path = rule_path(topic, subscription, name)
    with administration(connection_string, data) as admin:
        admin.delete(path)
    show_done({"deleted": path}, "deleted", output)


def _short(rule: dict[str, object]) -> dict[str, object]:
    """A rule as a person writes it."""
    return {name: _part(rule.get(name)) for name in COLUMNS}


def _part(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if "SqlExpression" in value:
        return value["SqlExpression"]
    kept = {k: v for k, v in value.items() if k != "type" and v not in ("", None)}
    return ", ".join(f"{k}={v}" for k, v in kept.items())
