"""The hop: one batch per turn, answered in any case, over real Unix sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType

import pytest

from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.broker.settlement import Outcome, Settlement
from partibus.runtime import hop
from partibus.runtime.clock import SystemClock
from partibus.runtime.entropy import Entropy
from partibus.runtime.host import Host
from partibus.runtime.requests import (
    Delivered,
    Drain,
    Peek,
    Renew,
    Reply,
    Request,
    Send,
    Settle,
    Subscribe,
)
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.wire.values import Long, Symbol, UInt


class Catalog:
    """What travels with every batch."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.known: list[int] = []

    def sent(self, size: int) -> None:
        """Not looked at here."""

    def heard(self, version: int) -> None:
        self.known.append(version)


class Ends:
    """Two nodes' hop, with the side that is asked in the test's hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self.loop = loop
        self.address = f"unix:{folder / 'hop'}"
        self.asked: list[Request] = []
        self.up: list[bool] = []
        self.pushed: list[tuple[int, int, list[Delivered]]] = []
        self.catalog, self.other = Catalog(3), Catalog(8)
        self.peer = hop.RemotePeer(
            7,
            self.address,
            self.catalog,
            lambda *pushed: self.pushed.append(pushed),
            lambda _, up: self.up.append(up),
        )
        self.served: set[hop.Serving] = set()
        self.frames = 0

    async def listen(self) -> asyncio.AbstractServer:
        ends = self

        class Asked(hop.Serving):
            def received(self, item: hop.Item) -> None:
                assert isinstance(item, hop.Call)
                ends.asked.append(item.request)
                if isinstance(item.request, Send):
                    self.put(hop.Answered(item.number, Reply(number=len(ends.asked))))

            def data_received(self, data: bytes) -> None:
                ends.frames += 1
                super().data_received(data)

        host = Host(SystemClock(self.loop, 0), Entropy(), lambda _: None, lambda *_: False)
        return await hop.listen(
            self.loop, self.address, lambda: Asked(self.loop, self.other, host, self.served)
        )

    async def connect(self) -> asyncio.AbstractServer:
        server = await self.listen()
        self.peer.start(self.loop)
        await self.until(lambda: self.peer.up)
        return server

    async def until(self, true: Callable[[], object]) -> None:
        for _ in range(1000):
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came true")

    async def close(self, server: asyncio.AbstractServer) -> None:
        self.peer.close()
        server.close()
        for connection in list(self.served):
            connection.abort()
        await asyncio.sleep(0.1)


def send(body: bytes = b"a") -> Send:
    return Send(0, 1, 1, 1, [incoming(body)])


@simulated
async def test_what_is_asked_in_one_turn_travels_together_and_is_answered(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    replies: list[Reply] = []
    for _ in range(100):
        ends.peer.call(send(), replies.append)
    await ends.until(lambda: len(replies) == 100)
    assert [reply.number for reply in replies] == list(range(1, 101))
    assert ends.frames == 1
    assert ends.other.known == [3]
    assert ends.catalog.known == [8]
    await ends.close(server)


@simulated
async def test_every_request_arrives_as_it_was_asked(loop: VirtualLoop, folder: Path) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    settlement = Settlement(Outcome.DEAD_LETTER, "why", None, b"\xc1\x01\x00")
    requests: list[Request] = [
        Send(1, 2, 3, 4, [incoming(b"x", session="s", key="s")], 5),
        Settle(1, 2, [(b"prefix", [b"token"])], settlement),
        Renew(1, 2, [(b"prefix", [b"token"])]),
        Subscribe(1, 2, 3, 0),
        Drain(1),
    ]
    for request in requests:
        ends.peer.tell(request)
    await ends.until(lambda: len(ends.asked) == len(requests))
    assert ends.asked == requests
    await ends.close(server)


@simulated
async def test_numbers_and_names_of_amqp_arrive_as_plain_ones(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    ends.peer.tell(Peek(Long(1), 2, 3, 4, 0, Long(5), UInt(6), Symbol("s")))
    await ends.until(lambda: ends.asked)
    assert ends.asked == [Peek(1, 2, 3, 4, 0, 5, 6, "s")]
    await ends.close(server)


@simulated
async def test_what_cannot_be_encoded_is_refused_and_told_and_costs_nobody_else(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    replies: list[Reply] = []
    ends.peer.call(send(), replies.append)
    ends.peer.call(Renew(1 << 70, 2, []), replies.append)
    ends.peer.call(send(), replies.append)
    with logged("partibus.runtime.hop") as lines:
        await ends.until(lambda: len(replies) == 3)
    assert [type(reply.refusal) for reply in replies] == [Refusal, NoneType, NoneType]
    assert len(lines) == 1
    assert "Renew" in lines[0]
    # On the way back what was asked has happened, so nobody knows.
    (serving,) = ends.served
    replies.clear()
    ends.peer.call(Drain(1), replies.append)
    await ends.until(lambda: len(ends.asked) == 3)
    serving.put(hop.Answered(4, Reply(number=1 << 70)))
    with logged("partibus.runtime.hop") as lines:
        await ends.until(lambda: replies)
    assert isinstance(replies[0].refusal, FragmentUnavailable)
    assert len(lines) == 1
    await ends.close(server)


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """What is logged under this name meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


@simulated
async def test_messages_are_pushed_to_who_subscribed(loop: VirtualLoop, folder: Path) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    (serving,) = ends.served
    # Large enough to arrive in many pieces.
    messages = [Delivered(b"t" * 16, bytes(1_000_000)) for _ in range(8)]
    serving.push(5, messages)
    await ends.until(lambda: ends.pushed)
    assert ends.pushed == [(7, 5, messages)]
    await ends.close(server)


@simulated
async def test_a_lost_connection_answers_what_was_asked_and_comes_back(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    replies: list[Reply] = []
    ends.peer.call(Drain(1), replies.append)
    await asyncio.sleep(0.1)
    for connection in list(ends.served):
        connection.abort()
    await ends.until(lambda: replies)
    assert isinstance(replies[0].refusal, FragmentUnavailable)
    await ends.until(lambda: ends.peer.up)
    assert ends.up == [True, False, True]
    ends.peer.call(send(), replies.append)
    await ends.until(lambda: len(replies) == 2)
    await ends.close(server)


@simulated
async def test_a_node_that_is_not_there_refuses_at_once_and_is_tried_for_ever(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    ends.peer.start(loop)
    replies: list[Reply] = []
    ends.peer.call(send(), replies.append)
    assert isinstance(replies[0].refusal, FragmentUnavailable)
    await asyncio.sleep(60)
    server = await ends.listen()
    await ends.until(lambda: ends.peer.up)
    await ends.close(server)


def test_a_peer_that_does_not_read_is_refused_new_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop, "UNSENT_BYTES_MAX", 100_000)

    @simulated
    async def scenario(loop: VirtualLoop, folder: Path) -> None:
        ends = Ends(loop, folder)
        server = await ends.connect()
        (serving,) = ends.served
        assert serving._transport is not None
        serving._transport.pause_reading()
        replies: list[Reply] = []
        for _ in range(20):
            ends.peer.call(send(bytes(200_000)), replies.append)
            await asyncio.sleep(0)
        assert not ends.peer.up
        assert isinstance(replies[-1].refusal, FragmentUnavailable)
        await ends.close(server)

    scenario(tmp_path)


@simulated
async def test_garbage_ends_the_connection_and_nothing_else(
    loop: VirtualLoop, folder: Path
) -> None:
    ends = Ends(loop, folder)
    server = await ends.connect()
    path = ends.address.removeprefix("unix:")
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write((hop.FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert await reader.read() == b""
    writer.close()
    assert ends.peer.up
    await ends.close(server)
