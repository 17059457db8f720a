"""What a node can say of the entities in its stores: how much they hold, and when they were used.

Counts come from counters that are kept with every commit, so nothing is scanned. Adding up over
all nodes is in counting; what idleness leads to is in idleness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from partibus.broker.records import FragmentKey, SubQueue
from partibus.broker.topic_fragment import TopicFragment
from partibus.runtime.clock import Clock
from partibus.runtime.counting import EntityCounts, FragmentCounts, write_counts
from partibus.runtime.driver import Driver
from partibus.runtime.idleness import Uses
from partibus.runtime.requests import Count, LastUse, Reply


class Counted(Protocol):
    """The part of a host that is looked at here."""

    drivers: dict[int, Driver]
    # Fragments that an operator or a test has taken down.
    down: set[tuple[int, int]]

    def has_receivers(self, entity: int, incarnation: int) -> bool:
        """Whether somebody receives from an entity here."""


class Census:
    """Answers for the stores of one node."""

    def __init__(self, host: Counted, clock: Clock, uses: Uses) -> None:
        self._host = host
        self._clock = clock
        self._uses = uses

    def answer(self, request: LastUse | Count) -> Reply:
        """What was asked for."""
        if isinstance(request, Count):
            return Reply(content=write_counts([self._count(*each) for each in request.lives]))
        self._note_use(request.entity, request.incarnation)
        return Reply(number=self._uses.last_ms(request.entity))

    def _note_use(self, entity: int, incarnation: int) -> None:
        """It is used now, where somebody receives or a message is scheduled."""
        drivers = self._host.drivers.values()
        fragments = (each for driver in drivers for each in driver.fragments.values())
        life = (entity, incarnation)
        if self._host.has_receivers(entity, incarnation) or any(
            each.key[:2] == life and each.counters.scheduled for each in fragments
        ):
            self._uses.used(entity, self._clock.now_ms())

    def _count(self, entity: int, incarnation: int, places: list[tuple[int, int]]) -> EntityCounts:
        if self._host.has_receivers(entity, incarnation):
            self._uses.used(entity, self._clock.now_ms())
        found = []
        for partition, store in places:
            driver = self._host.drivers.get(store)
            if driver is not None:
                is_up = driver.up and (entity, partition) not in self._host.down
                key = FragmentKey(entity, incarnation, partition, SubQueue.ACTIVE)
                found.append(_counts(driver, key) if is_up else FragmentCounts(partition))
        return EntityCounts(found, self._uses.known_ms(entity))


def _counts(driver: Driver, key: FragmentKey) -> FragmentCounts:
    by_subqueue: Mapping[SubQueue, FragmentKey] = {
        each: FragmentKey(key.entity, key.incarnation, key.partition, each) for each in SubQueue
    }
    found = {
        subqueue: fragment.counters
        for subqueue, each in by_subqueue.items()
        if (fragment := driver.fragments.get(each)) is not None
    }
    size = sum(each.bytes for each in found.values())
    whole = driver.fragments.get(key)
    if isinstance(whole, TopicFragment):
        # A topic holds what its subscriptions hold, in its quota and here.
        size += whole.held_bytes() - whole.counters.bytes
    active = found.get(SubQueue.ACTIVE)
    dead = found.get(SubQueue.DEAD_LETTER)
    leaving = found.get(SubQueue.TRANSFER)
    lost = found.get(SubQueue.TRANSFER_DEAD_LETTER)
    return FragmentCounts(
        key.partition,
        is_up=True,
        active=active.active if active else 0,
        deferred=active.deferred if active else 0,
        scheduled=active.scheduled if active else 0,
        dead_letters=dead.active + dead.deferred if dead else 0,
        transfer_dead_letters=lost.active + lost.deferred if lost else 0,
        transfers=leaving.active if leaving else 0,
        size=size,
    )
