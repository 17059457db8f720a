"""The outside checker: judges a broker by what its clients saw, and by nothing else.

Senders and receivers write down what they do, in one Record and in the order it happens. From
that alone follows whether something accepted was lost, something completed came back, or the
order within a key was broken. The checker knows no broker, so it cannot share a mistake with one.
What a disturbance (a process killed or paused, a receiver closed) may excuse is said at each rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

# The partition id stands in the top bits of a sequence number (R6).
PARTITION_SHIFT = 48
# Longer than any history; the place of what has not happened.
_NEVER = 1 << 62


class Wrong(Enum):
    """What can be wrong with a history."""

    LOST = "accepted and never received"
    UNKNOWN = "received and never sent"
    CAME_BACK = "received after its completion was confirmed"
    COPIED = "stored more than once, with nothing to excuse it"
    REPEATED = "delivered again though nobody let go of it"
    OUT_OF_ORDER = "received before a message of its key that was accepted earlier"
    MISNUMBERED = "numbered below a message of its key that was accepted earlier"
    ASTRAY = "in another fragment than the rest of its key"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, with the message it happened to."""

    wrong: Wrong
    message_id: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.message_id}: {self.wrong.value}{self.note and f' ({self.note})'}"


class Outcome(Enum):
    """What became of a delivery, as far as its receiver knows."""

    OPEN = "in hand"
    COMPLETED = "completed"
    # Given back, or its settlement failed so that nobody knows whether it counts.
    LET_GO = "let go"
    # The broker, or the client's clock, said that its lock had ended: perhaps long before, while
    # it waited in a buffer of the client.
    LOCK_LOST = "its lock lost"


@dataclass(slots=True)
class Delivery:
    """A message in a receiver's hand. Places are positions in the order of events."""

    at: int
    receiver: str
    sequence_number: int
    delivery_count: int
    outcome: Outcome = Outcome.OPEN
    ended_at: int = _NEVER


@dataclass(slots=True)
class Life:
    """All that was seen of one message."""

    message_id: str
    key: str | None = None
    sending_at: int = _NEVER
    accepted_at: int = _NEVER
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def held(self) -> list[Delivery]:
        """The deliveries whose lock is not known to have been lost."""
        return [each for each in self.deliveries if each.outcome != Outcome.LOCK_LOST]

    def story(self) -> str:
        """What happened to the message, in order, for who has to find out why."""
        events = [(self.sending_at, "sending"), (self.accepted_at, "accepted")]
        for each in self.deliveries:
            number = f"{each.sequence_number:#x}, count {each.delivery_count}"
            events.append((each.at, f"to {each.receiver} as {number}"))
            events.append((each.ended_at, f"{each.outcome.value} by {each.receiver}"))
        return "; ".join(f"{at}: {what}" for at, what in sorted(events) if at < _NEVER)


class Record:
    """What clients did, in the order in which it happened. May be written from many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        # How many events there were; the place of the last one.
        self.now = 0
        self.lives: dict[str, Life] = {}
        self._missing: set[str] = set()
        # Begin and end of each disturbance; one that has not ended ends never.
        self.disturbances: list[tuple[int, int]] = []

    @contextmanager
    def _event(self, message_id: str) -> Iterator[tuple[int, Life]]:
        with self._mutex:
            self.now += 1
            life = self.lives.get(message_id)
            if life is None:
                life = self.lives[message_id] = Life(message_id)
            yield self.now, life

    def sending(self, message_id: str, key: str | None = None) -> None:
        """The message is about to be sent. Write it down before the call."""
        with self._event(message_id) as (now, life):
            life.key = key
            life.sending_at = min(life.sending_at, now)

    def accepted(self, message_id: str) -> None:
        """The broker said that it has the message. A send that failed is simply not accepted."""
        with self._event(message_id) as (now, life):
            life.accepted_at = min(life.accepted_at, now)
            if not life.deliveries:
                self._missing.add(message_id)

    def received(
        self, receiver: str, message_id: str, sequence_number: int, delivery_count: int = 0
    ) -> Delivery:
        """A receiver got the message; tell what becomes of the delivery by one of the next."""
        with self._event(message_id) as (now, life):
            delivery = Delivery(now, receiver, sequence_number, delivery_count)
            life.deliveries.append(delivery)
            self._missing.discard(message_id)
            return delivery

    def completed(self, delivery: Delivery) -> None:
        """The broker confirmed the completion (or the message was received-and-deleted)."""
        self._ended(delivery, Outcome.COMPLETED)

    def let_go(self, delivery: Delivery) -> None:
        """The receiver gave the message back, or does not know whether its settlement counts."""
        self._ended(delivery, Outcome.LET_GO)

    def lock_lost(self, delivery: Delivery) -> None:
        """The receiver was told that its lock had ended."""
        self._ended(delivery, Outcome.LOCK_LOST)

    def _ended(self, delivery: Delivery, outcome: Outcome) -> None:
        with self._mutex:
            self.now += 1
            if delivery.outcome == Outcome.OPEN:
                delivery.outcome, delivery.ended_at = outcome, self.now

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """Something is done to the broker or to a receiver from here to there."""
        with self._mutex:
            self.now += 1
            place = len(self.disturbances)
            begin = self.now
            self.disturbances.append((begin, _NEVER))
        try:
            yield
        finally:
            with self._mutex:
                self.now += 1
                self.disturbances[place] = (begin, self.now)

    def disturbed_between(self, begin: int, end: int) -> bool:
        """Whether a disturbance overlaps this stretch of the history."""
        return any(start <= end and begin <= stop for start, stop in self.disturbances)

    def missing(self) -> set[str]:
        """Accepted and not received so far: what a drain still has to wait for."""
        with self._mutex:
            return set(self._missing)

    def faults(self, *, drained: bool = True) -> list[Fault]:
        """All that is wrong. Before the queue was drained, nothing can be called lost."""
        with self._mutex:
            lives = sorted(self.lives.values(), key=lambda life: life.sending_at)
            found = [fault for life in lives for fault in self._of_one(life, drained)]
            by_key: dict[str, list[Life]] = {}
            for life in lives:
                if life.key is not None and life.deliveries:
                    by_key.setdefault(life.key, []).append(life)
            for key, members in by_key.items():
                found += self._of_key(key, members)
        return found

    # The rules for one message ----------------------------------------------------------------

    def _of_one(self, life: Life, drained: bool) -> Iterator[Fault]:
        sent = life.sending_at < _NEVER
        if not sent:
            yield Fault(Wrong.UNKNOWN, life.message_id)
        if drained and life.accepted_at < _NEVER and not life.deliveries:
            yield Fault(Wrong.LOST, life.message_id)
        copies = sorted({delivery.sequence_number for delivery in life.deliveries})
        # A send may have been made twice, by the client or by the broker, if something happened
        # while it was under way: at least once is what is promised then.
        copied = sent and len(copies) > 1
        if copied and not self.disturbed_between(life.sending_at, life.accepted_at):
            yield Fault(Wrong.COPIED, life.message_id, f"as {copies}")
        for copy in copies:
            yield from self._of_copy(life, copy, drained)

    def _of_copy(self, life: Life, sequence_number: int, drained: bool) -> Iterator[Fault]:
        deliveries = [each for each in life.deliveries if each.sequence_number == sequence_number]
        completed = [each for each in deliveries if each.outcome == Outcome.COMPLETED]
        if len(completed) > 1:
            yield Fault(Wrong.CAME_BACK, life.message_id, life.story())
            return
        locks_ended = any(each.delivery_count for each in deliveries)
        earlier: Delivery | None = None
        for delivery in deliveries:
            if delivery.outcome == Outcome.OPEN and not drained:
                # Whether its lock held shows when its receiver settles it.
                continue
            if delivery.outcome != Outcome.COMPLETED and (
                locks_ended or self.disturbed_between(life.sending_at, delivery.at)
            ):
                # It may have waited in its client since before its lock ended.
                continue
            if completed and delivery.at > completed[0].ended_at:
                yield Fault(Wrong.CAME_BACK, life.message_id, life.story())
            elif earlier is not None and not self._was_let_go(earlier, delivery.at):
                yield Fault(Wrong.REPEATED, life.message_id, life.story())
            earlier = delivery

    def _was_let_go(self, delivery: Delivery, until: int) -> bool:
        given_up = delivery.outcome == Outcome.LET_GO and delivery.ended_at <= until
        return given_up or self.disturbed_between(delivery.at, until)

    # The rules for the messages of one key ------------------------------------------------------

    def _of_key(self, key: str, members: list[Life]) -> Iterator[Fault]:
        home = members[0].deliveries[0].sequence_number >> PARTITION_SHIFT
        for life in members:
            if any(each.sequence_number >> PARTITION_SHIFT != home for each in life.deliveries):
                yield Fault(Wrong.ASTRAY, life.message_id, f"key {key}")
        yield from _inversions(members, _number, Wrong.MISNUMBERED, lambda early, late: False)
        for receiver in sorted({each.receiver for life in members for each in life.held}):
            own = [life for life in members if life.held and life.held[0].receiver == receiver]
            yield from _inversions(own, _first_place, Wrong.OUT_OF_ORDER, self._excused)

    def _excused(self, early: Life, late: Life) -> bool:
        """Whether the earlier message may come after the later one.

        It may if it had been handed out before and did not arrive: then its delivery was counted,
        or something happened between the two.
        """
        first = early.held[0]
        return first.delivery_count > 0 or self.disturbed_between(late.held[0].at, first.at)


def _number(life: Life) -> int:
    return min(delivery.sequence_number for delivery in life.deliveries)


def _first_place(life: Life) -> int:
    return life.held[0].at


def _inversions(
    members: list[Life],
    place: Callable[[Life], int],
    wrong: Wrong,
    excused: Callable[[Life, Life], bool],
) -> Iterator[Fault]:
    """Messages placed before one that was accepted before they were sent.

    Two sends that overlap have no order; otherwise the accepted one was first.
    """
    by_place = sorted(members, key=place)
    for at, late in enumerate(by_place):
        for early in by_place[at + 1 :]:
            if early.accepted_at < late.sending_at and not excused(early, late):
                yield Fault(wrong, late.message_id, f"before {early.message_id}")
