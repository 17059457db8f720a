"""The command line: `partibus serve` and what goes with it.

Every failure that is not our own mistake ends in one line on standard error and an exit code
that tells its kind (docs/OPERATING.md). What the commands do is in the rooms below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from partibus import __version__
from partibus.config import (
    AMQP_PORT,
    HTTP_PORT,
    NODES_MAX,
    STORES_DEFAULT,
    STORES_MAX,
    ConfigurationError,
    ServeSettings,
    default_nodes,
    read_configuration,
)
from partibus.runtime.node_settings import read_node_settings
from partibus.runtime.serving import AddressUnavailable, serve
from partibus.runtime.supervisor import NodesFailed
from partibus.store import StoreError, StoreInUse
from partibus.store.configuration import declare
from partibus.telemetry import LEVELS, start_logging

# What each kind of failure ends with. The first that fits counts.
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigurationError, 3),
    (StoreInUse, 4),
    (StoreError, 5),
    (AddressUnavailable, 6),
    (NodesFailed, 7),
)

DIRECTORY = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
PORT = click.IntRange(0, 65535)


def main() -> None:
    """The console command."""
    try:
        commands()
    except tuple(kind for kind, _ in EXIT_CODES) as error:
        click.echo(f"partibus: {error}", err=True)
        sys.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """A message broker for partitioned queues, compatible with Azure Service Bus."""


def setting(name: str, help_text: str, **kind: Any) -> Callable[[Any], Any]:
    """An option of serve that can also be given as an environment variable."""
    variable = f"PARTIBUS_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, envvar=variable, show_envvar=True, help=help_text, **kind)


@commands.command("serve")
@setting(
    "--data",
    "Where everything is kept.",
    type=DIRECTORY,
    default="partibus-data",
    show_default=True,
)
@setting(
    "--store-dir",
    "A directory for stores, so that they may lie on different disks. "
    "Repeat it; the stores take turns. Default: inside the data directory.",
    type=DIRECTORY,
    multiple=True,
)
@setting("--config", "A configuration file in the shape of the emulator's Config.json.", type=FILE)
@setting("--host", "The address to listen on.", default="127.0.0.1", show_default=True)
@setting("--port", "The AMQP port.", type=PORT, default=AMQP_PORT, show_default=True)
@setting(
    "--http-port", "The HTTP port (GET /health).", type=PORT, default=HTTP_PORT, show_default=True
)
@setting(
    "--nodes",
    "How many processes to run. Default: one per core, at least two.",
    type=click.IntRange(1, NODES_MAX),
)
@setting(
    "--stores",
    f"How many stores a new namespace gets.  [default: {STORES_DEFAULT}]",
    type=click.IntRange(1, STORES_MAX),
)
@setting(
    "--dev",
    "Development: also let in the emulator's well-known key and clients without any key.",
    is_flag=True,
)
@setting(
    "--log-level",
    "How much is logged to standard error.",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
)
def serve_command(store_dir: tuple[Path, ...], nodes: int | None, **given: Any) -> None:
    """Run a namespace until it is stopped with SIGTERM or Ctrl-C."""
    settings = ServeSettings(store_dirs=store_dir, nodes=nodes or default_nodes(), **given)
    start_logging("supervisor", settings.log_level)
    serve(settings, click.echo)


@commands.command("node", hidden=True)
@click.argument("settings")
def node_command(settings: str) -> None:
    """Run one node. Started by serve; not for people."""
    # Here, because it loads every room, which no other command needs.
    from partibus.app import run_node

    try:
        node_settings = read_node_settings(settings)
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"these are not a node's settings: {error}") from error
    run_node(node_settings)


@commands.command("version")
def version_command() -> None:
    """Print the version."""
    click.echo(f"partibus {__version__}")


@commands.group("config")
def config_commands() -> None:
    """Work with configuration files."""


@config_commands.command("validate")
@click.argument("file", type=FILE)
def validate_command(file: Path) -> None:
    """Check a configuration file without starting anything."""
    configuration = declare(read_configuration(file)).configuration
    click.echo(f"{file}: namespace {configuration.name}, {len(configuration.queues)} queues")
    if configuration.topics:
        names = ", ".join(topic.name for topic in configuration.topics)
        click.echo(f"not served yet: topics {names}")
