"""Sessions of a fragment agree with plain lists, whatever happens in whatever order (T6).

Receivers come and go, locks end, commits finish late, crashes lose what was staged, and memory
holds so little that nearly everything is read from disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partibus.broker import sessions as sessions_module
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import SessionCannotBeLocked, SessionLockLost
from partibus.broker.fragment import Fragment
from partibus.broker.records import Changes, Counters, FragmentKey, Head, SubQueue
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.sessions import Session
from partibus.broker.settlement import Outcome, Settlement
from partibus.store.memory import MemoryStore
from partibus.testing.messages import incoming

LOCK_MS = 1000
DELIVERIES_MAX = 3
QUEUE = QueueDescription(
    "q", lock_ms=LOCK_MS, max_delivery_count=DELIVERIES_MAX, requires_session=True
)
MAIN = FragmentKey(7, 1, 0, SubQueue.ACTIVE)
DEAD = MAIN._replace(subqueue=SubQueue.DEAD_LETTER)
NAMES = "abcd"


@dataclass
class Item:
    """A message of the model: visible or not, delivered or not."""

    position: int
    session: str
    deliveries: int = 0
    is_visible: bool = False


@dataclass
class Model:
    """What is on disk, in the simplest words."""

    items: dict[int, Item] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    dead: int = 0

    def copy(self) -> Model:
        items = {at: replace(item, is_visible=True) for at, item in self.items.items()}
        return Model(items, dict(self.states), self.dead)


class SessionsAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sessions_module, "AVAILABLE_SESSIONS_MAX", 2)
        self.patch.setattr(sessions_module, "SESSION_MESSAGES_MAX", 2)
        self.entropy = Random(1).randbytes
        self.now_ms = 1000
        self.store = MemoryStore()
        self.model = Model()
        self.durable = Model()
        self.open()

    def teardown(self) -> None:
        try:
            self.everything_that_was_accepted_comes_out_in_order()
        finally:
            self.patch.undo()

    def open(self) -> None:
        self.in_flight: tuple[list[tuple[Fragment, Changes]], Model, list[Item]] | None = None
        self.reads: list[tuple[str, Any, Any]] = []
        self.hidden: list[Item] = []
        self.dead: Fragment | None = None
        self.number = 1
        # Who holds what: the session, the end of its lock, and what was delivered, by token.
        self.holders: dict[str, tuple[Session, dict[bytes, int]]] = {}
        counters = {summary.key: summary for summary in self.store.fragments()}
        main = counters.get(MAIN)
        self.main = self.make(MAIN, main.counters if main else None, main.number if main else 1)
        if DEAD in counters:
            self.dead = Fragment(
                DEAD, counters[DEAD].number, 3, QUEUE, counters[DEAD].counters, self.dead_letters
            )

    def make(self, key: FragmentKey, counters: Counters | None, number: int) -> SessionFragment:
        return SessionFragment(key, number, 3, QUEUE, counters, self.dead_letters)

    def dead_letters(self) -> Fragment:
        if self.dead is None:
            self.dead = Fragment(DEAD, 2, 3, QUEUE, None, self.dead_letters)
        return self.dead

    # What clients do ------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    def send(self, names: list[str]) -> None:
        first = self.main.send([incoming(b"x", session=name) for name in names], self.now_ms)
        for position, name in enumerate(names, first):
            item = self.model.items[position] = Item(position, name)
            self.hidden.append(item)

    @initialize(names=st.lists(st.sampled_from(NAMES), min_size=4, max_size=12))
    def something_is_there(self, names: list[str]) -> None:
        self.send(names)
        self.commit()

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), reads=st.booleans())
    def receive(self, name: str, count: int, reads: bool) -> None:
        """Accept, read and take, as a receiver does."""
        self.advance(0)
        if name not in self.holders:
            self.accept(name)
        session, _ = self.holders[name]
        if reads:
            self.read_messages(session, 2)
            self.reads_end()
        self.take_from(name, count)

    @rule(name=st.sampled_from(NAMES), left=st.integers(0, 1))
    def complete_and_go(self, name: str, left: int) -> None:
        """What a receiver does in the end; it may leave something undone."""
        self.advance(0)
        if name in self.holders:
            _, tokens = self.holders[name]
            for token in list(tokens)[left:]:
                self.settle_one(name, token, Outcome.COMPLETE)
            self.let_go(name)

    @rule(name=st.sampled_from(NAMES))
    def accept(self, name: str) -> None:
        self.advance(0)
        if name in self.holders:
            with pytest.raises(SessionCannotBeLocked):
                self.main.accept(name, object(), self.now_ms)
            return
        session = self.main.accept(name, self, self.now_ms)
        assert session.until_ms == self.now_ms + LOCK_MS
        self.holders[name] = session, {}

    @rule()
    def accept_next(self) -> None:
        """The oldest session to be had, where the disk need not be asked."""
        self.advance(0)
        sessions = self.main.sessions
        head = sessions.first
        if head is None:
            return
        assert head.session not in self.holders
        older = [i for i in self.ready() if i.position < head.position]
        # Whoever is passed over is held, or about to be let go, or behind the gap.
        for item in older:
            assert item.session in sessions.by_id or item.position > sessions.gap_from
        if Random(self.now_ms).random() < 0.3:
            assert sessions.offer() == head
            assert sessions.first != head
            sessions.put_back(head.session)
            assert sessions.first == head
        self.holders[head.session] = self.main.accept(head.session, self, self.now_ms), {}

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.integers(1, 4))
    def take(self, data: st.DataObject, count: int) -> None:
        self.take_from(data.draw(st.sampled_from(sorted(self.holders))), count)

    def take_from(self, name: str, count: int) -> None:
        session, tokens = self.holders[name]
        if session.until_ms <= self.now_ms:
            return
        taken = self.main.take_of(session, count, self.now_ms, self.entropy)
        ready = [item for item in self.ready() if item.session == name]
        assert [e.position for e in taken] == [i.position for i in ready[: len(taken)]]
        returning = [i for i in self.hidden + self.committing if i.session == name]
        if any(i.deliveries for i in returning):
            assert not taken, "what comes back goes first"
        for entry, item in zip(taken, ready, strict=False):
            assert entry.deliveries == item.deliveries < DELIVERIES_MAX
            tokens[entry.token] = entry.position
        if len(taken) < min(count, len(ready)):
            assert session.wants_more or session.is_loading or session.returning

    @precondition(lambda self: any(tokens for _, tokens in self.holders.values()))
    @rule(data=st.data(), outcome=st.sampled_from([*Outcome, Outcome.ABANDON]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        pairs = sorted((t, n) for n, (_, tokens) in self.holders.items() for t in tokens)
        token, name = data.draw(st.sampled_from(pairs))
        self.settle_one(name, token, outcome)

    def settle_one(self, name: str, token: bytes, outcome: Outcome) -> None:
        session, tokens = self.holders[name]
        lost = self.main.settle([token], Settlement(outcome), self.now_ms)
        if session.until_ms <= self.now_ms:
            assert lost == [token]
            return
        assert not lost
        item = self.model.items[tokens.pop(token)]
        if outcome is Outcome.ABANDON:
            self.failed(item)
        elif outcome is not Outcome.RELEASE:
            del self.model.items[item.position]
            self.model.dead += outcome is Outcome.DEAD_LETTER

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.let_go(data.draw(st.sampled_from(sorted(self.holders))))

    def let_go(self, name: str) -> None:
        session, tokens = self.holders.pop(name)
        if session.holder is self:
            self.main.release(session, self.now_ms)
        if tokens:
            assert self.main.settle(list(tokens), Settlement(Outcome.COMPLETE), self.now_ms)
        with pytest.raises(SessionLockLost):
            self.main.held(name, self, self.now_ms)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.holders)))
        session, _ = self.holders[name]
        if session.until_ms > self.now_ms:
            held = self.main.held(name, self, self.now_ms)
            assert self.main.renew_session(held, self.now_ms) == self.now_ms + LOCK_MS

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), state=st.sampled_from([None, b"", b"one", b"other"]))
    def set_state(self, data: st.DataObject, state: bytes | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.holders)))
        session, _ = self.holders[name]
        if session.until_ms <= self.now_ms:
            return
        if session.state_size is None:
            # As it is on disk; nothing is on its way where nobody has asked.
            if session.changes:
                return
            session.state_size = len(self.store.session_state(1, name) or b"")
        self.main.set_state(session, state, self.now_ms)
        self.model.states.pop(name, None)
        if state is not None:
            self.model.states[name] = state

    def failed(self, item: Item) -> None:
        item.deliveries += 1
        item.is_visible = False
        if item.deliveries >= DELIVERIES_MAX:
            del self.model.items[item.position]
            self.model.dead += 1
        else:
            self.hidden.append(item)

    # What time and the disk do --------------------------------------------------------------

    @rule(ms=st.integers(0, 700))
    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.main.advance(self.now_ms)
        over = [n for n, (session, _) in self.holders.items() if session.until_ms <= self.now_ms]
        assert len(self.main.take_dispossessed()) == len(over)
        for name in over:
            for position in self.holders.pop(name)[1].values():
                self.failed(self.model.items[position])
        if self.holders:
            deadline = self.main.next_deadline_ms()
            assert deadline is not None
            assert deadline <= min(session.until_ms for session, _ in self.holders.values())

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def commit_begins(self) -> None:
        dirty = [each for each in (self.main, self.dead) if each is not None and each.dirty]
        batch = [(each, each.take_changes()) for each in dirty]
        self.in_flight = batch, self.model.copy(), self.hidden
        self.hidden = []

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def commit_ends(self) -> None:
        assert self.in_flight is not None
        (batch, self.durable, shown), self.in_flight = self.in_flight, None
        self.store.commit([changes for _, changes in batch])
        # The disk answers in order: what was read before is here before this is.
        self.reads_end()
        for fragment, changes in batch:
            fragment.committed(changes)
        for item in shown:
            item.is_visible = True

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def commit(self) -> None:
        self.commit_begins()
        self.commit_ends()

    @property
    def committing(self) -> list[Item]:
        return self.in_flight[2] if self.in_flight is not None else []

    @precondition(lambda self: not any(kind == "heads" for kind, _, _ in self.reads))
    @rule(count=st.integers(1, 4))
    def heads_are_read(self, count: int) -> None:
        sessions = self.main.sessions
        if sessions.is_exhausted:
            after = sessions.gap_from
            self.reads.append(("heads", after, self.store.heads(1, after, count)))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.integers(1, 3))
    def messages_are_read(self, data: st.DataObject, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.holders)))
        self.read_messages(self.holders[name][0], count)

    def read_messages(self, session: Session, count: int) -> None:
        if session.wants_more:
            session.is_loading = True
            found = self.store.scan_session(1, session.id, session.read_to, count, 1 << 40)
            self.reads.append(("messages", session, (found, len(found) < count)))

    @rule()
    def reads_end(self) -> None:
        reads, self.reads = self.reads, []
        for kind, subject, found in reads:
            if kind == "heads":
                heads, last = found
                self.main.sessions.heads_read(heads, subject, last, complete=last == 0)
            else:
                self.main.messages_read(subject, *found, self.now_ms)

    @rule()
    def evict(self) -> None:
        self.main.window.evict()

    @precondition(lambda self: self.in_flight is not None)
    @rule(keeps=st.booleans())
    def crash(self, keeps: bool) -> None:
        assert self.in_flight is not None
        if keeps:
            self.store.commit([changes for _, changes in self.in_flight[0]])
            self.durable = self.in_flight[1]
        self.model = self.durable.copy()
        self.open()

    # What always holds ------------------------------------------------------------------------

    def ready(self) -> list[Item]:
        """What may be taken, in the order in which it must be."""
        taken = {at for _, tokens in self.holders.values() for at in tokens.values()}
        found = [i for i in self.model.items.values() if i.is_visible and i.position not in taken]
        return sorted(found, key=lambda item: item.position)

    @invariant()
    def memory_is_bounded(self) -> None:
        sessions = self.main.sessions
        assert len(sessions._heads) <= 2 + len(sessions._offered)
        assert sessions.bytes == sum(each.ready_bytes for each in sessions.by_id.values())
        assert len(sessions.by_id) <= len(NAMES)

    @invariant()
    def no_session_is_forgotten(self) -> None:
        sessions = self.main.sessions
        for item in self.ready():
            known = item.session in sessions.by_id or item.session in sessions._heads
            assert known or item.position > sessions.gap_from, item
            if not known:
                assert sessions.has_gap

    @invariant()
    def the_counters_add_up(self) -> None:
        counters = self.main.counters
        present = counters.active + counters.deferred + counters.scheduled
        assert counters.accepted == counters.completed + counters.dead_lettered + present
        assert counters.active == len(self.model.items)
        assert counters.dead_lettered == self.model.dead

    def everything_that_was_accepted_comes_out_in_order(self) -> None:
        for name in list(self.holders):
            session, _ = self.holders.pop(name)
            if session.holder is self:
                self.main.release(session, self.now_ms)
        for _ in range(2):
            if self.in_flight is None:
                self.commit_begins()
            self.commit_ends()
        expected = {name: [i.position for i in self.ready() if i.session == name] for name in NAMES}
        found: dict[str, list[int]] = {name: [] for name in NAMES}
        sessions = self.main.sessions
        while (head := self.next_head()) is not None:
            session = self.main.accept(head.session, self, self.now_ms)
            while True:
                if session.wants_more:
                    session.is_loading = True
                    more = self.store.scan_session(1, session.id, session.read_to, 2, 1 << 40)
                    self.main.messages_read(session, more, len(more) < 2, self.now_ms)
                taken = self.main.take_of(session, 2, self.now_ms, self.entropy)
                if not taken:
                    break
                found[session.id] += [entry.position for entry in taken]
                tokens = [entry.token for entry in taken]
                assert not self.main.settle(tokens, Settlement(Outcome.COMPLETE), self.now_ms)
                changes = self.main.take_changes()
                self.store.commit([changes])
                self.main.committed(changes)
            self.main.release(session, self.now_ms)
        assert found == expected
        assert sessions.bytes == 0
        states = {n: self.store.session_state(1, n) for n in NAMES}
        assert {n: state for n, state in states.items() if state is not None} == self.model.states
        size = sum(len(state) for state in self.model.states.values())
        deferred = self.store.find(self.main.number, list(range(1, 10_000)))
        assert self.main.counters.bytes == size + sum(entry.size for entry in deferred)

    def next_head(self) -> Head | None:
        sessions = self.main.sessions
        while sessions.is_exhausted:
            after = sessions.gap_from
            heads, last = self.store.heads(1, after, 3)
            sessions.heads_read(heads, after, last, complete=last == 0)
        return sessions.first


TestSessionsAgainstModel = SessionsAgainstModel.TestCase
TestSessionsAgainstModel.settings = settings(max_examples=150, stateful_step_count=50)
