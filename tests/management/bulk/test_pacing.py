"""Streams of bulk readers and the pauses that they make for senders."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from partibus.management.bulk.pacing import LARGE_BYTES, PAUSE_S, SENDING_MS, paced
from partibus.testing.loop import VirtualLoop, simulated

LARGE, SMALL = bytes(LARGE_BYTES), b"x"


class Sending:
    """A node whose last send was so long ago."""

    def __init__(self, ago_ms: int) -> None:
        self._ago_ms = ago_ms

    def has_senders(self, within_ms: int) -> bool:
        return self._ago_ms <= within_ms


class Chunks:
    """A stream, and whether it was closed."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self.is_closed = False

    async def stream(self) -> AsyncGenerator[bytes]:
        try:
            for chunk in self._chunks:
                yield chunk
        finally:
            self.is_closed = True


async def took(loop: VirtualLoop, node: Sending, *chunks: bytes) -> float:
    begin_s = loop.time()
    found = [chunk async for chunk in paced(Chunks(*chunks).stream(), node)]
    assert found == list(chunks)
    return round(loop.time() - begin_s, 6)


@simulated
async def test_while_somebody_sends_a_stream_pauses_after_each_large_chunk(
    loop: VirtualLoop, folder: Path
) -> None:
    assert await took(loop, Sending(0), SMALL, LARGE, LARGE, LARGE) == 3 * PAUSE_S


@simulated
async def test_nobody_waits_while_nobody_sends_or_for_little(
    loop: VirtualLoop, folder: Path
) -> None:
    assert await took(loop, Sending(SENDING_MS + 1), LARGE, LARGE) == 0
    assert await took(loop, Sending(0), *[SMALL] * 100) == 0


@simulated
async def test_a_reader_that_leaves_closes_the_stream(loop: VirtualLoop, folder: Path) -> None:
    chunks = Chunks(SMALL, LARGE, LARGE)
    stream = paced(chunks.stream(), Sending(0))
    assert await anext(stream) == SMALL
    await stream.aclose()
    assert chunks.is_closed
