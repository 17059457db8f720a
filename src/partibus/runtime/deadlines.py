"""When locks end: one heap and one timer for all fragments of a store.

Tells the driver which fragments are due. What then happens to the messages is the fragment's
business.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from partibus.broker.fragment import Fragment
from partibus.runtime.clock import Clock, Timer


class Deadlines:
    """Fragments and the next moment at which something ends in them."""

    def __init__(self, clock: Clock, due: Callable[[Fragment, int], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[int, int, Fragment]] = []
        # The earliest deadline that is set for a fragment, by its number.
        self._earliest: dict[int, int] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0

    def watch(self, fragment: Fragment) -> None:
        """The fragment has locks that will end: wake it in time."""
        deadline = fragment.next_deadline_ms()
        if deadline is None or self._earliest.get(fragment.number, deadline + 1) <= deadline:
            return
        self._earliest[fragment.number] = deadline
        heappush(self._heap, (deadline, fragment.number, fragment))
        self._set_timer()

    def clear(self) -> None:
        """Forget them all: the fragments are gone."""
        self._heap.clear()
        self._earliest.clear()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= earliest:
                return
            self._timer.cancel()
        self._timer_ms = earliest
        self._timer = self._clock.call_at(earliest, self._advance)

    def _advance(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            deadline, number, fragment = heappop(self._heap)
            if self._earliest.get(number) == deadline:
                del self._earliest[number]
            self._due(fragment, now_ms)
        self._set_timer()
