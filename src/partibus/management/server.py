"""The HTTP door of one node: accepts connections, and ends them in order.

Connections come from a listening socket that somebody else opened, or already accepted from who
tells HTTP from AMQP by the first bytes. Requests are answered in the node's own event loop by the
routes. Ports and TLS are not its business.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from starlette.routing import BaseRoute
from uvicorn.config import Config
from uvicorn.server import ServerState

from partibus.management.calls import Service
from partibus.management.connection import HttpConnection, Upgrade
from partibus.management.routes import application
from partibus.management.settings import HEAD_BYTES_MAX, KEEP_ALIVE_S, SHUTDOWN_S, HttpSettings
from partibus.management.side_process import SideProcess
from partibus.runtime.clock import Clock
from partibus.runtime.node import Node
from partibus.runtime.tracking import TrackingTexts

log = logging.getLogger(__name__)

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\n"
)


class _TooMany(asyncio.Protocol):
    """A connection over the limit: it is closed before it costs anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        transport.write(_FULL)
        transport.close()


class HttpDoor:
    """The HTTP side of one node."""

    def __init__(
        self,
        node: Node,
        settings: HttpSettings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
        upgrade: Upgrade | None = None,
        store_paths: Sequence[Path] = (),
        staging: Path | None = None,
        data: Path | None = None,
        pages: Sequence[BaseRoute] = (),
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._upgrade = upgrade
        # Tokens end by the clients' time. It is the node's unless a test moves that one.
        clock = clock or node.clock
        tracking = TrackingTexts(settings.namespace, settings.node, clock, node.entropy)
        self._side = SideProcess(store_paths)
        self.service = Service(node, settings, clock, tracking, self._side, staging, data)
        self.application = application(self.service, pages)
        self._config = Config(
            self.application,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            # Our own logging is set up already, and no request is logged.
            log_config=None,
            access_log=False,
            # Nothing in front of us vouches for where a request comes from.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._closing = False
        self._is_full = False
        self._emptied = asyncio.Event()
        self.connections: set[HttpConnection] = set()
        node.host.measured.gauges["connections_http"] = lambda: len(self.connections)

    async def listen(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept on this socket, from now on."""
        server = await self._loop.create_server(self.protocol, sock=listening, ssl=tls)
        self._servers.append(server)

    def protocol(self) -> asyncio.Protocol:
        """The protocol for one accepted connection; also for who accepts by other means.

        Who has read the first bytes calls connection_made and data_received with them, then
        transport.set_protocol.
        """
        if self._closing or len(self.connections) >= self._settings.connections_max:
            if not self._is_full and not self._closing:
                self._is_full = True
                log.error("HTTP connections refused: limit reached max=%d", len(self.connections))
            return _TooMany()
        self._is_full = False
        connection = HttpConnection(
            self._config, self._state, self._loop, self._gone, self._upgrade
        )
        self.connections.add(connection)
        return connection

    async def close(self) -> None:
        """Accept no more, answer what was asked, then cut who is left."""
        self._closing = True
        self._side.close()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.shutdown()
        if not self.connections:
            return
        try:
            await asyncio.wait_for(self._emptied.wait(), SHUTDOWN_S)
        except TimeoutError:
            log.warning("HTTP connections cut at shutdown count=%d", len(self.connections))
            for connection in list(self.connections):
                connection.abort()
            await self._emptied.wait()
        for task in list(self._state.tasks):
            task.cancel()

    def _gone(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        if self._closing and not self.connections:
            self._emptied.set()
