"""Which broker a command speaks to: the one that is named, or the one of a data directory here.

A connection string is taken from the option or the environment, as `partibus env` sets it; else
the broker that serves the data directory is asked as its owner. Nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from partibus.cli.options import DIRECTORY, setting
from partibus.client import Client
from partibus.client.administration import Administration

CONNECTION_VARIABLE = "SERVICEBUS_CONNECTION_STRING"


def reached(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which broker is meant."""
    command = setting(
        "--data",
        "The data directory of a broker on this machine.",
        type=DIRECTORY,
        default="partibus-data",
        show_default=True,
    )(command)
    return click.option(
        "--connection-string",
        envvar=CONNECTION_VARIABLE,
        show_envvar=True,
        help="The namespace to speak to. Default: the broker that serves --data.",
    )(command)


def connection_string(given: str | None, data: Path) -> str:
    """The connection string to use. Raises StoreError where nobody serves the directory."""
    if given:
        return given
    # Here, because it loads what only a data directory needs.
    from partibus.runtime.trust import client_variables

    return client_variables(data)[CONNECTION_VARIABLE]


def client(given: str | None, data: Path) -> Client:
    """A client of the broker that is meant."""
    try:
        return Client.from_connection_string(connection_string(given, data))
    except ValueError as error:
        raise click.UsageError(f"the connection string cannot be used: {error}") from error


def administration(given: str | None, data: Path) -> Administration:
    """A client for the entities of the broker that is meant."""
    try:
        return Administration.from_connection_string(connection_string(given, data))
    except ValueError as error:
        raise click.UsageError(f"the connection string cannot be used: {error}") from error


def connection_string_of(
    given: str | None, data: Path, rule: str, key: str, entity: str | None
) -> str:
    """The same connection string for another rule."""
    kept = [
        part
        for part in connection_string(given, data).split(";")
        if part.partition("=")[0].strip().lower() in ("endpoint", "usedevelopmentemulator")
    ]
    own = [f"SharedAccessKeyName={rule}", f"SharedAccessKey={key}"]
    return ";".join([*kept, *own, *([f"EntityPath={entity}"] if entity else [])])
