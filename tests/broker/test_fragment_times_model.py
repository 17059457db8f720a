"""Scheduled, deferred and expiring messages agree with a dict, whatever happens in what order.

What is read from disk is answered late, commits finish late, crashes lose what was staged; still
no message is had twice, before its time or after it, and none is forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from partibus.broker import window as window_module
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import MessageNotFound
from partibus.broker.fragment import PARTITION_SHIFT, Fragment
from partibus.broker.records import Changes, Counters, Entry, FragmentKey, State, SubQueue
from partibus.broker.settlement import Outcome, Settlement
from partibus.store.memory import MemoryStore
from partibus.testing.messages import incoming, read

LOCK_MS = 500
DELIVERIES_MAX = 4
MAIN = FragmentKey(7, 1, 5, SubQueue.ACTIVE)
HIGH = 5 << PARTITION_SHIFT
PLENTY = 1 << 40
LOAD_MESSAGES = 4


@dataclass
class Item:
    """One message of the model."""

    body: bytes
    state: State
    ttl_ms: int
    expires_ms: int
    due_ms: int = 0
    deliveries: int = 0
    token: bytes = b""
    until_ms: int = 0
    # The commit after which the disk, and receivers, see it as it is.
    seen_after: int = 0


class TimesAgainstModel(RuleBasedStateMachine):
    dead_letters_expired = False

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(window_module, "WINDOW_MESSAGES_MAX", 5)
        self.patch.setattr(window_module, "WINDOW_MESSAGES_LOW", 3)
        self.queue = QueueDescription(
            "q",
            lock_ms=LOCK_MS,
            max_delivery_count=DELIVERIES_MAX,
            dead_letter_on_expiration=self.dead_letters_expired,
        )
        self.entropy = Random(1).randbytes
        self.bodies = (b"%06d" % number for number in itertools.count())
        self.now_ms = 1_000
        self.store = MemoryStore()
        # By position; `gone` counts what left, for whatever reason.
        self.items: dict[int, Item] = {}
        self.next = 1
        self.begun = self.ended = 0
        self.durable: tuple[dict[int, Item], int] = ({}, 1)
        self.open()

    def open(self) -> None:
        self.in_flight: list[tuple[Fragment, Changes]] | None = None
        self.in_flight_model = self.durable
        self.reads: list[Callable[[], None]] = []
        self.loading = False
        found = {summary.key: summary for summary in self.store.fragments()}
        summary = found.get(MAIN)
        self.main = self.fragment(MAIN, 1, summary.counters if summary else None)
        key = MAIN._replace(subqueue=SubQueue.DEAD_LETTER)
        summary = found.get(key)
        self.dead = self.fragment(key, 2, summary.counters if summary else None)

    def fragment(self, key: FragmentKey, number: int, counters: Counters | None) -> Fragment:
        return Fragment(key, number, 3, self.queue, counters, lambda: self.dead)

    # The model --------------------------------------------------------------------------------

    def is_seen(self, item: Item) -> bool:
        return item.seen_after <= self.ended

    def change(self, item: Item) -> None:
        """What happened to it just now goes with the next commit."""
        item.seen_after = self.begun + 1

    def is_over(self, item: Item) -> bool:
        return item.state == State.ACTIVE and 0 < item.expires_ms <= self.now_ms

    def removed(self, act: Callable[[], None]) -> list[int]:
        """The positions that the operation removes."""
        before = len(self.main._changes.removed) if self.main._changes else 0
        act()
        return self.main._changes.removed[before:] if self.main._changes else []

    def holder(self, token: bytes) -> int | None:
        for position, item in self.items.items():
            if item.token == token and item.until_ms > self.now_ms:
                return position
        return None

    def failed(self, position: int) -> None:
        item = self.items[position]
        item.token = b""
        item.deliveries += 1
        self.change(item)
        if item.deliveries >= DELIVERIES_MAX or self.is_over(item):
            del self.items[position]

    # What clients do ----------------------------------------------------------------------------

    @rule(
        looks=st.lists(
            st.tuples(st.sampled_from([0, 0, 300, 1500]), st.sampled_from([0, 0, 200, 900])),
            min_size=1,
            max_size=5,
        )
    )
    def send(self, looks: list[tuple[int, int]]) -> None:
        messages = []
        for ttl_ms, delay_ms in looks:
            message = incoming(body := next(self.bodies))
            message.ttl_ms, message.due_ms = ttl_ms, self.now_ms + delay_ms if delay_ms else 0
            messages.append(message)
            state = State.SCHEDULED if delay_ms else State.ACTIVE
            item = Item(body, state, ttl_ms, self.now_ms + ttl_ms if ttl_ms else 0)
            item.due_ms = message.due_ms
            self.items[self.next] = item
            self.next += 1
            self.change(item)
        self.main.send(messages, self.now_ms)

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        taken: list[Entry] = []
        expired = self.removed(
            lambda: taken.extend(self.main.take(count, self.now_ms, self.entropy))
        )
        self.expired(expired)
        before = 0
        for entry in taken:
            item = self.items[entry.position]
            assert item.state == State.ACTIVE
            assert not item.token
            assert self.is_seen(item)
            assert not self.is_over(item)
            assert entry.position > before
            before = entry.position
            self.hold(entry, item)

    def hold(self, entry: Entry, item: Item) -> None:
        assert read(entry.bare).body == item.body
        assert entry.deliveries == item.deliveries
        assert entry.expires_ms == item.expires_ms
        item.token, item.until_ms = entry.token, self.now_ms + LOCK_MS

    @rule(
        data=st.data(),
        outcome=st.sampled_from([*Outcome, Outcome.DEFER, Outcome.DEFER, Outcome.ABANDON]),
    )
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        held = sorted(item.token for item in self.items.values() if item.token)
        if not held:
            return
        token = data.draw(st.sampled_from(held))
        lost = self.main.settle([token], Settlement(outcome), self.now_ms)
        position = self.holder(token)
        assert (position is None) == (lost == [token])
        if position is None:
            return
        item = self.items[position]
        if outcome is Outcome.ABANDON:
            self.failed(position)
            return
        item.token = b""
        if outcome is Outcome.RELEASE:
            if self.is_over(item):
                del self.items[position]
        elif outcome is Outcome.DEFER:
            item.state = State.DEFERRED
            item.deliveries += 1
            self.change(item)
        else:
            del self.items[position]

    @rule(data=st.data(), delete=st.booleans(), cancel=st.booleans())
    def by_number(self, data: st.DataObject, delete: bool, cancel: bool) -> None:
        state = State.SCHEDULED if cancel else State.DEFERRED
        aside = [p for p, item in self.items.items() if item.state == state] + [self.next]
        wanted = data.draw(st.lists(st.sampled_from(aside), min_size=1, max_size=3, unique=True))
        stored = self.store.find_sequences(1, [HIGH | p for p in wanted])
        on_disk = {entry.position: entry for entry in stored}

        def answered() -> None:
            items = [self.items.get(p) for p in wanted]
            over = [
                p
                for p in wanted
                if not cancel
                and (item := self.items.get(p))
                and p in on_disk
                and on_disk[p].state == item.state == State.DEFERRED
                and self.is_seen(item)
                and not item.token
                and 0 < item.expires_ms <= self.now_ms
            ]
            free = all(
                item is not None
                and position in on_disk
                and on_disk[position].state == item.state == state
                and self.is_seen(item)
                and not item.token
                and position not in over
                for position, item in zip(wanted, items, strict=True)
            )
            for position in over:
                del self.items[position]
            sequences = [HIGH | p for p in wanted]
            if not free:
                with pytest.raises(MessageNotFound):
                    self.ask_by_number(sequences, stored, delete, cancel)
                return
            entries = self.ask_by_number(sequences, stored, delete, cancel)
            for position, item in zip(wanted, items, strict=True):
                assert item is not None
                if cancel or delete:
                    del self.items[position]
                else:
                    self.hold(next(e for e in entries if e.position == position), item)

        self.reads.append(answered)

    def ask_by_number(
        self, sequences: list[int], stored: list[Entry], delete: bool, cancel: bool
    ) -> list[Entry]:
        if cancel:
            self.main.cancel_scheduled(sequences, stored)
            return []
        return self.main.receive_deferred(
            sequences, stored, self.now_ms, self.entropy, delete=delete
        )

    # What time and the disk do -------------------------------------------------------------------

    @rule(ms=st.integers(0, 400))
    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.main.advance(self.now_ms)
        for position, item in list(self.items.items()):
            if item.token and item.until_ms <= self.now_ms:
                self.failed(position)

    @rule()
    def activate(self) -> None:
        stored = [e for e in self.store.browse(1, 0, 1000, PLENTY) if e.state == State.SCHEDULED]
        positions = [entry.position for entry in stored]

        def answered() -> None:
            self.main.activate(stored, self.now_ms)
            for position in positions:
                item = self.items.get(position)
                if item is None or item.state != State.SCHEDULED or item.due_ms > self.now_ms:
                    continue
                del self.items[position]
                item.state = State.ACTIVE
                item.expires_ms = self.now_ms + item.ttl_ms if item.ttl_ms else 0
                self.change(item)
                self.items[self.next] = item
                self.next += 1

        self.reads.append(answered)

    @rule(count=st.integers(1, 8))
    def expire(self, count: int) -> None:
        stored = [e for e in self.store.browse(1, 0, 1000, PLENTY) if e.expires_ms][:count]
        self.reads.append(lambda: self.expired(self.removed(lambda: self.sweep(stored))))

    def sweep(self, stored: list[Entry]) -> None:
        self.main.expire([e for e in stored if e.expires_ms <= self.now_ms], self.now_ms)

    def expired(self, positions: list[int]) -> None:
        assert len(set(positions)) == len(positions)
        for position in positions:
            item = self.items.pop(position)
            assert self.is_over(item)
            assert not item.token

    @precondition(lambda self: not self.loading and self.main.window.wants_more)
    @rule()
    def load(self) -> None:
        found = self.store.scan(1, self.main.window.gap_from, LOAD_MESSAGES, PLENTY)
        self.loading = True

        def answered() -> None:
            self.loading = False
            self.main.loaded(found, len(found) < LOAD_MESSAGES)

        self.reads.append(answered)

    @precondition(lambda self: not self.loading)
    @rule()
    def evict(self) -> None:
        self.main.window.evict()

    @rule()
    def answer_reads(self) -> None:
        reads, self.reads = self.reads, []
        for answered in reads:
            answered()

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def commit_begins(self) -> None:
        fragments = [each for each in (self.main, self.dead) if each.dirty]
        self.in_flight = [(each, each.take_changes()) for each in fragments]
        self.begun += 1
        self.in_flight_model = deepcopy(self.items), self.next

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def commit_ends(self) -> None:
        assert self.in_flight is not None
        batch, self.in_flight = self.in_flight, None
        self.store.commit([changes for _, changes in batch])
        # The disk answers in order: what was read before is here before this is.
        self.answer_reads()
        for fragment, changes in batch:
            fragment.committed(changes)
        self.ended = self.begun
        self.durable = self.in_flight_model

    @precondition(lambda self: self.in_flight is not None)
    @rule(keeps=st.booleans())
    def crash(self, keeps: bool) -> None:
        assert self.in_flight is not None
        if keeps:
            self.store.commit([changes for _, changes in self.in_flight])
            self.durable = self.in_flight_model
        self.begun = self.ended = self.begun + 1
        items, self.next = self.durable
        self.items = deepcopy(items)
        for item in self.items.values():
            item.token, item.seen_after = b"", 0
        self.open()

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def the_counters_are_the_models(self) -> None:
        counters = self.main.counters
        states = [item.state for item in self.items.values()]
        assert counters.next_position == self.next
        assert counters.active == states.count(State.ACTIVE)
        assert counters.deferred == states.count(State.DEFERRED)
        assert counters.scheduled == states.count(State.SCHEDULED)
        left = counters.completed + counters.dead_lettered + counters.expired + counters.discarded
        assert counters.accepted == left + len(self.items)

    def teardown(self) -> None:
        try:
            self.in_the_end_everything_is_where_the_model_has_it()
        finally:
            self.patch.undo()

    def in_the_end_everything_is_where_the_model_has_it(self) -> None:
        for _ in range(8):
            self.advance(LOCK_MS)
            self.activate()
            self.expire(1000)
            if self.main.window.wants_more and not self.loading:
                self.load()
            self.answer_reads()
            if self.in_flight is None:
                self.commit_begins()
            self.commit_ends()
        stored = self.store.browse(1, 0, 10_000, PLENTY)
        assert {e.position: read(e.bare).body for e in stored} == {
            position: item.body for position, item in self.items.items()
        }
        assert not any(item.state == State.SCHEDULED for item in self.items.values())
        assert not any(self.is_over(item) for item in self.items.values())
        assert self.main.counters.bytes == sum(entry.size for entry in stored)
        dead = self.store.browse(2, 0, 10_000, PLENTY)
        assert len(dead) == self.main.counters.dead_lettered == self.dead.counters.active


class ExpiredAreKeptAgainstModel(TimesAgainstModel):
    dead_letters_expired = True


TestTimesAgainstModel = TimesAgainstModel.TestCase
TestTimesAgainstModel.settings = settings(max_examples=100, stateful_step_count=50)
TestExpiredAreKeptAgainstModel = ExpiredAreKeptAgainstModel.TestCase
TestExpiredAreKeptAgainstModel.settings = settings(max_examples=40, stateful_step_count=50)
