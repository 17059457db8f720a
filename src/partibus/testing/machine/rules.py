"""The machine's frame: one queue of some kind, agreement after every step, and power cuts.

A rule does something to the real queue and to the model. Where the power fails in it, each
message is afterwards as it was before or as it should have become, and what belongs together (a
batch, a transaction) went the same way. What rules there are is in the files beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import xxhash
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from partibus.broker.descriptions import QueueDescription
from partibus.broker.durations import FOREVER_MS
from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.records import State
from partibus.broker.transactions import Transaction
from partibus.testing.disk import SimulatedDisk
from partibus.testing.machine.model import Message
from partibus.testing.machine.sessions import SessionModel
from partibus.testing.machine.stage import QUEUE, MakeDisks, PowerCut, Seen, Stage
from partibus.testing.session_door import SessionInbox
from partibus.testing.simulation import adds_up

# Spans end in the quiet part of a tick, also where one begins when another ends.
LOCK_MS = 47_000
QUEUE_TTL_MS = 44_000
DUPLICATE_WINDOW_MS = 46_000
TTLS_MS = (0, 0, 24_000, 84_000)
DELAYS_MS = (0, 0, 0, 5_000, 45_000)
DELIVERIES_MAX = 3
# Those that clients see; nothing is reserved for bulk readers here.
SEEN_STATES = (State.ACTIVE, State.DEFERRED, State.SCHEDULED)
TICKS = (1, 1, 1, 2, 4)

LOT = st.binary(min_size=4, max_size=4)

Bodies = Collection[bytes]
Method = TypeVar("Method", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Move:
    """Something that may happen: how often, when, and what is drawn for it."""

    weight: int
    when: Callable[[Any], object]
    draws: dict[str, st.SearchStrategy[Any]]


def move(
    weight: int, when: Callable[[Any], object] = lambda _: True, **draws: st.SearchStrategy[Any]
) -> Callable[[Method], Method]:
    """Make a method something that may happen.

    Not a rule of its own each: those are tried equally often, and time and power cuts would
    leave little room for work.
    """

    def mark(method: Method) -> Method:
        method.move = Move(weight, when, draws)  # type: ignore[attr-defined]
        return method

    return mark


class Frame(RuleBasedStateMachine):
    """What all rules need."""

    fragments = 1
    make_disks: MakeDisks = staticmethod(lambda _, count: [SimulatedDisk(n) for n in range(count)])
    stage: Stage | None = None

    @initialize(
        sessions=st.booleans(),
        duplicates=st.sampled_from((False, False, True)),
        buries=st.booleans(),
        ttl_ms=st.sampled_from((FOREVER_MS, FOREVER_MS, QUEUE_TTL_MS)),
    )
    def begin(self, sessions: bool, duplicates: bool, buries: bool, ttl_ms: int) -> None:
        """Make a queue of some kind."""
        queue = QueueDescription(
            QUEUE,
            lock_ms=LOCK_MS,
            max_delivery_count=DELIVERIES_MAX,
            default_ttl_ms=ttl_ms,
            dead_letter_on_expiration=buries,
            requires_session=sessions,
            requires_duplicate_detection=duplicates,
            duplicate_window_ms=DUPLICATE_WINDOW_MS,
            enable_partitioning=self.fragments > 1,
        )
        self.stage = Stage(queue, self.make_disks)
        self.queue = queue
        self.model = SessionModel(queue, self.fragments, self.real.now_ms)
        self.model.begin()
        self.sent = 0
        # Tokens that lock nothing any more.
        self.stale: list[bytes] = []
        self.inboxes: dict[str, SessionInbox] = {}
        self.transaction: Transaction | None = None
        # The highest number seen of each partition, and where keys were seen.
        self.highest: dict[int, int] = {}
        self.places: dict[str, int] = {}
        self.is_armed = False

    @property
    def real(self) -> Stage:
        """The real queue."""
        assert self.stage is not None
        return self.stage

    @property
    def has_sessions(self) -> bool:
        """Whether messages are received from sessions."""
        return self.queue.requires_session

    def teardown(self) -> None:
        """Put the world away."""
        if self.stage is not None:
            self.stage.close()

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One of all that may happen now."""
        moves = {name: getattr(self, name).move for name in dir(type(self)) if self.is_move(name)}
        names = [
            name for name, each in moves.items() if each.when(self) for _ in range(each.weight)
        ]
        # Drawn from the names themselves, a few would come again and again.
        name = names[xxhash.xxh32_intdigest(data.draw(LOT)) % len(names)]
        note(name)
        drawn = {key: data.draw(each, label=key) for key, each in moves[name].draws.items()}
        getattr(self, name)(data, **drawn)

    def is_move(self, name: str) -> bool:
        """Whether a method is something that may happen."""
        return hasattr(getattr(type(self), name, None), "move")

    # Time and power -------------------------------------------------------------------------------

    @move(6, ticks=st.sampled_from(TICKS))
    def tick(self, _: st.DataObject | None, ticks: int) -> None:
        """Time passes."""
        # What time does is not cut short here: only what clients do.
        self.real.disarm()
        self.is_armed = False
        held = {each.token for each in self.model.locked()}
        self.real.tick(ticks)
        self.model.advance(self.real.now_ms)
        self.stale += sorted(held - {each.token for each in self.model.locked()})
        for session in self.inboxes.keys() - self.model.held.keys():
            inbox = self.inboxes.pop(session)
            assert inbox.lost, f"nobody was told that {session} is lost"
            self.real.leave(inbox)

    @move(3, lambda self: not self.is_armed, keeps=st.booleans())
    def arm(self, _: st.DataObject, keeps: bool) -> None:
        """The power will fail in the next commit."""
        self.real.arm(keeps=keeps)
        self.is_armed = True

    @move(1, lambda self: not self.is_armed)
    def cut_power(self, _: st.DataObject) -> None:
        """The power fails while nothing happens."""
        self.real.cut_power()
        self.recover(self.model.copy(), ())

    @contextmanager
    def power(self, after: SessionModel, *groups: Bodies, sure: bool = True) -> Iterator[None]:
        """What is done in here may be cut short by the power; else the model becomes `after`.

        Not `sure`: how much of it is done, only the answer tells.
        """
        try:
            yield
        except PowerCut as cut:
            if cut.answered and sure:
                # What was answered is durable, whatever happened then.
                self.model = after.copy()
            self.recover(after, groups)
        else:
            self.stale += sorted(
                {each.token for each in self.model.locked()}
                - {each.token for each in after.locked()}
            )
            self.model = after

    def recover(self, after: SessionModel, groups: Collection[Bodies]) -> None:
        """The power is back: every message is as it was before, or as it was to become."""
        before = self.model
        self.is_armed = False
        self.stale += [each.token for each in before.locked()]
        before.crash()
        after.crash()
        self.inboxes.clear()
        self.transaction = None
        self.real.restart()
        seen = self.real.peek()
        # Of each message whose fate was open, whether it went on.
        went_on: dict[bytes, bool] = {}
        for body in before.messages.keys() | after.messages.keys():
            was, would = before.messages.get(body), after.messages.get(body)
            if was == would:
                continue
            is_before, is_after = (agrees(each, seen.get(body)) for each in (was, would))
            assert is_before or is_after, f"neither {was} nor {would} but {seen.get(body)}"
            if is_before != is_after:
                went_on[body] = is_after
            if is_after:
                before.messages.pop(body, None)
                if would is not None:
                    before.messages[body] = would
                    if was is None and before.name_of(would) in after.sighted:
                        before.sighted[before.name_of(would)] = after.sighted[before.name_of(would)]
        for group in groups:
            assert len({went_on[body] for body in group if body in went_on}) < 2, "torn apart"
        for session in before.states.keys() | after.states.keys():
            self.recover_state(before, after, session)

    def recover_state(self, before: SessionModel, after: SessionModel, session: str) -> None:
        """What a session keeps was kept or not."""
        kept, other = before.states.get(session), after.states.get(session)
        if kept != other:
            inbox = self.real.accept(session)
            state = self.real.ask_holder(inbox, inbox.receiver.get_state).content
            self.real.leave(inbox)
            assert state in (kept, other)
            before.set_state(session, state)

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def the_queue_is_what_the_model_says(self) -> None:
        """Everybody sees exactly what the model has."""
        if self.stage is None:
            return
        if self.real.is_late:
            self.tick(None, 1)
        seen = self.real.peek()
        assert seen.keys() == self.model.messages.keys()
        for body in sorted(seen, key=lambda each: seen[each].sequence):
            message = self.model.messages[body]
            assert agrees(message, seen[body]), f"{seen[body]} is not {message}"
            self.learn(message, seen[body].sequence)
        if self.has_sessions:
            assert self.real.sessions() == self.model.listed()
        self.the_counters_add_up()

    def the_counters_add_up(self) -> None:
        """What the fragments count is what there is."""
        counters = self.real.counters()
        assert all(adds_up(each) for _, each in counters)
        for dead in (False, True):
            mine = [each for each in self.model.messages.values() if each.is_dead == dead]
            for state in SEEN_STATES:
                name = state.name.lower()
                real = sum(getattr(each, name) for is_dead, each in counters if is_dead == dead)
                assert real == sum(each.state == state for each in mine), name
        if not self.model.messages:
            kept = sum(len(each) for each in self.model.states.values())
            assert sum(each.bytes for _, each in counters) == kept

    def learn(self, message: Message, sequence: int) -> None:
        """Numbers rise within a partition, and a key has one partition."""
        if message.sequence:
            return
        partition = sequence >> PARTITION_SHIFT
        assert sequence > self.highest.get(partition, 0), "numbers go back"
        self.highest[partition] = message.sequence = sequence
        key = self.model.key_of(message)
        if key is not None:
            assert self.places.setdefault(key, partition) == partition, "a key has moved"


def agrees(message: Message | None, seen: Seen | None) -> bool:
    """Whether what is seen is the message, and as it should be."""
    if message is None or seen is None:
        return message is None and seen is None
    expected = Seen(
        message.body, message.sequence or seen.sequence, message.state, message.deliveries,
        message.is_dead, message.reason,
    )  # fmt: skip
    return replace(seen) == expected
