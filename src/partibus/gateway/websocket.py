"""AMQP inside a WebSocket: unpacks what comes, packs what goes, and is out of the way otherwise.

The connection inside sees a transport like any other and bytes as they come; how a client cuts
them into messages and fragments means nothing. Nothing is gathered: what has arrived of a message
is passed on, however long the message says it will be. Compression is not offered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

log = logging.getLogger(__name__)

SUBPROTOCOLS = ("AMQPWSB10", "amqp")
# How long a client may take for the headers of its request.
HANDSHAKE_S = 10.0
# How long it may take to answer our close.
CLOSE_S = 5.0
# What is written leaves in messages of this size: some clients refuse very long ones.
MESSAGE_BYTES_MAX = 65_536
# Pings of a client that reads nothing are not answered beyond this.
PONG_BACKLOG_BYTES_MAX = 65_536


class WebSocket(asyncio.Protocol):
    """One WebSocket, and the connection inside it once it is open."""

    def __init__(
        self, make_inner: Callable[[], asyncio.Protocol], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._make_inner = make_inner
        self._loop = loop
        self._frames = WSConnection(ConnectionType.SERVER)
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_over = False

    # The transport's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        # uvloop's transports are none of asyncio's classes, but have all their methods.
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = self._loop.call_later(HANDSHAKE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request or of frames."""
        if self._is_over:
            return
        try:
            self._frames.receive_data(data)
            self._handle(self._frames.events())
        except RemoteProtocolError as error:
            hint = error.event_hint
            self._reject(hint if isinstance(hint, RejectConnection) else RejectConnection(), error)
        except (LocalProtocolError, ValueError) as error:
            # Headers that are not even text.
            self._reject(RejectConnection(), error)

    def _handle(self, events: Any) -> None:
        """Pass on what the events carry, all of one read together."""
        received: list[bytes | bytearray] = []
        for event in events:
            if type(event) is BytesMessage:
                received.append(event.data)
                continue
            if received:
                self._pass_on(received)
                received = []
            self._control(event)
        if received:
            self._pass_on(received)

    def _pass_on(self, received: list[bytes | bytearray]) -> None:
        if self._inner is not None and not self._is_over:
            self._inner.data_received(b"".join(received))

    def _control(self, event: Event) -> None:
        if isinstance(event, Request):
            self._accept(event)
        elif isinstance(event, Ping):
            self._answer_ping(event)
        elif isinstance(event, TextMessage):
            self._end(CloseConnection(CloseReason.UNSUPPORTED_DATA, "AMQP is not text."))
        elif isinstance(event, CloseConnection):
            self._end(event.response())

    def eof_received(self) -> bool:
        """The peer sends no more; the transport closes itself."""
        if self._inner is not None:
            self._inner.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, and the connection inside with it."""
        self._is_over = True
        self._transport = None
        self._stop_deadline()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The socket has room again."""
        if self._inner is not None:
            self._inner.resume_writing()

    # Opening, pings and closing ---------------------------------------------------------------

    def _accept(self, request: Request) -> None:
        chosen = next((each for each in SUBPROTOCOLS if each in request.subprotocols), None)
        if chosen is None:
            text = f"A WebSocket here carries one of: {', '.join(SUBPROTOCOLS)}."
            self._reject(RejectConnection(status_code=400), ValueError(text))
            return
        self._stop_deadline()
        self._send(AcceptConnection(subprotocol=chosen))
        self._inner = self._make_inner()
        self._inner.connection_made(WebSocketTransport(self))

    def _reject(self, rejection: RejectConnection, error: Exception) -> None:
        """Answer a request that opens nothing, and say what was wrong with it."""
        log.debug("WebSocket refused: %s", error)
        if self._frames.state is ConnectionState.CONNECTING:
            body = f"{error}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
                *rejection.headers,
            ]
            status = rejection.status_code
            self._send(RejectConnection(status_code=status, headers=headers, has_body=True))
            self._send(RejectData(data=body))
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    def _answer_ping(self, ping: Ping) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < PONG_BACKLOG_BYTES_MAX:
            self._send(ping.response())

    def _end(self, close: CloseConnection) -> None:
        """The peer closes, or has broken the rules: say so and be gone."""
        if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._send(close)
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    def _send(self, event: Event) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._frames.send(event))

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # What the connection inside asks for (see WebSocketTransport) -----------------------------

    @property
    def transport(self) -> asyncio.Transport | None:
        """The socket; None once it is gone."""
        return self._transport

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        transport = self._transport
        is_open = self._frames.state is ConnectionState.OPEN
        return transport is None or transport.is_closing() or not is_open

    def write(self, data: bytes) -> None:
        """Write bytes as messages."""
        if self.is_closing:
            return
        for start in range(0, len(data), MESSAGE_BYTES_MAX):
            self._send(BytesMessage(data=data[start : start + MESSAGE_BYTES_MAX]))

    def close(self) -> None:
        """Say goodbye behind what is written, and wait a little for the answer."""
        if not self.is_closing:
            self._send(CloseConnection(CloseReason.NORMAL_CLOSURE))
            self._deadline = self._loop.call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        """Go at once."""
        if self._transport is not None:
            self._transport.abort()


class WebSocketTransport(asyncio.Transport):
    """What the connection inside takes for its socket."""

    def __init__(self, outer: WebSocket) -> None:
        super().__init__()
        self._outer = outer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes as messages."""
        self._outer.write(bytes(data))

    def close(self) -> None:
        """Close in order."""
        self._outer.close()

    def abort(self) -> None:
        """Close at once."""
        self._outer.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._outer.is_closing

    def pause_reading(self) -> None:
        """Deliver no more bytes."""
        if self._outer.transport is not None:
            self._outer.transport.pause_reading()

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        if self._outer.transport is not None:
            self._outer.transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Above which size the socket counts as full."""
        if self._outer.transport is not None:
            self._outer.transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """How much has not left yet."""
        transport = self._outer.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the socket."""
        transport = self._outer.transport
        return transport.get_extra_info(name, default) if transport is not None else default
