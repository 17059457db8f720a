"""The hop: what one node asks of another, one batch per node and turn.

Frames are a length and a msgpack array: the sender's catalog version, then calls, answers and
pushed messages in order. Each node connects to every other and asks on that connection; answers
and pushes come back on it. A broken connection fails what was asked on it; nothing is repeated
here, because only the asker knows what may be done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import msgspec

from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.runtime.host import Host
from partibus.runtime.requests import Delivered, Reply, Request, refused

log = logging.getLogger(__name__)

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
# A peer that does not read is refused new work beyond this.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
RECONNECT_MIN_S = 0.05
RECONNECT_MAX_S = 1.0


class Call(msgspec.Struct, tag="C", array_like=True):
    """A request; answered under its number, where it has one."""

    number: int
    request: Request


class Answered(msgspec.Struct, tag="A", array_like=True):
    """The reply to a call."""

    number: int
    reply: Reply


class Pushed(msgspec.Struct, tag="P", array_like=True):
    """Messages for a subscription."""

    subscription: int
    messages: list[Delivered]


Item = Call | Answered | Pushed


class Frame(msgspec.Struct, array_like=True):
    """All that one node has for another in one turn."""

    version: int
    items: list[Item]


class Knowledge(Protocol):
    """What travels with every batch: how new a node's catalog is."""

    @property
    def version(self) -> int: ...

    def heard(self, version: int) -> None:
        """Another node's catalog has this version."""

    def sent(self, size: int) -> None:
        """A frame of so many bytes went to another node."""


def _plain(value: object) -> object:
    """A value whose type msgspec does not know: AMQP's numbers and symbols go as what they are."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} cannot travel between nodes")


class HopConnection(asyncio.Protocol):
    """Frames in and out of one socket; writes once per turn."""

    _encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
    _decode = msgspec.msgpack.Decoder(Frame).decode

    def __init__(self, loop: asyncio.AbstractEventLoop, knowledge: Knowledge) -> None:
        self._loop = loop
        self._knowledge = knowledge
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._outgoing: list[Item] = []

    @property
    def connected(self) -> bool:
        """Whether the other side can be asked."""
        return self._transport is not None

    @property
    def clogged(self) -> bool:
        """Whether the other side has stopped reading."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > UNSENT_BYTES_MAX

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        # Not asserted: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._transport = None
        self._outgoing.clear()

    def put(self, item: Item) -> None:
        """Send with everything else of this turn."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(item)

    def _flush(self) -> None:
        items, self._outgoing = self._outgoing, []
        if self._transport is None or not items:
            return
        try:
            data = self._encode(Frame(self._knowledge.version, items))
        except (TypeError, ValueError, OverflowError):
            self._flush_one_by_one(items)
            return
        self._write(data)

    def _flush_one_by_one(self, items: list[Item]) -> None:
        """We are wrong about one of them; that must not cost the others of the turn."""
        for item in items:
            try:
                data = self._encode(Frame(self._knowledge.version, [item]))
            except (TypeError, ValueError, OverflowError) as error:
                log.exception("not sent over the hop, it cannot be encoded item=%s", _kind(item))
                self.unsendable(item, str(error))
            else:
                self._write(data)

    def _write(self, data: bytes) -> None:
        # The connection may be lost between one frame of a turn and the next.
        if self._transport is not None:
            self._knowledge.sent(len(data))
            self._transport.writelines([len(data).to_bytes(LENGTH_BYTES, "big"), data])

    def data_received(self, data: bytes) -> None:
        """Cut frames from the stream and hand their items on."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH_BYTES:
            length = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                log.error("hop frame too large bytes=%d", length)
                self.abort()
                return
            end = start + LENGTH_BYTES + length
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                frame = self._decode(view[start + LENGTH_BYTES : end])
            start = end
            self._knowledge.heard(frame.version)
            for item in frame.items:
                self.received(item)
        del buffer[:start]

    def received(self, item: Item) -> None:
        """One item of a frame."""
        raise NotImplementedError

    def unsendable(self, item: Item, why: str) -> None:
        """An item cannot be encoded: whoever waits for it is told."""
        raise NotImplementedError

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()


class Serving(HopConnection):
    """The side that is asked: another node's gateway, as an origin of subscriptions."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        knowledge: Knowledge,
        host: Host,
        served: set[Serving],
    ) -> None:
        super().__init__(loop, knowledge)
        self._host = host
        # All connections that are being served; whoever stops serving ends them.
        self._served = served

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Another node wants to ask."""
        super().connection_made(transport)
        self._served.add(self)

    def received(self, item: Item) -> None:
        """A request from the other node."""
        assert isinstance(item, Call)
        number = item.number
        self._host.handle(item.request, self, lambda reply: self.put(Answered(number, reply)))

    def unsendable(self, item: Item, why: str) -> None:
        """As if the answer had been lost; pushed messages come back when their locks end."""
        if isinstance(item, Answered):
            refusal = FragmentUnavailable(f"The answer cannot travel: {why}.")
            self.put(Answered(item.number, refused(refusal)))

    def push(self, subscription: int, messages: list[Delivered]) -> None:
        """Messages for one of the other node's receivers."""
        self.put(Pushed(subscription, messages))

    def connection_lost(self, exc: Exception | None) -> None:
        """The other node is gone, and its receivers with it."""
        super().connection_lost(exc)
        self._served.discard(self)
        self._host.forget(self)


class Asking(HopConnection):
    """The side that asks."""

    def __init__(self, peer: RemotePeer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, peer.knowledge)
        self._peer = peer

    def received(self, item: Item) -> None:
        """An answer, or messages."""
        if isinstance(item, Answered):
            self._peer.answered(item.number, item.reply)
        else:
            assert isinstance(item, Pushed)
            self._peer.pushed(self._peer.index, item.subscription, item.messages)

    def unsendable(self, item: Item, why: str) -> None:
        """Who asked is refused."""
        if isinstance(item, Call):
            self._peer.answered(item.number, refused(Refusal(f"The request cannot travel: {why}.")))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The other node is there."""
        super().connection_made(transport)
        self._peer.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other node is gone."""
        super().connection_lost(exc)
        self._peer.disconnected()


class RemotePeer:
    """Another node, asked over the hop. Reconnects by itself."""

    def __init__(
        self,
        index: int,
        address: str,
        knowledge: Knowledge,
        pushed: Callable[[int, int, list[Delivered]], None],
        changed: Callable[[int, bool], None],
    ) -> None:
        self.index = index
        self.knowledge = knowledge
        self.pushed = pushed
        self._address = address
        self._changed = changed
        self._connection: Asking | None = None
        self._waiting: dict[int, Callable[[Reply], None]] = {}
        self._next = 1
        self._task: asyncio.Task[None] | None = None
        self._lost = False
        self._closed = False

    @property
    def up(self) -> bool:
        """Whether the node can be asked."""
        connection = self._connection
        return connection is not None and not connection.clogged

    def call(self, request: Request, answer: Callable[[Reply], None]) -> None:
        """Ask; answered in any case, also when the connection breaks."""
        connection = self._connection
        if connection is None or connection.clogged:
            answer(refused(FragmentUnavailable(f"Node {self.index} is unavailable; try again.")))
            return
        number = self._next
        self._next += 1
        self._waiting[number] = answer
        connection.put(Call(number, request))

    def tell(self, request: Request) -> None:
        """Say something that has no answer; lost when the connection breaks, as is its subject."""
        if self._connection is not None:
            self._connection.put(Call(0, request))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to connect, and go on until it succeeds."""
        self._task = loop.create_task(self._connect(loop))

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        pause = RECONNECT_MIN_S
        if self._lost:
            # A node that accepts and drops us at once is not asked in a tight loop.
            await asyncio.sleep(pause)
        while not self._closed:
            try:
                await connect(loop, self._address, lambda: Asking(self, loop))
            except OSError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX_S)
            else:
                return

    def answered(self, number: int, reply: Reply) -> None:
        """A reply has come."""
        answer = self._waiting.pop(number, None)
        if answer is not None:
            answer(reply)

    def connected(self, connection: Asking) -> None:
        """The node can be asked from now on."""
        self._connection = connection
        self._changed(self.index, True)

    def disconnected(self) -> None:
        """The node is gone: what was asked may or may not have happened."""
        loop = asyncio.get_running_loop()
        self._connection = None
        self._lost = True
        waiting, self._waiting = self._waiting, {}
        reply = refused(FragmentUnavailable(f"Node {self.index} went away; try again."))
        self._changed(self.index, False)
        for answer in waiting.values():
            answer(reply)
        if not self._closed:
            self.start(loop)


def _kind(item: Item) -> str:
    """What to call an item in the log; its content is nobody's business there."""
    return type(item.request if isinstance(item, Call) else item).__name__


async def connect(
    loop: asyncio.AbstractEventLoop, address: str, protocol: Callable[[], asyncio.Protocol]
) -> None:
    """Connect to `unix:PATH` or `HOST:PORT`."""
    if address.startswith("unix:"):
        await loop.create_unix_connection(protocol, address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        await loop.create_connection(protocol, host, int(port))


async def listen(
    loop: asyncio.AbstractEventLoop, address: str, protocol: Callable[[], asyncio.Protocol]
) -> asyncio.AbstractServer:
    """Listen on `unix:PATH` or `HOST:PORT`; a socket left behind by a dead node is replaced."""
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - once, before anybody is served
        return await loop.create_unix_server(protocol, str(path))
    host, _, port = address.rpartition(":")
    return await loop.create_server(protocol, host, int(port))
