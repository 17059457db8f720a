"""The real clock, which a test can put forward.

Time goes on by itself, as clients expect, and jumps when a test says so. A jump is like waking up
from sleep: whatever became due is called at once, in the order of due times, at the new time.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable

from partibus.runtime.clock import SystemClock, Timer, clock_base_ms

MS_PER_S = 1000


class MovableClock:
    """A runtime.clock.Clock whose event loop runs in another thread than the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The time that clients have: it is not moved.
        self.system = SystemClock(loop, clock_base_ms())
        self._ahead_ms = 0
        self._order = 0
        self._due: list[tuple[int, int, _MovableTimer]] = []
        self._alarm: Timer | None = None
        self._alarm_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC), and what the test has added."""
        return self.system.now_ms() + self._ahead_ms

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> Timer:
        """Call back once, not before this time, from the event loop."""
        timer = _MovableTimer(callback)
        self._order += 1
        heapq.heappush(self._due, (when_ms, self._order, timer))
        self._set_alarm()
        return timer

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once; returns when all that became due was called."""
        assert seconds >= 0, "time does not go back"
        called = threading.Event()
        self._loop.call_soon_threadsafe(self._jump, round(seconds * MS_PER_S), called)
        called.wait()

    def _jump(self, ms: int, called: threading.Event) -> None:
        self._ahead_ms += ms
        if self._alarm is not None:
            self._alarm.cancel()
        self._run_due()
        called.set()

    def _run_due(self) -> None:
        self._alarm = None
        now_ms = self.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            heapq.heappop(self._due)[2].run()
        self._set_alarm()

    def _set_alarm(self) -> None:
        while self._due and self._due[0][2].cancelled:
            heapq.heappop(self._due)
        if not self._due:
            return
        earliest_ms = self._due[0][0]
        if self._alarm is not None:
            if self._alarm_ms <= earliest_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = earliest_ms
        self._alarm = self.system.call_at(earliest_ms - self._ahead_ms, self._run_due)


class _MovableTimer:
    """A callback that has yet to come."""

    __slots__ = ("_callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._callback()
