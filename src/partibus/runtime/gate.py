"""How many stores of one disk commit at a time.

Stores that share a disk share its fsyncs: sixteen small commits at once cost ten times what two
large ones do, and take as long. Who waits here gathers more meanwhile. A commit that takes long
does not hold up the others: after a moment it no longer counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from partibus.runtime.clock import Clock, Timer

COMMITS_AT_ONCE = 2
# A commit that is older than this does not keep others waiting any more.
PATIENCE_MS = 50


class Gate:
    """Lets commits begin, in the order in which they were asked for."""

    def __init__(self, clock: Clock, width: int = COMMITS_AT_ONCE) -> None:
        self._clock = clock
        self._width = width
        self._waiting: deque[Callable[[], bool]] = deque()
        # When each commit under way began, by its number; the oldest first.
        self._under_way: dict[int, int] = {}
        self._next = 0
        self._timer: Timer | None = None

    def enter(self, begin: Callable[[int], bool]) -> None:
        """Call begin(number) when it is its turn; it says whether there was anything to do."""
        self._next += 1
        number = self._next
        self._waiting.append(lambda: self._begin(number, begin))
        self._admit()

    def leave(self, number: int) -> None:
        """The commit with this number is over."""
        self._under_way.pop(number, None)
        self._admit()

    def _begin(self, number: int, begin: Callable[[int], bool]) -> bool:
        self._under_way[number] = self._clock.now_ms()
        began = begin(number)
        if not began:
            self._under_way.pop(number, None)
        return began

    def _admit(self) -> None:
        while self._waiting and self._has_room():
            self._waiting.popleft()()
        if self._waiting and self._timer is None:
            oldest = next(iter(self._under_way.values()))
            self._timer = self._clock.call_at(
                max(oldest, self._clock.now_ms() - PATIENCE_MS) + PATIENCE_MS + 1, self._look_again
            )

    def _has_room(self) -> bool:
        if len(self._under_way) < self._width:
            return True
        since_ms = self._clock.now_ms() - PATIENCE_MS
        return sum(began_ms > since_ms for began_ms in self._under_way.values()) < self._width

    def _look_again(self) -> None:
        self._timer = None
        self._admit()
