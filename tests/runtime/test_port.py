"""One port for everything, over real sockets and with either event loop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from partibus.runtime import port as port_module
from partibus.runtime.authority import make_certificates
from partibus.runtime.port import Doors, Port
from partibus.runtime.tls import make_context

PATIENCE_S = 10.0
GREETINGS = [
    (b"AMQP\x03\x01\x00\x00", b"amqp"),
    (b"GET /health HTTP/1.1\r\n", b"http"),
    (b"GET /$servicebus/websocket HTTP/1.1\r\n", b"websocket"),
]


class Door(asyncio.Protocol):
    """Says its name, and then what it is told."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self._name + b":")  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


DOORS = Doors(lambda: Door(b"amqp"), lambda: Door(b"http"), lambda: Door(b"websocket"))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Awaitable[None]], None]]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    failures: list[dict[str, object]] = []
    with asyncio.Runner(loop_factory=factory) as runner:

        def run(scenario: Awaitable[None]) -> None:
            async def bounded() -> None:
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(lambda _, context: failures.append(context))
                async with asyncio.timeout(PATIENCE_S):
                    await scenario
                # What a task left behind is told when it is collected.
                gc.collect()

            runner.run(bounded())

        yield run
    assert not failures


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"), [], int(time.time() * 1000))


@pytest.fixture(scope="module")
def trust(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate.with_name("authority.pem"))
    # As strict as newer Pythons are.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@asynccontextmanager
async def opened(certificate: Path | None = None, *, tls_only: bool = False) -> AsyncIterator[int]:
    context = make_context(certificate, certificate) if certificate else None
    port = Port(DOORS, asyncio.get_running_loop(), (lambda: context) if context else None)
    listening = socket.create_server(("127.0.0.1", 0))
    port.listen(listening, tls_only=tls_only)
    number: int = listening.getsockname()[1]
    try:
        yield number
    finally:
        await port.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", number)


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(("greeting", "door"), GREETINGS)
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_A4_every_protocol_finds_its_door_on_one_port_with_all_its_bytes(
    run: Callable[[Awaitable[None]], None],
    certificate: Path,
    trust: ssl.SSLContext,
    greeting: bytes,
    door: bytes,
    is_tls: bool,
) -> None:
    async def scenario() -> None:
        async with opened(certificate) as port:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trust if is_tls else None
            )
            # In two pieces: the first alone does not tell.
            writer.write(greeting[:3])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(greeting[3:] + b"more")
            expected = door + b":" + greeting + b"more"
            assert await reader.readexactly(len(expected)) == expected
            writer.write(b"later")
            assert await reader.readexactly(5) == b"later"
            writer.close()
            await writer.wait_closed()

    run(scenario())


@pytest.mark.parametrize("rubbish", [b"\x00\x01\x02\x03", b"SSH-2.0-x\r\n", b"\x15\x03\x01"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_A4_rubbish_is_closed_at_once(
    run: Callable[[Awaitable[None]], None],
    certificate: Path,
    trust: ssl.SSLContext,
    rubbish: bytes,
    is_tls: bool,
) -> None:
    async def scenario() -> None:
        async with opened(certificate) as port:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trust if is_tls else None
            )
            writer.write(rubbish)
            assert await closed(reader)
            writer.close()

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"AMQ", b"GET /endl", b"\x16\x03\x01\x02\x00\x01"])
def test_A4_who_does_not_say_enough_is_closed_in_time(
    run: Callable[[Awaitable[None]], None],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
) -> None:
    monkeypatch.setattr(port_module, "TELL_APART_S", 0.1)

    async def scenario() -> None:
        async with opened(certificate) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await closed(reader)
            writer.close()

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"AMQ"])
def test_A4_who_says_nothing_inside_tls_is_closed_in_time(
    run: Callable[[Awaitable[None]], None],
    certificate: Path,
    trust: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
) -> None:
    monkeypatch.setattr(port_module, "TELL_APART_S", 1.0)

    async def scenario() -> None:
        async with opened(certificate) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writer.write(sent)
            assert await closed(reader)
            writer.close()

    run(scenario())


def test_A4_a_port_for_tls_serves_nothing_in_the_clear(
    run: Callable[[Awaitable[None]], None], certificate: Path, trust: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        async with opened(certificate, tls_only=True) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GREETINGS[0][0])
            assert await closed(reader)
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writer.write(GREETINGS[0][0])
            assert await reader.readexactly(5) == b"amqp:"
            writer.close()

    run(scenario())


def test_A4_where_there_is_no_certificate_a_handshake_is_closed(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def scenario() -> None:
        async with opened() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\x01\x02\x00")
            assert await closed(reader)
            writer.close()

    run(scenario())


def test_A4_the_silent_give_way_to_who_speaks(
    run: Callable[[Awaitable[None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_module, "STRANGERS_MAX", 3)

    async def scenario() -> None:
        async with opened() as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GREETINGS[0][0])
            assert await reader.readexactly(5) == b"amqp:"
            assert await closed(silent[0][0])
            # The others may still speak.
            silent[2][1].write(GREETINGS[1][0])
            assert await silent[2][0].readexactly(5) == b"http:"
            for _, each in [*silent, (reader, writer)]:
                each.close()

    run(scenario())


def test_A4_small_answers_are_not_held_back_by_the_kernel(
    run: Callable[[Awaitable[None]], None],
) -> None:
    flags: list[int] = []

    class Look(Door):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            flags.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def scenario() -> None:
        doors = Doors(lambda: Look(b""), DOORS.http, DOORS.websocket)
        port = Port(doors, asyncio.get_running_loop())
        listening = socket.create_server(("127.0.0.1", 0))
        port.listen(listening)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(GREETINGS[0][0])
        assert await closed(reader)
        writer.close()
        await port.close()

    run(scenario())
    assert flags[0]
