"""How results are shown: tables for people, JSON for programs.

One object or a list of them is printed; columns are chosen by who prints. Messages that a program
reads one by one come as one JSON object a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, object]


def shown(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option that says how its result is shown."""
    return click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    )(command)


def show_list(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print a list."""
    if output == "json":
        click.echo(json.dumps([dict(row) for row in rows], indent=2, default=str))
    elif not rows:
        click.echo("none", err=True)
    else:
        _print_table(columns, [[_text(row.get(name)) for name in columns] for row in rows])


def show_one(row: Row, output: str) -> None:
    """Print one object with all its properties."""
    if output == "json":
        click.echo(json.dumps(dict(row), indent=2, default=str))
    else:
        _print_table(("property", "value"), [[name, _text(value)] for name, value in row.items()])


def show_done(row: Row, line: str, output: str) -> None:
    """Say what was done: a line for a person, who may pipe the rest; an object for a program."""
    if output == "json":
        click.echo(json.dumps(dict(row), default=str))
    else:
        click.echo(line, err=True)


def show_line(row: Row, columns: Iterable[str], output: str) -> None:
    """Print one of many that come one after another."""
    if output == "json":
        click.echo(json.dumps(dict(row), default=str))
    else:
        click.echo("  ".join(_text(row.get(name)) for name in columns))


def _print_table(columns: Sequence[str], rows: list[list[str]]) -> None:
    # Here, because a program that reads JSON need not wait for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        # As text: nothing in a name or a body is taken for a colour.
        table.add_row(*map(Text, row))
    console = Console()
    if not console.is_terminal:
        # Nobody's window cuts it short.
        console.width = sum(
            max(map(len, column)) + 3 for column in zip(columns, *rows, strict=True)
        )
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str)
    return "".join(each if each.isprintable() else " " for each in str(value))
