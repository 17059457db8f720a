"""Hands the messages of an entity's fragments on this node to those who wait for them.

Credit is served in order of arrival, in runs; fragments with something ready take turns. Receivers
of this node and of others look the same from here. Nothing is decided about a message: its
fragment locks it, and the receiver settles it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from partibus.broker.fragment import Fragment
from partibus.broker.records import Entry
from partibus.runtime.driver import Driver
from partibus.runtime.rendering import bare_of
from partibus.runtime.requests import Delivered
from partibus.wire.sections import delivery

# How many messages one receiver gets from one fragment before the next has its turn.
RUN_MAX = 64


class Origin(Protocol):
    """Where a subscription came from: this node's gateway, or another's over the hop."""

    def push(self, subscription: int, messages: list[Delivered]) -> None:
        """Hand over messages; they are locked already. None of them: that is all."""


class Subscriber:
    """One receiver's standing request at this node."""

    __slots__ = ("delivered", "drained", "limit", "number", "origin", "waiting")

    def __init__(self, number: int, origin: Origin) -> None:
        self.number = number
        self.origin = origin
        self.limit = 0
        self.delivered = 0
        self.waiting = False
        # To be called once what is there has been given; then the credit is forgotten.
        self.drained: Callable[[int], None] | None = None


class Dispenser:
    """Fragments with something ready on one side, receivers with credit on the other."""

    def __init__(
        self, now_ms: Callable[[], int], entropy: Callable[[int], bytes], empty: Callable[[], None]
    ) -> None:
        self._now_ms = now_ms
        self._entropy = entropy
        self._empty = empty
        self._ready: deque[tuple[Driver, Fragment]] = deque()
        self._is_ready: set[Fragment] = set()
        self._waiting: deque[Subscriber] = deque()
        self.subscribers: set[Subscriber] = set()
        self._draining: set[Subscriber] = set()
        self._loading: set[Fragment] = set()
        # Those who gave credit and do not know yet that there is nothing for it.
        self._untold: dict[Subscriber, None] = {}
        self._pumping = False

    # Receivers ------------------------------------------------------------------------------

    def join(self, subscriber: Subscriber) -> None:
        """A receiver is there; it gets nothing before it gives credit."""
        self.subscribers.add(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """A receiver is gone."""
        self.subscribers.discard(subscriber)
        self._draining.discard(subscriber)
        self._untold.pop(subscriber, None)
        if subscriber.waiting:
            self._waiting.remove(subscriber)
        if not self.subscribers:
            self._empty()

    def credit(self, subscriber: Subscriber, limit: int) -> None:
        """The receiver takes messages up to this total."""
        subscriber.limit = limit
        if limit > subscriber.delivered:
            self._untold[subscriber] = None
            if not subscriber.waiting:
                subscriber.waiting = True
                self._waiting.append(subscriber)
        self.pump()

    def drain(self, subscriber: Subscriber, drained: Callable[[int], None]) -> None:
        """Give what is there, then answer with the total given."""
        subscriber.drained = drained
        self._draining.add(subscriber)
        self.pump()

    # Fragments ------------------------------------------------------------------------------

    def shown(self, driver: Driver, fragment: Fragment) -> None:
        """The fragment may have something ready."""
        self._loading.discard(fragment)
        if fragment not in self._is_ready:
            self._is_ready.add(fragment)
            self._ready.append((driver, fragment))
        self.pump()

    def lost(self, driver: Driver) -> None:
        """The driver's fragments are gone."""
        gone = set(driver.fragments.values())
        self._withdraw(lambda fragment: fragment in gone)

    def withdraw(self, entity: int, partition: int) -> None:
        """A fragment is taken out of service."""
        self._withdraw(lambda f: f.key.entity == entity and f.key.partition == partition)

    def _withdraw(self, is_gone: Callable[[Fragment], bool]) -> None:
        # In place: a receiver that is being served may be the one who asks for this.
        kept = [pair for pair in self._ready if not is_gone(pair[1])]
        self._ready.clear()
        self._ready.extend(kept)
        self._is_ready = {fragment for _, fragment in kept}
        self._loading = {fragment for fragment in self._loading if not is_gone(fragment)}
        self.pump()

    # The meeting ----------------------------------------------------------------------------

    def pump(self) -> None:
        """Serve until there is nothing ready or nobody waiting."""
        if self._pumping:
            # A receiver answered by asking for more; the loop below sees it.
            return
        self._pumping = True
        try:
            self._serve()
        finally:
            self._pumping = False
        if self._loading:
            return
        if self._untold and not self._ready:
            self._say_empty()
        if self._draining:
            self._answer_drains()

    def _serve(self) -> None:
        waiting, ready = self._waiting, self._ready
        congested = 0
        while waiting and len(ready) > congested:
            driver, fragment = ready[0]
            if driver.congested:
                # It is shown again when that is over.
                congested += 1
                ready.rotate(-1)
                continue
            congested = 0
            subscriber = waiting.popleft()
            wanted = min(subscriber.limit - subscriber.delivered, RUN_MAX)
            if wanted <= 0:
                subscriber.waiting = False
                continue
            entries = fragment.take(wanted, self._now_ms(), self._entropy)
            driver.taken(fragment)
            if len(entries) < wanted:
                ready.popleft()
                self._is_ready.discard(fragment)
                if driver.loading(fragment):
                    self._loading.add(fragment)
            else:
                ready.rotate(-1)
            if entries:
                driver.watch(fragment)
                subscriber.delivered += len(entries)
            if subscriber.limit > subscriber.delivered:
                # A receiver that got nothing keeps its place.
                (waiting.append if entries else waiting.appendleft)(subscriber)
            else:
                subscriber.waiting = False
            if entries:
                subscriber.origin.push(subscriber.number, as_delivered(fragment, entries))

    def _say_empty(self) -> None:
        """Who waits in vain may want to ask elsewhere."""
        untold, self._untold = self._untold, {}
        for subscriber in untold:
            if subscriber.limit > subscriber.delivered:
                subscriber.origin.push(subscriber.number, [])

    def _answer_drains(self) -> None:
        draining, self._draining = self._draining, set()
        for subscriber in draining:
            subscriber.limit = subscriber.delivered
            drained, subscriber.drained = subscriber.drained, None
            if drained is not None:
                drained(subscriber.delivered)


def as_delivered(fragment: Fragment, entries: list[Entry]) -> list[Delivered]:
    """The entries as they are handed over, with what the broker says of them."""
    partition = fragment.key.partition
    partition_id = partition if partition else None
    return [
        Delivered(
            entry.token,
            delivery(
                bare_of(entry) if entry.expires_ms else entry.bare,
                entry.kept,
                entry.kept_count,
                delivery_count=entry.deliveries,
                ttl_ms=entry.expires_ms - entry.enqueued_ms if entry.expires_ms else None,
                sequence_number=entry.sequence,
                enqueued_time_ms=entry.enqueued_ms,
                enqueue_sequence_number=entry.origin or entry.sequence,
                locked_until_ms=entry.locked_until_ms,
                lock_token=entry.token,
                partition_id=partition_id,
                dead_letter_source=entry.source,
            ),
        )
        for entry in entries
    ]
