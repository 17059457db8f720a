"""`partibus serve`, and the command by which it starts its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from partibus import __version__
from partibus.cli.options import DIRECTORY, FILE, PORT, setting
from partibus.cli.output import show_one, shown
from partibus.config import (
    AMQP_PORT,
    HTTP_PORT,
    NODES_MAX,
    STORES_DEFAULT,
    STORES_MAX,
    TLS_PORT,
    ServeSettings,
    default_nodes,
)
from partibus.runtime.node_settings import read_node_settings
from partibus.telemetry import LEVELS, LOG_FORMATS, start_logging


@click.command("serve")
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
@setting(
    "--log-format",
    "How log lines are written: for people, or one JSON object a line.",
    type=click.Choice(LOG_FORMATS),
    default="text",
    show_default=True,
)
def serve_command(
    store_dir: tuple[Path, ...], tls_name: tuple[str, ...], nodes: int | None, **given: Any
) -> None:
    """Run a namespace until it is stopped with SIGTERM or Ctrl-C."""
    settings = ServeSettings(
        store_dirs=store_dir, tls_names=tls_name, nodes=nodes or default_nodes(), **given
    )
    # Here, because the nodes come through this module, too, and need none of it.
    from partibus.runtime.serving import serve

    start_logging("supervisor", settings.log_level, settings.log_format)
    serve(settings, click.echo)


@click.command("node", hidden=True)
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


@click.command("pipelines", hidden=True)
@click.argument("data", type=DIRECTORY)
@click.argument("status", type=int)
@click.argument("lifeline", type=int)
def pipelines_command(data: Path, status: int, lifeline: int) -> None:
    """Run the pipelines. Started by serve; not for people."""
    from partibus.pipeline.running.process import run_pipelines

    raise SystemExit(run_pipelines(data, status, lifeline))


@click.command("version")
@shown
def version_command(output: str) -> None:
    """Print the version."""
    if output == "json":
        show_one({"version": __version__}, output)
    else:
        click.echo(f"partibus {__version__}")
