"""The AMQP connections of a node: how many there may be, and how they end in order.

Sockets, TLS and the choice between AMQP and HTTP by the first bytes are not its business: it makes
the protocol of a connection that somebody else accepted (runtime.port).
"""

from __future__ import annotations

import asyncio
import logging

from partibus.gateway.connection import GatewayConnection
from partibus.gateway.settings import GatewaySettings
from partibus.gateway.tracking import Tracking
from partibus.runtime.clock import Clock, Timer
from partibus.runtime.node import Node

log = logging.getLogger(__name__)

# How long clients may take to answer a close before their connections are cut.
SHUTDOWN_S = 5.0
# How long a change of access rules that this node knows of may wait.
RULES_LOOK_MS = 1_000


class _TooMany(asyncio.Protocol):
    """A connection over the limit: it is closed before it costs anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Listener:
    """The AMQP side of one node."""

    def __init__(
        self,
        node: Node,
        settings: GatewaySettings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
    ) -> None:
        self._node = node
        self._settings = settings
        self._loop = loop
        # Tokens and idle time-outs are the clients' time. It is the node's unless a test moves
        # that one, to which its clients' clocks would not agree.
        self._clock = clock or node.clock
        self._tracking = Tracking(settings, self._clock, node.entropy)
        self._is_full = False
        self._closing = False
        self._emptied = asyncio.Event()
        self.connections: set[GatewayConnection] = set()
        node.host.measured.gauges["connections_amqp"] = lambda: len(self.connections)
        self._rules_version = node.snapshot.rules_version
        self._look: Timer | None = None
        self._watch_rules()

    def _watch_rules(self) -> None:
        """Close what was opened by a rule or key that has been taken away since."""
        version = self._node.snapshot.rules_version
        if version != self._rules_version:
            self._rules_version = version
            for connection in list(self.connections):
                connection.rules_changed()
        self._look = self._clock.call_at(self._clock.now_ms() + RULES_LOOK_MS, self._watch_rules)

    def protocol(self) -> asyncio.Protocol:
        """The protocol for one accepted connection."""
        if self._closing or len(self.connections) >= self._settings.connections_max:
            if not self._is_full and not self._closing:
                self._is_full = True
                log.error("connections refused: limit reached max=%d", len(self.connections))
            return _TooMany()
        self._is_full = False
        connection = GatewayConnection(
            self._node, self._settings, self._tracking, self._loop, self._clock, self._gone
        )
        self.connections.add(connection)
        return connection

    async def close(self) -> None:
        """Accept no more, let commits finish, say goodbye; cut who does not answer."""
        self._closing = True
        if self._look is not None:
            self._look.cancel()
        for connection in list(self.connections):
            connection.shut_down()
        if not self.connections:
            return
        try:
            await asyncio.wait_for(self._emptied.wait(), SHUTDOWN_S)
        except TimeoutError:
            log.warning("connections cut at shutdown count=%d", len(self.connections))
            for connection in list(self.connections):
                connection.abort()
            await self._emptied.wait()

    def _gone(self, connection: GatewayConnection) -> None:
        self.connections.discard(connection)
        if self._closing and not self.connections:
            self._emptied.set()
