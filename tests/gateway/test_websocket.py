"""AMQP inside WebSockets: opening, cutting, pings, closing, and clients that misbehave.

Over real sockets; the client is wsproto in the other role, which says exactly what it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from partibus.gateway import websocket as websocket_module
from partibus.gateway.websocket import MESSAGE_BYTES_MAX, WebSocket

PATIENCE_S = 10.0
PATH = "/$servicebus/websocket"
# A frame of 2**40 masked bytes, of which none follows.
ENDLESS = b"\x82\xff" + (2**40).to_bytes(8, "big") + b"\0\0\0\0"
HEADERS = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class Inner(asyncio.Protocol):
    """What is inside: repeats what it hears, and notes what happens to it."""

    made: list[Inner]

    def __init__(self) -> None:
        self.made.append(self)
        self.heard = bytearray()
        self.has_heard = asyncio.Event()
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.heard += data
        self.has_heard.set()
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()


class Client:
    """The other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._frames = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []

    def send(self, *events: Event) -> None:
        self.writer.write(b"".join(self._frames.send(event) for event in events))

    async def event(self) -> Event:
        while not self._events:
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionResetError
            self._frames.receive_data(data)
            self._events += self._frames.events()
        return self._events.pop(0)

    async def open(self, *subprotocols: str) -> Event:
        self.send(Request(host="h", target=PATH, subprotocols=list(subprotocols)))
        return await self.event()

    async def bytes(self, count: int) -> tuple[bytes, list[int]]:
        """So many bytes, and the sizes of the messages they came in."""
        received, sizes = b"", [0]
        while len(received) < count:
            event = await self.event()
            assert isinstance(event, BytesMessage)
            received += event.data
            sizes[-1] += len(event.data)
            if event.message_finished:
                sizes.append(0)
        return received, sizes[:-1]

    async def closed(self) -> bool:
        try:
            while await self._reader.read(65_536):
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def client(make: Callable[[], asyncio.Protocol] = Inner) -> AsyncIterator[Client]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(WebSocket, make, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        server.close()


@pytest.fixture(autouse=True)
def made() -> list[Inner]:
    Inner.made = []
    return Inner.made


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


@pytest.mark.parametrize("offered", [["AMQPWSB10"], ["amqp"], ["soap", "amqp", "AMQPWSB10"]])
def test_A4_a_websocket_opens_for_amqp_by_either_name(offered: list[str]) -> None:
    async def scenario() -> None:
        async with client() as end:
            answer = await end.open(*offered)
            assert isinstance(answer, AcceptConnection)
            assert answer.subprotocol in offered
            end.send(BytesMessage(b"AMQP"))
            assert (await end.bytes(4))[0] == b"AMQP"

    run(scenario())


def test_A4_a_websocket_for_something_else_is_refused_and_told_what_would_do(
    made: list[Inner],
) -> None:
    async def scenario() -> None:
        async with client() as end:
            answer = await end.open("soap")
            assert isinstance(answer, RejectConnection)
            assert answer.status_code == 400
            body = await end.event()
            assert isinstance(body, RejectData)
            assert b"AMQPWSB10, amqp" in body.data
            assert await end.closed()
            assert not made

    run(scenario())


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /$servicebus/websocket HTTP/1.1\r\nHost: h\r\n\r\n", b"400"),
        (HEADERS.replace(b": 13", b": 8") + b"\r\n", b"426"),
        (HEADERS.replace(b"Sec-WebSocket-Key", b"Other") + b"\r\n", b"400"),
        (HEADERS.replace(b"Host: h", b"Host: \xff") + b"\r\n", b"400"),
        (HEADERS.replace(b"Host: h", b"Host: " + b"a" * 99) + b"\r\n", b"400"),
        (HEADERS + b"Sec-WebSocket-Protocol: \xff\r\n\r\n", b"400"),
        (HEADERS + b"no header\r\n\r\n", b"400"),
        (HEADERS + b"X: " + b"x" * 200_000, b""),
    ],
)
def test_A4_what_is_no_request_for_a_websocket_opens_nothing(
    request_text: bytes, status: bytes, made: list[Inner]
) -> None:
    async def scenario() -> None:
        async with client() as end:
            end.writer.write(request_text)
            if status:
                assert (await end._reader.readline()).startswith(b"HTTP/1.1 " + status)
            assert await end.closed()
            assert not made

    run(scenario())


def test_A4_how_bytes_are_cut_into_messages_and_fragments_means_nothing() -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.send(
                BytesMessage(b"a", message_finished=False),
                Ping(b"between fragments"),
                BytesMessage(b"b" * 70_000, message_finished=False),
                BytesMessage(b"", message_finished=True),
                *(BytesMessage(bytes([each])) for each in b"cdef"),
            )
            await end.writer.drain()
            received = b""
            pongs = []
            while len(received) < 70_005:
                event = await end.event()
                if isinstance(event, Pong):
                    pongs.append(event.payload)
                else:
                    assert isinstance(event, BytesMessage)
                    received += event.data
            assert received == b"a" + b"b" * 70_000 + b"cdef"
            assert pongs == [b"between fragments"]

    run(scenario())


def test_A4_a_message_is_not_gathered_before_it_is_passed_on(made: list[Inner]) -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.writer.write(ENDLESS + b"first")
            assert (await end.event()).data == b"first"  # type: ignore[attr-defined]
            end.writer.write(b"more")
            assert (await end.event()).data == b"more"  # type: ignore[attr-defined]

    run(scenario())


def test_A4_what_is_written_leaves_in_messages_that_clients_can_take() -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.send(BytesMessage(b"x" * 200_000))
            await end.writer.drain()
            received, sizes = await end.bytes(200_000)
            assert len(received) == 200_000
            assert max(sizes) <= MESSAGE_BYTES_MAX

    run(scenario())


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (b"\x82\x01x", 1002),  # not masked
        (b"\xc2\x81\0\0\0\0x", 1002),  # compressed, which was not agreed
        (b"\x89\xfe\x01\x00\0\0\0\0", 1002),  # a ping that is too long
        (b"\x83\x80\0\0\0\0", 1002),  # no such kind of frame
    ],
)
def test_A4_who_breaks_the_rules_of_frames_is_told_and_closed(
    wrong: bytes, code: int, made: list[Inner]
) -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.writer.write(wrong)
            close = await end.event()
            assert isinstance(close, CloseConnection)
            assert close.code == code
            assert await end.closed()
            await made[0].is_lost.wait()

    run(scenario())


def test_A4_text_is_not_taken(made: list[Inner]) -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.send(TextMessage("hello"))
            close = await end.event()
            assert isinstance(close, CloseConnection)
            assert close.code == 1003
            await made[0].is_lost.wait()
            assert not made[0].heard

    run(scenario())


def test_A4_a_client_that_closes_is_answered_and_gone(made: list[Inner]) -> None:
    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            end.send(BytesMessage(b"last"), CloseConnection(1000))
            close = await end.event()
            assert isinstance(close, CloseConnection)
            assert close.code == 1000
            assert await end.closed()
            await made[0].is_lost.wait()
            assert made[0].heard == b"last"

    run(scenario())


def test_A4_closing_from_inside_says_goodbye_and_cuts_who_does_not_answer(
    made: list[Inner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_module, "CLOSE_S", 0.1)

    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            made[0].transport.write(b"goodbye")
            made[0].transport.close()
            made[0].transport.write(b"nothing after it")
            assert made[0].transport.is_closing()
            assert (await end.bytes(7))[0] == b"goodbye"
            assert isinstance(await end.event(), CloseConnection)
            assert not made[0].is_lost.is_set()
            await made[0].is_lost.wait()

    run(scenario())


def test_A4_a_request_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "HANDSHAKE_S", 0.1)

    async def scenario() -> None:
        async with client() as end:
            end.writer.write(HEADERS)
            assert await end.closed()

    run(scenario())


def test_A4_pings_of_who_reads_nothing_are_answered_up_to_a_limit(
    made: list[Inner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_module, "PONG_BACKLOG_BYTES_MAX", 1)

    async def scenario() -> None:
        async with client() as end:
            await end.open("amqp")
            # The socket is full from here on: pongs would only pile up.
            made[0].transport.write(b"x" * 32_000_000)
            before = made[0].transport.get_write_buffer_size()
            assert before > 1
            end.send(*(Ping(b"p" * 100) for _ in range(1_000)), BytesMessage(b"!"))
            await end.writer.drain()
            await made[0].has_heard.wait()
            assert made[0].transport.get_write_buffer_size() < before + 1_000
            made[0].transport.abort()

    run(scenario())


def test_A4_the_amqp_door_opens_inside_a_websocket_and_counts_it(world: Any) -> None:
    async def scenario() -> None:
        async with client(world.listener.protocol) as end:
            await end.open("AMQPWSB10")
            end.send(BytesMessage(b"AMQP\x03\x01\x00\x00"))
            assert (await end.bytes(8))[0][:8] == b"AMQP\x03\x01\x00\x00"
            (connection,) = world.listener.connections
            assert "127.0.0.1" in connection.peer_name
            closing = asyncio.ensure_future(world.listener.close())
            event = await end.event()
            assert isinstance(event, CloseConnection)
            end.send(event.response())
            await closing
            assert not world.listener.connections

    world.loop.run_until_complete(asyncio.wait_for(scenario(), PATIENCE_S))
