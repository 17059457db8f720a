"""Space that nobody needs any more, taken back bit by bit between a store's commits.

What a deleted entity held goes in bounded steps; free pages go back to the file system once the
store has had nothing to do for a while. Nobody waits for any of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from partibus.broker.errors import Refusal
from partibus.runtime.clock import Clock, Timer
from partibus.store import Store

DROP_MESSAGES = 1000
# Free space is given back when a store has had nothing to do for a while.
TIDY_AFTER_MS = 5000


class Idler(Protocol):
    """What is asked of the store's driver."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the disk."""

    def read(
        self, work: Callable[[Store], Any], done: Callable[[Any, Refusal | None], None]
    ) -> None:
        """Have the disk do something, in order with commits; done(result, None) or (None, why)."""


class Tidying:
    """The space of one store."""

    __slots__ = ("_clock", "_driver", "_timer")

    def __init__(self, driver: Idler, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._timer: Timer | None = None

    def later(self) -> None:
        """Something was committed: look for free space when it has become quiet."""
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now_ms() + TIDY_AFTER_MS, self._tidy)

    def _tidy(self) -> None:
        self._timer = None
        if self._driver.idle:
            self._trim(True, None)
        else:
            self.later()

    def _trim(self, more: bool | None, _: Refusal | None) -> None:
        if not more:
            return
        if self._driver.idle:
            self._driver.read(lambda store: store.trim(), self._trim)
        else:
            self.later()

    def take_back(self, number: int) -> None:
        """Remove what a deleted entity's fragment holds."""

        def again(gone: bool | None, refusal: Refusal | None) -> None:
            if not gone and refusal is None:
                self._driver.read(lambda store: store.drop(number, DROP_MESSAGES), again)

        again(False, None)
