"""What time brings to the messages of one store: scheduled ones become active, others expire.

Only the next moment of each kind is in memory. What is due is found by the store's indexes and
read in bounded parts, each committed before the next is read: a million scheduled messages cost
nothing before their time, and do not keep others from the disk when it has come. What happens to
a message is its fragment's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from partibus.broker.errors import Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.records import (
    FRAGMENT_NUMBER_MAX,
    POSITION_MAX,
    Changes,
    Entry,
    Moment,
    SubQueue,
    earliest,
)
from partibus.runtime.clock import Clock, Timer
from partibus.store import Store

# Messages that are read, and changed in one commit, at a time.
PART_MESSAGES = 128
# Activation is prompt but not one by one; expiry may take its time.
ACTIVATION_PAUSE_MS = 10
EXPIRY_PAUSE_MS = 1000

# Later than any message, in milliseconds.
_LATER_MS = 1 << 62

Look = Callable[[Store, Moment, int, int], list[Moment]]
CarryOut = Callable[[Fragment, list[Entry], int], bool]


class Reads(Protocol):
    """What an agenda must know of its store's driver."""

    def numbered(self, number: int) -> Fragment | None:
        """The fragment with this number."""

    def read(
        self, work: Callable[[Store], Any], done: Callable[[Any, Refusal | None], None]
    ) -> None:
        """Read from the store, in order with its commits."""

    def touch(self, fragment: Fragment) -> None:
        """The fragment has staged something."""

    def when_durable(self, done: Callable[[Refusal | None], None]) -> None:
        """Call done once what was staged just now is on disk, or failed."""


class Agenda:
    """Activation and expiry, for one store."""

    def __init__(self, driver: Reads, clock: Clock) -> None:
        self._activation = _Round(
            driver, clock, lambda files, *span: files.due(*span),
            lambda fragment, *found: fragment.activate(*found),
            ACTIVATION_PAUSE_MS,
        )  # fmt: skip
        self._expiry = _Round(
            driver, clock, lambda files, *span: files.expiring(*span),
            lambda fragment, *found: fragment.expire(*found),
            EXPIRY_PAUSE_MS,
        )  # fmt: skip

    def begin(self) -> None:
        """The store is open: find out what it holds."""
        self._activation.begin()
        self._expiry.begin()

    def committed(self, changes: Changes) -> None:
        """These are on disk: something of them has its time."""
        if changes.due_ms:
            self._activation.note(changes.due_ms)
        if changes.expires_ms:
            self._expiry.note(changes.expires_ms)

    def end(self) -> None:
        """The store is gone."""
        self._activation.end()
        self._expiry.end()


class _Round:
    """One of the two: waits for the next moment, then carries out all that is due, in parts."""

    def __init__(
        self, driver: Reads, clock: Clock, look: Look, carry_out: CarryOut, pause_ms: int
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._look = look
        self._carry_out = carry_out
        self._pause_ms = pause_ms
        self._life = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._clear()

    def _clear(self) -> None:
        self._busy = False
        # When there is something to do next; 0: never, as far as we know.
        self._next_ms = 0
        self._not_before_ms = 0
        # Up to here all was looked at: what is still there is not to be changed by time.
        self._after = Moment(0, 0, 0)
        self._until_ms = 0

    def begin(self) -> None:
        self._clear()
        self._next_ms = self._clock.now_ms()
        self._set_timer()

    def end(self) -> None:
        self._life += 1
        self._clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, at_ms: int) -> None:
        self._next_ms = earliest(self._next_ms, at_ms)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._busy or not self._next_ms:
            return
        at_ms = max(self._next_ms, self._not_before_ms)
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._clock.call_at(at_ms, self._start)

    def _start(self) -> None:
        self._timer = None
        self._until_ms = self._clock.now_ms()
        if self._next_ms > self._until_ms:
            self._set_timer()
            return
        if self._next_ms <= self._after.at_ms:
            # It came to the disk after its time was looked at.
            self._after = _end_of(self._next_ms - 1)
        self._busy = True
        self._next_ms = 0
        self._not_before_ms = self._until_ms + self._pause_ms
        self._look_on()

    def _look_on(self) -> None:
        after, until_ms, look, life = self._after, self._until_ms, self._look, self._life

        def work(files: Store) -> tuple[list[Moment], list[Moment]]:
            found = look(files, after, until_ms, PART_MESSAGES)
            if len(found) == PART_MESSAGES:
                return found, []
            return found, look(files, _end_of(until_ms), _LATER_MS, 1)

        def looked(result: Any, refusal: Refusal | None) -> None:
            # Where the store is gone, it begins anew when it is back.
            if refusal is None and life == self._life:
                self._looked(*result)

        self._driver.read(work, looked)

    def _looked(self, found: list[Moment], ahead: list[Moment]) -> None:
        if found:
            self._after = found[-1]
        if ahead:
            self._next_ms = earliest(self._next_ms, ahead[0].at_ms)
        wanted: dict[Fragment, list[int]] = {}
        for moment in found:
            fragment = self._driver.numbered(moment.number)
            # Dead letters have no time, and who is unknown is being removed.
            if fragment is not None and fragment.key.subqueue == SubQueue.ACTIVE:
                wanted.setdefault(fragment, []).append(moment.position)
        more, life = len(found) == PART_MESSAGES, self._life
        if not wanted:
            self._go_on(more)
            return

        def work(files: Store) -> list[tuple[Fragment, list[Entry]]]:
            return [(each, files.find(each.number, places)) for each, places in wanted.items()]

        def here(result: Any, refusal: Refusal | None) -> None:
            if refusal is None and life == self._life:
                self._carry_out_all(result, more)

        self._driver.read(work, here)

    def _carry_out_all(self, found: list[tuple[Fragment, list[Entry]]], more: bool) -> None:
        now_ms, life = self._clock.now_ms(), self._life
        staged = False
        for fragment, entries in found:
            known = self._driver.numbered(fragment.number) is fragment
            if known and self._carry_out(fragment, entries, now_ms):
                self._driver.touch(fragment)
                staged = True
        if not staged:
            self._go_on(more)
            return

        def durable(refusal: Refusal | None) -> None:
            if refusal is None and life == self._life:
                self._go_on(more)

        self._driver.when_durable(durable)

    def _go_on(self, more: bool) -> None:
        if more:
            self._look_on()
        else:
            self._busy = False
            self._set_timer()


def _end_of(at_ms: int) -> Moment:
    return Moment(at_ms, FRAGMENT_NUMBER_MAX, POSITION_MAX)
