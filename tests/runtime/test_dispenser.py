"""Fragments take turns, receivers are served in the order of their asking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.fragment import Fragment
from partibus.broker.records import FragmentKey
from partibus.runtime.clock import SystemClock
from partibus.runtime.dispenser import RUN_MAX, Dispenser, Subscriber
from partibus.runtime.driver import Driver
from partibus.runtime.gate import Gate
from partibus.runtime.requests import Delivered
from partibus.store.memory import MemoryStore
from partibus.testing.clock import ManualClock
from partibus.testing.loop import VirtualLoop, run
from partibus.testing.messages import incoming, read
from partibus.testing.world import Lane

QUEUE = QueueDescription("q")


class Hand:
    """A receiver that keeps what it gets."""

    def __init__(self, dispenser: Dispenser) -> None:
        self.got: list[bytes] = []
        self.drained: list[int] = []
        self._dispenser = dispenser
        self.subscriber = Subscriber(1, self)
        dispenser.join(self.subscriber)

    def push(self, subscription: int, messages: list[Delivered]) -> None:
        self.got += [read(message.payload).body for message in messages]

    def credit(self, limit: int) -> None:
        self._dispenser.credit(self.subscriber, limit)

    def drain(self) -> None:
        self._dispenser.drain(self.subscriber, self.drained.append)

    def runs(self) -> list[tuple[bytes, int]]:
        """What came, as (body, how many in a row)."""
        found: list[tuple[bytes, int]] = []
        for body in self.got:
            if found and found[-1][0] == body:
                found[-1] = body, found[-1][1] + 1
            else:
                found.append((body, 1))
        return found


class Silent:
    """Nobody else wants to know."""

    def shown(self, driver: Driver, fragment: Fragment) -> None: ...
    def wanted(self, fragment: Fragment) -> bool:
        return True

    def is_deleted(self, key: FragmentKey) -> bool:
        return False

    def lost(self, driver: Driver) -> None: ...


class Slow(Driver):
    """A driver whose disk is behind, when the test says so."""

    is_behind = False

    @property
    def congested(self) -> bool:
        return self.is_behind


@pytest.fixture
def dispenser() -> Dispenser:
    return Dispenser(ManualClock().now_ms, Random(1).randbytes, lambda: None)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def driver(loop: VirtualLoop) -> Slow:
    clock = SystemClock(loop, 0)
    lane = Lane(loop)
    return Slow(0, MemoryStore, lane, Gate(clock), clock, loop, lambda _: QUEUE, Silent())


def fragment(number: int, messages: int) -> Fragment:
    made = Fragment(FragmentKey(1, 1, number, 0), number, 0, QUEUE, None, lambda: made)
    made.send([incoming(b"%d" % number) for _ in range(messages)], 0)
    made.committed(made.take_changes())
    return made


def test_fragments_take_turns_in_runs(dispenser: Dispenser, loop: VirtualLoop) -> None:
    here = driver(loop)
    for number in (1, 2):
        dispenser.shown(here, fragment(number, 100))
    hand = Hand(dispenser)
    hand.credit(200)
    assert hand.runs() == [(b"1", RUN_MAX), (b"2", RUN_MAX), (b"1", 36), (b"2", 36)]


def test_receivers_are_served_in_the_order_of_asking(
    dispenser: Dispenser, loop: VirtualLoop
) -> None:
    first, second = Hand(dispenser), Hand(dispenser)
    first.credit(3)
    second.credit(3)
    dispenser.shown(driver(loop), fragment(1, 4))
    assert (len(first.got), len(second.got)) == (3, 1)


def test_credit_can_be_taken_back(dispenser: Dispenser, loop: VirtualLoop) -> None:
    hand = Hand(dispenser)
    hand.credit(10)
    hand.credit(2)
    dispenser.shown(driver(loop), fragment(1, 5))
    assert len(hand.got) == 2


def test_a_receiver_that_left_gets_nothing(dispenser: Dispenser, loop: VirtualLoop) -> None:
    hand, other = Hand(dispenser), Hand(dispenser)
    hand.credit(10)
    dispenser.leave(hand.subscriber)
    dispenser.shown(driver(loop), fragment(1, 5))
    assert hand.got == []
    other.credit(5)
    assert len(other.got) == 5


def test_a_drain_is_answered_with_the_total(dispenser: Dispenser, loop: VirtualLoop) -> None:
    hand = Hand(dispenser)
    dispenser.shown(driver(loop), fragment(1, 5))
    hand.credit(3)
    hand.credit(100)
    hand.drain()
    assert hand.drained == [5]
    dispenser.shown(driver(loop), fragment(2, 5))
    assert len(hand.got) == 5, "the rest of the credit is forgotten"


def test_a_store_that_is_behind_does_not_hold_up_the_others(
    dispenser: Dispenser, loop: VirtualLoop
) -> None:
    behind, fine = driver(loop), driver(loop)
    behind.is_behind = True
    for at, where in enumerate((behind, fine, behind)):
        dispenser.shown(where, fragment(at, 4 * RUN_MAX))
    hand = Hand(dispenser)
    hand.credit(1000)
    assert hand.runs() == [(b"1", 4 * RUN_MAX)]


def test_a_fragment_can_be_withdrawn_by_who_is_being_served(
    dispenser: Dispenser, loop: VirtualLoop
) -> None:
    here = driver(loop)
    for number in (1, 2):
        dispenser.shown(here, fragment(number, RUN_MAX + 1))

    class Careful(Hand):
        def push(self, subscription: int, messages: list[Delivered]) -> None:
            super().push(subscription, messages)
            dispenser.withdraw(1, 2)

    hand = Careful(dispenser)
    hand.credit(1000)
    assert hand.runs() == [(b"1", RUN_MAX + 1)]


def test_the_last_to_leave_closes_the_desk(tmp_path: Path) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        closed: list[bool] = []
        dispenser = Dispenser(lambda: 0, Random(1).randbytes, lambda: closed.append(True))
        hands = [Hand(dispenser) for _ in range(2)]
        for hand in hands:
            assert not closed
            dispenser.leave(hand.subscriber)
        assert closed
        await asyncio.sleep(0)

    run(scenario)
