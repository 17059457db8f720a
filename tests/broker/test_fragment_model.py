"""A fragment agrees with a queue of plain lists, whatever happens in whatever order.

Commits finish late, crashes lose what was staged, heads are left to the disk and read again.
"""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from partibus.broker import window as window_module
from partibus.broker.descriptions import QueueDescription
from partibus.broker.fragment import PARTITION_SHIFT, Fragment
from partibus.broker.records import Changes, Counters, Entry, FragmentKey, SubQueue
from partibus.broker.settlement import Outcome, Settlement
from partibus.broker.window import ENTRY_OVERHEAD_BYTES
from partibus.store.memory import MemoryStore
from partibus.testing.messages import incoming, read
from partibus.testing.model import Place, QueueModel
from partibus.wire.codec import encode

LOCK_MS = 1000
DELIVERIES_MAX = 3
PARTITION = 5
QUEUE = QueueDescription("q", lock_ms=LOCK_MS, max_delivery_count=DELIVERIES_MAX)
MAIN = FragmentKey(7, 1, PARTITION, SubQueue.ACTIVE)
DEAD = MAIN._replace(subqueue=SubQueue.DEAD_LETTER)
LOAD_MESSAGES = 4
LOAD_BYTES = 2000


class FragmentAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(window_module, "WINDOW_MESSAGES_MAX", 6)
        self.patch.setattr(window_module, "WINDOW_MESSAGES_LOW", 3)
        self.patch.setattr(window_module, "WINDOW_BYTES_MAX", 6 * ENTRY_OVERHEAD_BYTES)
        self.patch.setattr(window_module, "WINDOW_BYTES_LOW", 3 * ENTRY_OVERHEAD_BYTES)
        self.entropy = Random(1).randbytes
        self.numbers = itertools.count()
        self.now_ms = 1_000
        self.store = MemoryStore()
        self.model = QueueModel(LOCK_MS, DELIVERIES_MAX)
        self.tokens: list[bytes] = []
        self.open()

    def teardown(self) -> None:
        try:
            self.everything_that_was_accepted_comes_out_in_order()
        finally:
            self.patch.undo()

    def open(self) -> None:
        self.in_flight: list[tuple[Fragment, Changes]] | None = None
        self.load: list[Entry] | None = None
        self.number = 1
        self.dead: Fragment | None = None
        self.main = self.fragment(MAIN, None)
        for summary in self.store.fragments():
            self.number = summary.number
            found = self.fragment(summary.key, summary.counters)
            if summary.key == MAIN:
                self.main = found
            else:
                self.dead = found
            self.number = max(self.number, summary.number) + 1

    def fragment(self, key: FragmentKey, counters: Counters | None) -> Fragment:
        return Fragment(key, self.number, 3, QUEUE, counters, self.dead_letters)

    def dead_letters(self) -> Fragment:
        if self.dead is None:
            self.number += 1
            self.dead = self.fragment(DEAD, None)
        return self.dead

    @initialize(count=st.integers(1, 12))
    def something_is_there(self, count: int) -> None:
        self.send(count, 100)
        self.commit()
        self.take(count)

    # What clients do ------------------------------------------------------------------------

    @rule(count=st.integers(1, 5), size=st.sampled_from([1, 100, 1500]))
    def send(self, count: int, size: int) -> None:
        bodies = [b"%06d" % next(self.numbers) + b"x" * size for _ in range(count)]
        first = self.main.send([incoming(body) for body in bodies], self.now_ms)
        assert first == self.model.send(bodies)

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        self.advance(0)
        taken = self.main.take(count, self.now_ms, self.entropy)
        ready = self.model.ready()
        assert [entry.position for entry in taken] == [
            item.position for item in ready[: len(taken)]
        ]
        if len(taken) < min(count, len(ready)):
            assert self.main.window.wants_more
        for entry, item in zip(taken, ready, strict=False):
            assert entry.sequence == PARTITION << PARTITION_SHIFT | item.position
            assert entry.deliveries == item.deliveries < DELIVERIES_MAX
            assert read(entry.bare).body == item.body
            assert entry.locked_until_ms == self.now_ms + LOCK_MS
            assert entry.token not in self.tokens
            self.model.taken(item.position, entry.token, self.now_ms)
            self.tokens.append(entry.token)

    @precondition(lambda self: self.tokens)
    @rule(
        data=st.data(),
        outcome=st.sampled_from([*Outcome, Outcome.ABANDON, Outcome.ABANDON]),
        modifies=st.booleans(),
    )
    def settle(self, data: st.DataObject, outcome: Outcome, modifies: bool) -> None:
        recent = self.tokens[-8:]
        tokens = data.draw(st.lists(st.sampled_from(recent), min_size=1, max_size=4, unique=True))
        properties = encode({"note": "x"}) if modifies else b""
        lost = self.main.settle(tokens, Settlement(outcome, properties=properties), self.now_ms)
        assert lost == [
            token for token in tokens if not self.model.settle(token, outcome, self.now_ms)
        ]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.tokens[-12:]))
        until_ms, lost = self.main.renew([token], self.now_ms)
        assert (lost == []) == self.model.renew(token, self.now_ms)
        assert until_ms == self.now_ms + LOCK_MS

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        recent = range(max(1, self.model.next_position - 6), self.model.next_position)
        held = {item.position for item in self.model.items if item.place is Place.HIDDEN}
        positions = [at for at in recent if at not in held and data.draw(st.booleans())]
        if positions and not self.main.window.has_gap:
            found = self.main.discard(positions)
            assert found == sum(self.model.discard(position) for position in positions)

    # What time and the disk do ------------------------------------------------------------------

    @rule(ms=st.integers(0, 700))
    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.main.advance(self.now_ms)
        self.model.advance(self.now_ms)
        locked = [item for item in self.model.items if item.place is Place.LOCKED]
        deadline = self.main.next_deadline_ms()
        if locked:
            assert deadline is not None
            assert deadline <= min(item.until_ms for item in locked)

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def commit_begins(self) -> None:
        fragments = [each for each in (self.main, self.dead) if each is not None and each.dirty]
        self.in_flight = [(each, each.take_changes()) for each in fragments]
        self.model.commit_begins()

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def commit_ends(self) -> None:
        assert self.in_flight is not None
        batch, self.in_flight = self.in_flight, None
        self.store.commit([changes for _, changes in batch])
        # The disk answers in order: what was read before is here before this is.
        self.load_ends()
        for fragment, changes in batch:
            fragment.committed(changes)
        self.model.commit_ends()

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def commit(self) -> None:
        self.commit_begins()
        self.commit_ends()

    @precondition(lambda self: self.load is None and self.main.window.wants_more)
    @rule()
    def load_begins(self) -> None:
        after = self.main.window.gap_from
        self.load = self.store.scan(self.main.number, after, LOAD_MESSAGES, LOAD_BYTES)

    @rule()
    def load_ends(self) -> None:
        if self.load is not None:
            found, self.load = self.load, None
            size = sum(entry.size for entry in found)
            complete = len(found) < LOAD_MESSAGES and size < LOAD_BYTES
            self.main.loaded(found, complete)

    @precondition(lambda self: self.load is None)
    @rule()
    def evict(self) -> None:
        self.main.window.evict()

    @precondition(lambda self: self.in_flight is not None or self.model.next_position > 20)
    @rule(keeps=st.booleans())
    def crash(self, keeps: bool) -> None:
        if self.in_flight is not None and keeps:
            self.store.commit([changes for _, changes in self.in_flight])
        self.model.crash(keeps=keeps)
        self.open()
        self.tokens.clear()

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def the_counters_add_up(self) -> None:
        live = [self.main.counters] + ([self.dead.counters] if self.dead else [])
        for counters in live + [summary.counters for summary in self.store.fragments()]:
            left = counters.completed + counters.dead_lettered + counters.expired
            left += counters.forwarded + counters.discarded
            present = counters.active + counters.deferred + counters.scheduled
            assert counters.accepted == left + present

    @invariant()
    def the_counters_are_the_models(self) -> None:
        counters, model = self.main.counters, self.model
        deferred = sum(item.place is Place.DEFERRED for item in model.items)
        assert counters.next_position == model.next_position
        assert counters.accepted == model.accepted
        assert counters.completed == model.completed
        assert counters.discarded == model.discarded
        assert counters.dead_lettered == len(model.dead)
        assert counters.deferred == deferred
        assert counters.active == len(model.items) - deferred

    def everything_that_was_accepted_comes_out_in_order(self) -> None:
        self.settle_down()
        self.advance(LOCK_MS)
        self.settle_down()
        assert self.main.counters.bytes == sum(
            entry.size for entry in self.store.find(self.main.number, list(range(1, 10_000)))
        )
        while self.model.ready():
            before = len(self.model.ready())
            self.take(6)
            if len(self.model.ready()) == before:
                self.load_begins()
                self.load_ends()
        dead = self.store.scan(self.dead.number, 0, 10_000, 1 << 40) if self.dead else []
        assert sorted(read(entry.bare).body for entry in dead) == sorted(
            body for body, _ in self.model.dead
        )
        assert [entry.position for entry in dead] == list(range(1, len(dead) + 1))

    def settle_down(self) -> None:
        for _ in range(2):
            if self.in_flight is None:
                self.commit_begins()
            self.commit_ends()


TestFragmentAgainstModel = FragmentAgainstModel.TestCase
TestFragmentAgainstModel.settings = settings(max_examples=100, stateful_step_count=50)
