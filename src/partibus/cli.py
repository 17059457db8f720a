"""The command line: `partibus serve` and what goes with it.

Every failure that is not our own mistake ends in one line on standard error and an exit code
that tells its kind (docs/OPERATING.md). What the commands do is in the rooms below.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from partibus import __version__
from partibus.config import (
    AMQP_PORT,
    HTTP_PORT,
    NODES_MAX,
    STORES_DEFAULT,
    STORES_MAX,
    TLS_PORT,
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
@setting("--port", "The port for everything.", type=PORT, default=AMQP_PORT, show_default=True)
@setting(
    "--http-port", "The HTTP port (GET /health).", type=PORT, default=HTTP_PORT, show_default=True
)
@setting(
    "--tls-port",
    f"A port for TLS only.  [default: {TLS_PORT} beside --port {AMQP_PORT}, else none]",
    type=PORT,
)
@setting("--https-port", "Another port for TLS only, for clients that insist on 443.", type=PORT)
@setting("--tls-cert", "A certificate (PEM) to show instead of one made here.", type=FILE)
@setting("--tls-key", "Its key (PEM), where it is not in the same file.", type=FILE)
@setting(
    "--tls-name",
    "Another name or address of this broker, for the certificate made here. Repeat it.",
    multiple=True,
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
def serve_command(
    store_dir: tuple[Path, ...], tls_name: tuple[str, ...], nodes: int | None, **given: Any
) -> None:
    """Run a namespace until it is stopped with SIGTERM or Ctrl-C."""
    settings = ServeSettings(
        store_dirs=store_dir, tls_names=tls_name, nodes=nodes or default_nodes(), **given
    )
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


data_option = setting(
    "--data",
    "The data directory of the broker.",
    type=DIRECTORY,
    default="partibus-data",
    show_default=True,
)


@commands.group("cert")
def cert_commands() -> None:
    """The certificate of the development authority, which clients have to trust for TLS."""


@cert_commands.command("show")
@data_option
def show_certificate_command(data: Path) -> None:
    """Say which certificates were made, for which names, and until when they hold."""
    from partibus.runtime.trust import describe_certificates

    for line in describe_certificates(data):
        click.echo(line)


@cert_commands.command("export")
@click.argument("file", type=click.File("wb", atomic=True))
@data_option
def export_certificate_command(file: BinaryIO, data: Path) -> None:
    """Write the authority's certificate (never its key) to FILE; - for standard output."""
    from partibus.runtime.trust import authority_text

    file.write(authority_text(data))


@commands.command("env")
@data_option
def env_command(data: Path) -> None:
    """Print the variables by which clients reach and trust the broker: eval "$(partibus env)"."""
    from partibus.runtime.trust import client_variables

    for name, value in client_variables(data).items():
        click.echo(f"export {name}={shlex.quote(value)}")


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
