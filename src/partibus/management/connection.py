"""One HTTP connection: uvicorn's protocol with limits on what a client may cost.

uvicorn bounds heads in size and idle connections in time; here heads are bounded in time too, and
so are answers that nobody reads and bodies that nobody wants. What requests mean is not known
here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from partibus.management import settings

# Only what is our own failure: a client's bad bytes are no operator's business.
log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)

# For a connection that goes on as something else: which path, and who takes it over.
Upgrade = tuple[str, Callable[[], asyncio.Protocol]]


class Belonging(Protocol):
    """What operations keep for the next request of a connection."""

    def close(self) -> None:
        """The connection is gone."""


class _Requests(h11.Connection):
    """Remembers the headers of a request as they were written: the names of properties matter."""

    headers_as_sent: tuple[tuple[bytes, bytes], ...] = ()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.headers_as_sent = tuple(event.headers.raw_items())
        return event


class HttpConnection(H11Protocol):
    """One connection, whoever accepted it."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
        gone: Callable[[HttpConnection], None],
        upgrade: Upgrade | None = None,
    ) -> None:
        # Handlers find the connection of their request in `request.state.connection`.
        super().__init__(config, state, {"connection": self}, loop)
        self.logger = log
        self.conn = _Requests(h11.SERVER, settings.HEAD_BYTES_MAX)
        self.bad_tokens = 0
        # By their kind; closed with the connection.
        self.belongings: dict[type, Belonging] = {}
        self._gone = gone
        self._upgrade = upgrade
        self._deadline: asyncio.TimerHandle | None = None
        # Bytes of a body that came after its request was answered.
        self._unwanted = 0
        self._unread: asyncio.TimerHandle | None = None

    @property
    def headers_as_sent(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of the request that came last, in the client's spelling."""
        requests = self.conn
        assert isinstance(requests, _Requests)
        return requests.headers_as_sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; its first request must come soon."""
        # Not asserted: uvloop's transports are none of asyncio's classes.
        super().connection_made(cast(asyncio.Transport, transport))
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._stop_watching()
        self.resume_writing()
        for each in self.belongings.values():
            each.close()
        self.belongings.clear()
        self._gone(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        super().data_received(data)
        self._watch()
        if self._deadline is not None and self.conn.their_state is h11.SEND_BODY:
            self._discarded(len(data))

    def on_response_complete(self) -> None:
        """A request is answered."""
        super().on_response_complete()
        self._unwanted = 0
        self._watch()

    def abort(self) -> None:
        """Cut the connection."""
        self.transport.abort()

    # Deadlines --------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Set a deadline where the client has something to finish, and none otherwise."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            # Bodies have deadlines where they are read.
            self._stop_watching()
        elif self.conn.their_state is h11.SEND_BODY:
            self._until(settings.LINGER_S)
        elif self.cycle is None or self.conn.trailing_data[0]:
            self._until(settings.HEAD_S_MAX)
        else:
            self._stop_watching()

    def _until(self, span_s: float) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(span_s, self.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _discarded(self, size: int) -> None:
        """What nobody wants is read slowly, and not all of it; the deadline ends it."""
        self._unwanted += size
        self.flow.pause_reading()
        if self._unwanted < settings.DISCARD_BYTES_MAX:
            self.loop.call_later(settings.DISCARD_PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(settings.WRITE_S_MAX, self.abort)

    def resume_writing(self) -> None:
        """It does again."""
        if self.flow is not None:
            super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # Upgrades ---------------------------------------------------------------------------------

    def _should_upgrade(self) -> bool:
        """Whether the request asks for a WebSocket where there is one."""
        return (
            self._upgrade is not None
            and self._get_upgrade() == b"websocket"
            and self.scope["path"].lower() == self._upgrade[0]
        )

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over, with the request that asked for it."""
        assert self._upgrade is not None
        self._stop_watching()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self._gone(self)
        lines = [b"%s %s HTTP/1.1" % (event.method, event.target)]
        lines += [b"%s: %s" % (name, value) for name, value in event.headers]
        protocol = self._upgrade[1]()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + self.conn.trailing_data[0])
