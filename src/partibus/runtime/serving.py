"""Brings a namespace up: configuration, sockets, data directory, catalog, then its nodes.

Everything that can be refused is refused here, before a node is started, by an error that says
what to do. The listening sockets are opened once and inherited by all nodes, so a connection is
taken by whichever node is awake. What nodes do with messages is not known here.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from partibus import __version__
from partibus.broker.profiles import DEFAULT_PROFILE
from partibus.config import (
    Configuration,
    ConfigurationError,
    ServeSettings,
    read_configuration,
)
from partibus.runtime.clock import clock_base_ms, utc_ms
from partibus.runtime.endpoints import Endpoints, forget_endpoints, save_endpoints
from partibus.runtime.node_process import Command
from partibus.runtime.node_settings import ListeningFile, NodeSettings, write_node_settings
from partibus.runtime.pipelines import (
    pipelines_command,
    pipelines_key,
    pipelines_of,
    write_pipelines,
)
from partibus.runtime.supervisor import Supervisor
from partibus.runtime.tls import make_context
from partibus.store.catalog import ROOT_RULE, Catalog, NamespaceSettings, Snapshot
from partibus.store.configuration import Applied, apply_configuration, declare
from partibus.store.directory import DataDirectory

log = logging.getLogger(__name__)

CATALOG_NAME = "catalog.sqlite"
NAMESPACE_DEFAULT = "partibus"
BACKLOG = 1024
TLS_ONLY = ("tls_port", "https_port")
# Hosts that stand for every address of this machine: compared with, not listened on.
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104
KEY_BYTES = 32
# The well-known key of the vendor's emulator: good with --dev only.
EMULATOR_KEY = "SAS_KEY_VALUE"
# Names of Unix sockets have room for about a hundred bytes.
SOCKET_PATH_MAX = 100

Say = Callable[[str], None]


class AddressUnavailable(Exception):
    """The address to listen on cannot be had."""


def serve(settings: ServeSettings, say: Say) -> None:
    """Run the namespace until SIGTERM or SIGINT; `say` gets what a person wants to read."""
    configuration = read_configuration(settings.config) if settings.config else None
    pipelines = pipelines_of(configuration)
    with ExitStack() as stack:
        sockets = {
            name: stack.enter_context(listening_socket(settings.host, port))
            for name, port in settings.ports.items()
        }
        directory = DataDirectory(settings.data, settings.store_dirs, settings.stores)
        stack.callback(directory.release)
        base_ms = clock_base_ms()
        snapshot, _ = prepare_catalog(directory, configuration, utc_ms(base_ms))
        tls_cert, tls_key = certificate_files(settings, utc_ms(base_ms))
        hops = stack.enter_context(hop_addresses(settings.data, settings.nodes))
        listening = tuple(
            ListeningFile(fd=each.fileno(), tls_only=name in TLS_ONLY)
            for name, each in sockets.items()
        )

        def command(index: int) -> Command:
            def with_status(status_fd: int) -> list[str]:
                node = NodeSettings(
                    index=index,
                    data=settings.data.absolute(),
                    hop_addresses=hops,
                    clock_base_ms=base_ms,
                    namespace=snapshot.settings.name,
                    listening=listening,
                    status_fd=status_fd,
                    lifeline_fd=supervisor.lifeline,
                    tls_cert=tls_cert,
                    tls_key=tls_key,
                    dev=settings.dev,
                    log_level=settings.log_level,
                    log_format=settings.log_format,
                )
                return [sys.executable, "-m", "partibus", "node", write_node_settings(node)]

            return with_status

        commands = [command(index) for index in range(settings.nodes)]
        companion = pipelines_command(settings.data, lambda: supervisor.lifeline)
        supervisor = Supervisor(
            commands, tuple(each.fd for each in listening), companion if pipelines else None
        )
        endpoints = Endpoints(
            host=public_host(settings.host),
            **{name: each.getsockname()[1] for name, each in sockets.items()},
        )
        stack.callback(forget_endpoints, settings.data)
        key = pipelines_key(settings.data / CATALOG_NAME, new_key) if pipelines else ""
        write_pipelines(settings, pipelines, endpoints, key)

        def when_ready() -> None:
            save_endpoints(settings.data, endpoints)
            announce(settings, snapshot, endpoints, say, len(pipelines))

        with certificate_kept_good(settings):
            supervisor.run(when_ready)


def prepare_catalog(
    directory: DataDirectory, configuration: Configuration | None, now_ms: int
) -> tuple[Snapshot, Applied | None]:
    """The catalog, made at the first start, saying what the configuration declares."""
    layout = directory.layout
    new = NamespaceSettings(
        NAMESPACE_DEFAULT,
        layout.stores,
        DEFAULT_PROFILE,
        namespace_id=layout.identity,
        created_ms=now_ms,
    )
    declaration = declare(configuration) if configuration else None
    catalog = Catalog.make(directory.path / CATALOG_NAME, new, new_key)
    try:
        applied = None
        if declaration is not None:
            applied = apply_configuration(catalog, declaration, now_ms, new_key)
            log.info(
                "configuration applied created=%d updated=%d",
                len(applied.created), len(applied.updated),
            )  # fmt: skip
        return catalog.load(), applied
    finally:
        catalog.close()


def certificate_files(settings: ServeSettings, now_ms: int) -> tuple[Path, Path]:
    """The certificate to show and its key: the operator's own, or one that is made here."""
    if settings.tls_cert is not None:
        certificate = settings.tls_cert.absolute()
        key = settings.tls_key.absolute() if settings.tls_key else certificate
    elif settings.tls_key is not None:
        raise ConfigurationError("--tls-key", "a key needs its certificate: --tls-cert")
    else:
        # Here, because it loads much that who has a certificate does not need.
        from partibus.runtime.authority import make_certificates

        certificate = key = make_certificates(settings.data.absolute(), all_names(settings), now_ms)
    make_context(certificate, key)
    return certificate, key


def certificate_kept_good(settings: ServeSettings) -> AbstractContextManager[None]:
    """While this is open, a certificate that was made here is made anew in time."""
    if settings.tls_cert is not None:
        return nullcontext()
    from partibus.runtime.renewal import Renewal, renewing

    def now_ms() -> int:
        return utc_ms(clock_base_ms())

    return renewing(Renewal(settings.data.absolute(), all_names(settings), now_ms))


def all_names(settings: ServeSettings) -> list[str]:
    """The names that a certificate made here is for, besides those that it always has."""
    return [*own_names(settings.host), *settings.tls_names]


def own_names(host: str) -> list[str]:
    """What clients call this machine: its name, where it can be one, and what we listen on."""
    machine = socket.gethostname().lower()
    names = [machine] if re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", machine) else []
    return names if host in EVERYWHERE else [*names, host]


def new_key() -> str:
    """An access key: 44 characters of base64."""
    return b64encode(os.urandom(KEY_BYTES)).decode()


@contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; port 0 takes any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressUnavailable(f"{host}: {error.strerror}") from error
    with opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            opened.bind(address)
            opened.listen(BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressUnavailable(
                    f"port {port} of {host} is in use by another program; choose another port"
                ) from error
            raise AddressUnavailable(f"port {port} of {host}: {error.strerror}") from error
        opened.setblocking(False)
        yield opened


@contextmanager
def hop_addresses(data: Path, nodes: int) -> Iterator[tuple[str, ...]]:
    """Where nodes reach each other: Unix sockets that nobody else can open."""
    if nodes == 1:
        yield ()
        return
    with ExitStack() as stack:
        place = data.absolute()
        if len(os.fsencode(place / f"hop-{nodes}.socket")) > SOCKET_PATH_MAX:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="partibus-"))
            place = Path(made)
        paths = [place / f"hop-{index}.socket" for index in range(nodes)]
        try:
            yield tuple(f"unix:{path}" for path in paths)
        finally:
            for path in paths:
                path.unlink(missing_ok=True)


def announce(
    settings: ServeSettings,
    snapshot: Snapshot,
    endpoints: Endpoints,
    say: Say,
    pipelines: int = 0,
) -> None:
    """Say where everything is, and last that it is ready."""
    host = endpoints.host
    say(f"partibus {__version__}, namespace {snapshot.settings.name}, {settings.nodes} nodes")
    say(f"data directory:    {settings.data.absolute()}")
    say(f"address:           amqp://{host}:{endpoints.port} (HTTP and TLS on the same port)")
    for name, port in (("tls_port", endpoints.tls_port), ("https_port", endpoints.https_port)):
        if port is not None:
            say(f"TLS only:          {'amqps' if name == 'tls_port' else 'https'}://{host}:{port}")
    say(f"portal:            http://{host}:{endpoints.http_port}/")
    say(f"health:            http://{host}:{endpoints.http_port}/health")
    root = next((rule for rule in snapshot.rules_of() if rule.name == ROOT_RULE), None)
    if root is not None:
        say(f"connection string: {endpoints.connection_string(root.primary_key)}")
        say(f"the same in TLS:   {endpoints.tls_connection_string(root.primary_key)}")
    if settings.tls_cert is None:
        say(f'to trust it:       eval "$(partibus env --data {settings.data})"')
    if pipelines:
        say(f"pipelines:         {pipelines} on Spark, started now (partibus pipeline list)")
    if settings.dev:
        say(f"emulator's key:    {endpoints.connection_string(EMULATOR_KEY)}")
        log.warning("development: clients without a key and with the emulator's key are let in")
    say("ready")


def public_host(host: str) -> str:
    """What a client on this machine calls the host that we listen on."""
    if host in EVERYWHERE:
        return "localhost"
    return f"[{host}]" if ":" in host else host
