"""Time that moves only when a test moves it.

What the clock calls runs inside advance(), in the order of due times, each at its own time; equal
times run in the order they were asked for. No event loop is needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

# A day in November 2023: real enough to be read in a failing test.
START_MS = 1_700_000_000_000


class ManualClock:
    """A runtime.clock.Clock in a test's hand."""

    __slots__ = ("_due", "_now_ms", "_order")

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._order = 0
        self._due: list[tuple[int, int, ManualTimer]] = []

    def now_ms(self) -> int:
        """The time the test has come to."""
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> ManualTimer:
        """Call back from within advance(), once this time is reached."""
        timer = ManualTimer(callback)
        self._order += 1
        heapq.heappush(self._due, (when_ms, self._order, timer))
        return timer

    def advance(self, ms: int) -> None:
        """Let so much time pass."""
        self.advance_to(self._now_ms + ms)

    def advance_to(self, when_ms: int) -> None:
        """Let time pass until then; callbacks may ask for others, which run too if they are due."""
        assert when_ms >= self._now_ms, "time does not go back"
        while self._due and self._due[0][0] <= when_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            self._now_ms = max(self._now_ms, due_ms)
            timer.run()
        self._now_ms = when_ms

    def next_due_ms(self) -> int | None:
        """When the next callback comes; None where nobody waits."""
        while self._due and self._due[0][2].cancelled:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None


class ManualTimer:
    """A callback that a ManualClock will run."""

    __slots__ = ("_callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Forget it; harmless when it has already run."""
        self.cancelled = True

    def run(self) -> None:
        """Run it, unless it was cancelled."""
        if not self.cancelled:
            self.cancelled = True
            self._callback()
