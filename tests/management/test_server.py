"""The HTTP door: connections by any way, bounded in number, size and time, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response

from partibus.management import settings
from partibus.management.calls import Call, route
from partibus.management.settings import HEAD_BYTES_MAX, HttpSettings
from partibus.testing.http_world import World, in_world, open_world, parse

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = GET.replace(b"Host: x", b"Host: x\r\nConnection: close")
ENDLESS = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def with_echo(world: World, most: int = 10, span_s: float = 5.0) -> None:
    """A path that answers with the body it was sent."""

    async def echo(call: Call) -> Response:
        return PlainTextResponse(await call.body(most, span_s))

    world.door.application.routes.insert(0, route(world.door.service, "/echo", {"POST": echo}))


async def pour(writer: asyncio.StreamWriter) -> None:
    """Send without end."""
    while True:
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def taken_of(writer: asyncio.StreamWriter) -> int:
    """How much can be written before the connection is cut."""
    taken = 0
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            taken += 65_536
    return taken


async def until(world: World, count: int) -> None:
    """Wait until the door has so many connections; nobody is told of it."""
    while len(world.door.connections) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_a_connection_that_was_accepted_elsewhere_is_served_with_its_first_bytes(
    tmp_path: Path,
) -> None:
    async def use(world: World) -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, theirs)
        protocol = world.door.protocol()
        protocol.connection_made(transport)
        protocol.data_received(GET[:7])
        transport.set_protocol(protocol)
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(GET[7:])
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await writer.wait_closed()

    in_world(tmp_path, use)


def test_one_connection_carries_many_requests_also_sent_ahead(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        answer = await world.talk(GET + GET + LAST)
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3

    in_world(tmp_path, use)


def test_nothing_else_is_hosted_and_clients_can_parse_that(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        status, headers, body = await world.ask("GET", "/$partibus/nothing/here")
        assert status == 404
        assert headers["content-type"].startswith("application/xml")
        assert body.startswith("<Error><Code>404</Code><Detail>SubCode=40400. No service is hosted")

    in_world(tmp_path, use)


def test_what_is_no_http_is_refused_and_cut(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for request in (b"\x00\x01\x02\r\n\r\n", b"GET nothing\r\n\r\n", b"x" * HEAD_BYTES_MAX * 3):
            assert (await world.talk(request)).startswith((b"HTTP/1.1 400 ", b""))
        assert (await world.ask("GET", "/health"))[0] == 200

    in_world(tmp_path, use)


def test_a_head_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HEAD_S_MAX", 0.05)

    async def use(world: World) -> None:
        assert await world.talk(b"") == b""
        assert await world.talk(b"GET /health HTTP/1.1\r\n") == b""
        # Also the second request of a connection.
        assert (await world.talk(GET + GET[:9])).count(b"HTTP/1.1") == 1

    in_world(tmp_path, use)


def test_an_oversized_body_is_refused_whether_announced_or_not(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_echo(world)
        assert (await world.ask("POST", "/echo", b"0123456789"))[::2] == (200, "0123456789")
        status, _, body = await world.ask("POST", "/echo", b"0123456789x")
        assert (status, "at most 10 bytes" in body) == (413, True)
        chunks = b"b\r\n0123456789x\r\n0\r\n\r\n"
        assert (await world.talk(ENDLESS + chunks + LAST)).startswith(b"HTTP/1.1 413 ")

    in_world(tmp_path, use)


def test_an_endless_body_is_answered_and_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "LINGER_S", 0.05)

    async def use(world: World) -> None:
        with_echo(world)
        async with world.connected() as (_, writer):
            writer.write(ENDLESS)
            with pytest.raises(ConnectionError):
                await pour(writer)
        assert (await world.ask("GET", "/health"))[0] == 200

    in_world(tmp_path, use)


def test_who_pours_what_nobody_wants_is_read_slowly_and_no_further_than_a_few_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "LINGER_S", 1.0)

    async def use(world: World) -> None:
        async with world.connected() as (reader, writer):
            # Refused before its body is looked at.
            writer.write(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
            began_s = time.monotonic()
            # What sockets hold on both sides comes to it.
            assert await taken_of(writer) < settings.DISCARD_BYTES_MAX + 16 * 1024 * 1024
            assert time.monotonic() - began_s < 10
        # A body that ends soon leaves the connection as good as new.
        async with world.connected() as (reader, writer):
            body = b"x" * 1_000_000
            head = b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
            writer.write(head + body + GET + LAST)
            await writer.drain()
            answers = await reader.read()
            assert [answers.count(b" %d " % code) for code in (401, 200)] == [1, 2]

    in_world(tmp_path, use)


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_echo(world, span_s=0.05)
        async with world.connected() as (reader, writer):
            writer.write(ENDLESS + b"1\r\nx\r\n")
            assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"

    in_world(tmp_path, use)


def test_who_does_not_read_the_answer_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WRITE_S_MAX", 0.05)

    async def use(world: World) -> None:
        async def flood(call: Call) -> Response:
            return PlainTextResponse("x" * 64 * 1024 * 1024)

        world.door.application.routes.insert(0, route(world.door.service, "/x", {"GET": flood}))
        connection = socket.create_connection(("127.0.0.1", world.port))
        connection.sendall(GET.replace(b"/health", b"/x"))
        await until(world, 1)
        await until(world, 0)
        connection.close()

    in_world(tmp_path, use)


def test_more_connections_than_allowed_are_told_so(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        async with world.connected() as first, world.connected() as second:
            for reader, writer in (first, second):
                writer.write(GET)
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            assert (await world.talk(b""))[:12] == b"HTTP/1.1 503"
        await until(world, 0)
        assert (await world.ask("GET", "/health"))[0] == 200

    in_world(tmp_path, use, HttpSettings("test", connections_max=2))


def test_closing_answers_what_was_asked(tmp_path: Path) -> None:
    async def use() -> None:
        async with open_world(tmp_path) as world:
            asked, go_on = asyncio.Event(), asyncio.Event()

            async def slow(_: Call) -> Response:
                asked.set()
                await go_on.wait()
                return PlainTextResponse("done")

            world.door.application.routes.insert(
                0, route(world.door.service, "/slow", {"GET": slow})
            )
            talking = asyncio.create_task(world.talk(GET.replace(b"/health", b"/slow")))
            idle = asyncio.create_task(world.talk(b""))
            await asked.wait()
            closing = asyncio.create_task(world.door.close())
            assert await idle == b""
            go_on.set()
            assert parse(await talking)[2] == "done"
            await closing
            with pytest.raises(ConnectionError), contextlib.closing(socket.socket()) as late:
                late.connect(("127.0.0.1", world.port))

    asyncio.run(use())


def test_a_websocket_is_handed_over_where_there_is_one(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        taken = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()

        class Taker(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                taken.set_result(data)

            def connection_lost(self, exc: Exception | None) -> None:
                gone.set()

        world.door._upgrade = ("/$servicebus/websocket", Taker)
        async with world.connected() as (_, writer):
            head = b"GET /$servicebus/WebSocket HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n"
            writer.write(head + b"Connection: Upgrade\r\n\r\n")
            assert (await taken).startswith(head)
            assert not world.door.connections
        await gone.wait()

    in_world(tmp_path, use)
