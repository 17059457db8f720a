"""Where time enters: one clock for all nodes, in milliseconds since 1970 (UTC).

The supervisor takes the difference between wall clock and steady clock once and hands it to every
node. So all nodes agree on the time to the millisecond, and it never jumps when the wall clock
is set. Nothing else reads a clock, but the supervisor, which measures how long nodes are silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

# No timer of the event loop is set for longer; it is set again when it fires early. Event loops
# limit how far ahead they look, and some deadlines are centuries away.
TIMER_MS_MAX = 24 * 60 * 60 * 1000

# Unlike the monotonic clock this one goes on while the machine sleeps. Both count from a start
# that is the same for all processes of a machine.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


class Timer(Protocol):
    """A callback that has yet to come."""

    def cancel(self) -> None:
        """Forget it; harmless when it has already run."""


class Clock(Protocol):
    """What the runtime asks of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC)."""

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back once, not before this time, from the event loop."""


def clock_base_ms() -> int:
    """Wall clock minus steady clock: taken once by the supervisor, given to every node."""
    return time.time_ns() // _NS_PER_MS - time.clock_gettime_ns(_STEADY) // _NS_PER_MS


def utc_ms(base_ms: int) -> int:
    """The time that all who share this base have now."""
    return time.clock_gettime_ns(_STEADY) // _NS_PER_MS + base_ms


class SystemClock:
    """The machine's steady clock, moved to UTC by the base that all nodes share."""

    __slots__ = ("_base_ms", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, base_ms: int) -> None:
        self._loop = loop
        self._base_ms = base_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC)."""
        return utc_ms(self._base_ms)

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back once, not before this time, from the event loop."""
        return _SystemTimer(self._loop, self, when_ms, callback)


class _SystemTimer:
    """A timer of the event loop that is set again where the loop was early."""

    __slots__ = ("_callback", "_clock", "_handle", "_loop", "_when_ms")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: SystemClock,
        when_ms: int,
        callback: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._when_ms = when_ms
        self._callback = callback
        self._set(when_ms - clock.now_ms())

    def cancel(self) -> None:
        self._handle.cancel()

    def _set(self, delay_ms: int) -> None:
        delay_s = min(max(delay_ms, 0), TIMER_MS_MAX) / 1000
        self._handle = self._loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        early_ms = self._when_ms - self._clock.now_ms()
        if early_ms > 0:
            self._set(early_ms)
        else:
            self._callback()
