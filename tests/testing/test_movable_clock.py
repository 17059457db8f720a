"""A clock that runs by itself and can be put forward."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from partibus.testing.movable_clock import MovableClock

HOUR_S = 3600


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def ask(clock: MovableClock, loop: asyncio.AbstractEventLoop, after_s: float, note: object) -> None:
    """Have the note called after so long, from the loop."""
    asked = threading.Event()

    def on_loop() -> None:
        clock.call_at(clock.now_ms() + round(after_s * 1000), note)  # type: ignore[arg-type]
        asked.set()

    loop.call_soon_threadsafe(on_loop)
    asked.wait()


def test_what_became_due_was_called_when_advance_returns(loop: asyncio.AbstractEventLoop) -> None:
    clock = MovableClock(loop)
    called: list[str] = []
    ask(clock, loop, 2 * HOUR_S, lambda: called.append("second"))
    ask(clock, loop, HOUR_S, lambda: called.append("first"))
    ask(clock, loop, 9 * HOUR_S, lambda: called.append("not yet"))
    before_ms = clock.now_ms()
    clock.advance(3 * HOUR_S)
    assert called == ["first", "second"]
    assert 0 <= clock.now_ms() - before_ms - 3 * HOUR_S * 1000 < 60_000


def test_time_passes_by_itself_too(loop: asyncio.AbstractEventLoop) -> None:
    clock = MovableClock(loop)
    called = threading.Event()
    clock.advance(HOUR_S)
    ask(clock, loop, 0.01, called.set)
    assert called.wait(10)


def test_a_cancelled_timer_is_never_called(loop: asyncio.AbstractEventLoop) -> None:
    clock = MovableClock(loop)
    called: list[str] = []

    def plan() -> None:
        clock.call_at(clock.now_ms() + 1000, lambda: called.append("cancelled")).cancel()

    loop.call_soon_threadsafe(plan)
    clock.advance(HOUR_S)
    assert called == []
