"""One port for everything: accepts a connection, finds out what it speaks, and hands it over.

TLS is told from the first byte, looked at but not read, so that the handshake finds it; what is
spoken plainly or inside TLS by the bytes after it. From then on the connection belongs to its
door, with the bytes it has sent: nothing of this module is in the way of a message. Doors are
known as makers of protocols only. A connection that is not told apart in time is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from partibus.runtime.first_bytes import TLS_HANDSHAKE, Speech, tell

log = logging.getLogger(__name__)

# From being accepted to being told apart, a TLS handshake included.
TELL_APART_S = 10.0
# Connections that are not told apart yet. Honest clients speak at once, so that beyond this the
# one that has been silent longest gives way.
STRANGERS_MAX = 1_024
# How long nothing is accepted once the process has no files or memory left for it.
ACCEPT_PAUSE_S = 1.0
TLS_SHUTDOWN_S = 5.0

MakeProtocol = Callable[[], asyncio.Protocol]


@dataclass(frozen=True, slots=True)
class Doors:
    """Who takes the connections over."""

    amqp: MakeProtocol
    http: MakeProtocol
    websocket: MakeProtocol


class Port:
    """Accepts on listening sockets that somebody else opened."""

    def __init__(
        self,
        doors: Doors,
        loop: asyncio.AbstractEventLoop,
        # Asked for every connection, because certificates are renewed. None: no TLS here.
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._makers = {
            Speech.AMQP: doors.amqp,
            Speech.HTTP: doors.http,
            Speech.WEBSOCKET: doors.websocket,
        }
        self._loop = loop
        self._tls = tls
        self._listening: list[socket.socket] = []
        # In the order of their coming.
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._closing = False

    def listen(self, listening: socket.socket, *, tls_only: bool = False) -> None:
        """Accept on this socket from now on; with `tls_only` nothing is served in the clear."""
        listening.setblocking(False)
        self._listening.append(listening)
        self._loop.add_reader(listening, self._accept, listening, tls_only)

    async def close(self) -> None:
        """Accept no more, and drop who is not told apart. What doors have taken is theirs."""
        self._closing = True
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        strangers = list(self._strangers)
        for stranger in strangers:
            stranger.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)

    # Accepting --------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, tls_only: bool) -> None:
        """Take one connection; the next turn takes the next, here or at another node."""
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            # Another node was faster, or the client is gone.
            return
        except OSError as error:
            log.error("accepting paused: %s seconds=%.0f", error.strerror, ACCEPT_PAUSE_S)  # noqa: TRY400
            self._loop.remove_reader(listening)
            self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listening, tls_only)
            return
        accepted.setblocking(False)
        # Event loops do this too, but not for every socket that was accepted elsewhere.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._strangers) >= STRANGERS_MAX:
            next(iter(self._strangers)).cancel()
        stranger = self._loop.create_task(self._welcome(accepted, tls_only))
        self._strangers[stranger] = None
        stranger.add_done_callback(self._strangers.pop)

    def _accept_again(self, listening: socket.socket, tls_only: bool) -> None:
        if not self._closing:
            self._loop.add_reader(listening, self._accept, listening, tls_only)

    # Telling apart ----------------------------------------------------------------------------

    async def _welcome(self, accepted: socket.socket, tls_only: bool) -> None:
        """From a socket that was accepted to a connection that has found its door."""
        newcomer = None
        try:
            async with asyncio.timeout(TELL_APART_S):
                is_tls = await self._first_byte(accepted) == TLS_HANDSHAKE
                if (tls_only and not is_tls) or (is_tls and self._tls is None):
                    accepted.close()
                    return
                newcomer = await self._connected(accepted, is_tls)
                await newcomer.told_apart
        except (TimeoutError, OSError) as error:
            log.debug("connection not told apart: %r", error)
        finally:
            if newcomer is None:
                accepted.close()
            elif not newcomer.told_apart.done() or newcomer.told_apart.cancelled():
                newcomer.abort()

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """The first byte, left where it is; nothing where the client sends none."""
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(accepted, _resolve, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK)

    async def _connected(self, accepted: socket.socket, is_tls: bool) -> Newcomer:
        # Not taken from what is returned: with TLS uvloop returns a protocol of its own there.
        newcomer = Newcomer(self._makers, self._loop.create_future())
        if not is_tls:
            await self._loop.connect_accepted_socket(lambda: newcomer, accepted)
            return newcomer
        assert self._tls is not None
        await self._loop.connect_accepted_socket(
            lambda: newcomer,
            accepted,
            ssl=self._tls(),
            ssl_handshake_timeout=TELL_APART_S,
            ssl_shutdown_timeout=TLS_SHUTDOWN_S,
        )
        return newcomer


class Newcomer(asyncio.Protocol):
    """A connection until its first bytes have told what it speaks."""

    def __init__(
        self, makers: dict[Speech, MakeProtocol], told_apart: asyncio.Future[None]
    ) -> None:
        self._makers = makers
        self.told_apart = told_apart
        self._transport: asyncio.Transport | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, or the plain side of TLS, is there."""
        # uvloop's transports are none of asyncio's classes, but have all their methods.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """More of the first bytes: bounded by what `tell` is content with, and by one read."""
        self._first += data
        speech = tell(self._first)
        if speech is None or self._transport is None:
            return
        _resolve(self.told_apart)
        transport, self._transport = self._transport, None
        if speech is Speech.RUBBISH:
            transport.abort()
            return
        protocol = self._makers[speech]()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        # A door may have closed it at once.
        if not transport.is_closing():
            protocol.data_received(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        """It was gone before it had said enough."""
        self._transport = None
        _resolve(self.told_apart)

    def abort(self) -> None:
        """It took too long."""
        if self._transport is not None:
            self._transport.abort()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
