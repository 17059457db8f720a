"""The oracle: one fragment's queue, in plain lists, too simple to be wrong.

Says what a receiver may see after any history of sends, takes, settlements, commits and crashes.
It has no windows, files or timers and knows nothing of how the real one works. Every operation is
written down at once and becomes durable with the commit it went into; what a commit made visible
is seen when that has finished; a crash goes back to the last commit that held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from partibus.broker.settlement import Outcome


class Place(Enum):
    """Where a message is, as its receivers see it."""

    # Sent or given back, in an operation that is not durable yet.
    HIDDEN = "hidden"
    READY = "ready"
    LOCKED = "locked"
    DEFERRED = "deferred"


@dataclass(slots=True)
class Item:
    """One message of the model."""

    position: int
    body: bytes
    deliveries: int = 0
    place: Place = Place.HIDDEN
    token: bytes = b""
    until_ms: int = 0


@dataclass(slots=True)
class Snapshot:
    """All that a crash cannot take."""

    items: list[Item]
    dead: list[tuple[bytes, int]]
    next_position: int
    accepted: int
    completed: int
    discarded: int


class QueueModel:
    """A queue, and the dead letters that leave it."""

    def __init__(self, lock_ms: int, deliveries_max: int) -> None:
        self.lock_ms = lock_ms
        self.deliveries_max = deliveries_max
        self.items: list[Item] = []
        # Body and failed deliveries of each dead letter, in order of death.
        self.dead: list[tuple[bytes, int]] = []
        self.next_position = 1
        self.accepted = 0
        self.completed = 0
        self.discarded = 0
        self._committed = self._snapshot()
        self._committing: tuple[Snapshot, list[Item]] | None = None
        self._hidden: list[Item] = []

    def send(self, bodies: list[bytes]) -> int:
        """Take messages in; returns the position of the first."""
        first = self.next_position
        for body in bodies:
            item = Item(self.next_position, body)
            self.items.append(item)
            self._hidden.append(item)
            self.next_position += 1
        self.accepted += len(bodies)
        return first

    def ready(self) -> list[Item]:
        """What may be taken now, in the order in which it must be."""
        found = [item for item in self.items if item.place is Place.READY]
        return sorted(found, key=lambda item: item.position)

    def taken(self, position: int, token: bytes, now_ms: int) -> None:
        """A receiver took this one."""
        item = next(item for item in self.items if item.position == position)
        assert item.place is Place.READY
        item.place, item.token, item.until_ms = Place.LOCKED, token, now_ms + self.lock_ms

    def holder(self, token: bytes, now_ms: int) -> Item | None:
        """What the token locks, if it still does."""
        for item in self.items:
            if item.place is Place.LOCKED and item.token == token and item.until_ms > now_ms:
                return item
        return None

    def renew(self, token: bytes, now_ms: int) -> bool:
        """Extend a lock; False where it was lost."""
        item = self.holder(token, now_ms)
        if item is not None:
            item.until_ms = now_ms + self.lock_ms
        return item is not None

    def settle(self, token: bytes, outcome: Outcome, now_ms: int) -> bool:
        """Settle by token; False where the lock was lost."""
        item = self.holder(token, now_ms)
        if item is None:
            return False
        if outcome is Outcome.COMPLETE:
            self.items.remove(item)
            self.completed += 1
        elif outcome is Outcome.RELEASE:
            item.place = Place.READY
        elif outcome is Outcome.DEAD_LETTER:
            self._bury(item)
        elif outcome is Outcome.DEFER:
            item.place = Place.DEFERRED
        else:
            self._failed(item)
        return True

    def discard(self, position: int) -> bool:
        """Remove a copy that nobody holds; False where somebody does, or did."""
        found = [item for item in self.ready() if item.position == position]
        for item in found:
            self.items.remove(item)
        self.discarded += len(found)
        return bool(found)

    def advance(self, now_ms: int) -> None:
        """Locks end by themselves, the earliest first."""
        ended = [i for i in self.items if i.place is Place.LOCKED and i.until_ms <= now_ms]
        for item in sorted(ended, key=lambda item: item.until_ms):
            self._failed(item)

    def _failed(self, item: Item) -> None:
        item.deliveries += 1
        if item.deliveries >= self.deliveries_max:
            self._bury(item)
        else:
            item.place = Place.HIDDEN
            self._hidden.append(item)

    def _bury(self, item: Item) -> None:
        self.items.remove(item)
        self.dead.append((item.body, item.deliveries))

    # Durability ---------------------------------------------------------------------------

    def commit_begins(self) -> None:
        """Everything so far goes to the disk."""
        assert self._committing is None
        self._committing = self._snapshot(), self._hidden
        self._hidden = []

    def commit_ends(self) -> None:
        """It is durable."""
        assert self._committing is not None
        self._committed, shown = self._committing
        self._committing = None
        for item in shown:
            item.place = Place.READY

    def crash(self, *, keeps: bool) -> None:
        """Everything that was not durable is lost; `keeps`: a commit under way held after all."""
        if keeps and self._committing is not None:
            self._committed = self._committing[0]
        self._committing = None
        self._hidden = []
        held = self._committed
        self.items = [replace(item) for item in held.items]
        self.dead = list(held.dead)
        self.next_position = held.next_position
        self.accepted, self.completed = held.accepted, held.completed
        self.discarded = held.discarded

    def _snapshot(self) -> Snapshot:
        # Locks are not durable: whatever was not deferred is ready after a crash.
        kept = [
            replace(item, place=item.place if item.place is Place.DEFERRED else Place.READY)
            for item in self.items
        ]
        return Snapshot(
            kept,
            list(self.dead),
            self.next_position,
            self.accepted,
            self.completed,
            self.discarded,
        )
