"""What clients of a queue do: send, schedule, receive, settle, defer, fetch by number, cancel."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from partibus.broker.errors import InvalidOperation, MessageNotFound, SessionLockLost
from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.message import Incoming
from partibus.broker.records import State
from partibus.broker.settlement import Outcome, Settlement
from partibus.testing.door import Got
from partibus.testing.machine.model import Message
from partibus.testing.machine.rules import DELAYS_MS, TTLS_MS, Frame, move
from partibus.testing.machine.sessions import SessionModel
from partibus.testing.messages import incoming

KEYS = (None, None, "a", "b", "c")
SESSIONS = ("s", "t", "u")
IDS = ("1", "2", "3")
REASON = "because"

# How a message is to look: key or session, id, time to live, delay.
Look = tuple[int, int, int, int]
LOOK = st.tuples(
    st.integers(0, 4),
    st.integers(0, 2),
    st.sampled_from(TTLS_MS),
    st.sampled_from(DELAYS_MS),
)
# Mostly of one key: such can be sent together.
BATCH = st.lists(LOOK, min_size=1, max_size=3)
COUNT = st.integers(1, 6)
SELDOM = st.sampled_from((False, False, False, True))


class PlainRules(Frame):
    """Rules for messages."""

    # Sending --------------------------------------------------------------------------------------

    def made(self, look: Look) -> Message:
        """A new message of this look."""
        key, message_id, ttl_ms, delay_ms = look
        self.sent += 1
        body = b"%04d" % self.sent
        name = IDS[message_id] if self.queue.requires_duplicate_detection else body.decode()
        message = Message(body, name, ttl_ms=ttl_ms)
        if self.has_sessions:
            message.session = SESSIONS[key % len(SESSIONS)]
        else:
            message.key = KEYS[key]
        message.due_ms = self.model.now_ms + delay_ms if delay_ms else 0
        return message

    def batch(self, looks: list[Look], *, mixed: bool) -> list[Message]:
        """Messages to be sent together, of one key or of several."""
        first = looks[0]
        return [self.made(each if mixed else (*first[:2], *each[2:])) for each in looks]

    @move(18, batches=st.lists(st.tuples(BATCH, st.booleans()), min_size=1, max_size=3))
    def send(self, _: st.DataObject, batches: list[tuple[list[Look], bool]]) -> None:
        """Send batches in one turn, some of which cannot be sent."""
        messages = [self.batch(looks, mixed=mixed) for looks, mixed in batches]
        after = self.model.copy()
        expected = [after.refuses(each) for each in messages]
        groups = [
            [] if refused else [each.body for each in batch]
            for batch, refused in zip(messages, expected, strict=True)
        ]
        wire = [[as_sent(each) for each in batch] for batch in messages]
        for batch, refused in zip(messages, expected, strict=True):
            if not refused:
                after.send(batch)
        with self.power(after, *groups):
            refusals = self.real.send(wire)
            assert [isinstance(each, InvalidOperation) for each in refusals] == expected
            assert all(each is None for each in refusals if not isinstance(each, InvalidOperation))

    @move(3, lambda self: self.has_sessions)
    def send_without_a_session(self, _: st.DataObject) -> None:
        """Every message needs one."""
        (refusal,) = self.real.send([[incoming(b"stray")]])
        assert isinstance(refusal, InvalidOperation)

    @move(6, looks=BATCH)
    def schedule(self, _: st.DataObject, looks: list[Look]) -> None:
        """Send by the operation that tells the numbers."""
        batch = self.batch(looks, mixed=False)
        wire = [as_sent(each) for each in batch]
        after = self.model.copy()
        new = after.send(batch)
        with self.power(after, [each.body for each in batch]):
            numbers = self.real.schedule(wire)
            assert len(numbers) == len(batch)
            told = dict(zip((each.body for each in batch), numbers, strict=True))
            for message in new:
                self.learn_number(message, told.pop(message.body))
            # What was dropped as a duplicate has no number.
            assert not any(number & ((1 << PARTITION_SHIFT) - 1) for number in told.values())

    def learn_number(self, message: Message, number: int) -> None:
        """The number that was told must be the one that is seen."""
        self.learn(message, number)

    @move(
        6,
        lambda self: self.model.aside(State.SCHEDULED),
        wrong=SELDOM,
    )
    def cancel(self, data: st.DataObject, wrong: bool) -> None:
        """Cancel scheduled messages: all that are named, or none."""
        chosen = some_of(data, self.model.aside(State.SCHEDULED))
        sequences = [each.sequence for each in chosen]
        if wrong:
            sequences.append(sequences[0] + 1000)
        after = self.model.copy()
        error = self.refusal_of(sequences)
        if wrong and error is None:
            error = MessageNotFound
        if error is None:
            for each in chosen:
                del after.messages[each.body]
        with self.power(after, [each.body for each in chosen]):
            self.expect(error, lambda: self.real.cancel(sequences))

    def refusal_of(self, sequences: list[int]) -> type[Exception] | None:
        """A request names messages of one partition."""
        partitions = {sequence >> PARTITION_SHIFT for sequence in sequences}
        return InvalidOperation if len(partitions) > 1 else None

    def expect(self, error: type[Exception] | None, work: Any) -> Any:
        """Do it; it must be refused so, or not at all."""
        if error is None:
            return work()
        try:
            result = work()
        except error:
            return []
        raise AssertionError(f"{result} instead of {error.__name__}")

    # Receiving ------------------------------------------------------------------------------------

    def receivable(self) -> list[bool]:
        """What has messages to be received without a session: the queue (False), its dead."""
        found = [False] if self.model.ready() and not self.has_sessions else []
        return [*found, True] if self.model.ready(dead=True) else found

    @move(24, lambda self: self.receivable(), count=COUNT, delete=SELDOM)
    def receive(self, data: st.DataObject, count: int, delete: bool) -> None:
        """Receive what is there, the oldest of each fragment first."""
        self.receive_from(data.draw(st.sampled_from(self.receivable())), count, delete)

    @move(3, lambda self: not self.model.ready(dead=True), delete=SELDOM)
    def receive_nothing(self, _: st.DataObject, delete: bool) -> None:
        """Receive where nothing is."""
        self.receive_from(True, 1, delete)

    def receive_from(self, dead: bool, count: int, delete: bool) -> None:
        """Receive from the queue, or its dead letters."""
        after = self.model.copy()
        ready = after.ready(dead=dead)
        if delete:
            # Until we know which: any of them.
            for each in ready:
                del after.messages[each.body]
        with self.power(after, sure=not delete):
            got = self.real.receive(count, dead=dead, delete=delete)
            assert len(got) == min(count, len(ready))
            taken = self.taken(ready, got)
            if not dead:
                self.in_order(ready, taken)
            if delete:
                after.messages |= {m.body: m for m in ready if m not in taken}
            else:
                self.hold(after, taken, got)

    def taken(self, ready: list[Message], got: list[Got]) -> list[Message]:
        """The messages that came, each as it should be."""
        by_body = {each.body: each for each in ready}
        assert len({each.body for each in got}) == len(got), "twice at once"
        for each in got:
            assert each.body in by_body, f"{each.body!r} is not to be had"
            assert each.read.deliveries == by_body[each.body].deliveries
            assert each.read.sequence == by_body[each.body].sequence
        return [by_body[each.body] for each in got]

    def in_order(self, ready: list[Message], taken: list[Message]) -> None:
        """Of each partition the first, in their order."""
        for partition in {each.sequence >> PARTITION_SHIFT for each in ready}:
            there = [each for each in ready if each.sequence >> PARTITION_SHIFT == partition]
            came = [each for each in taken if each.sequence >> PARTITION_SHIFT == partition]
            assert came == there[: len(came)], "out of order"

    @move(
        27,
        lambda self: self.model.locked() or self.stale,
        outcome=st.sampled_from(Outcome),
        old=SELDOM,
    )
    def settle(self, data: st.DataObject, outcome: Outcome, old: bool) -> None:
        """Settle what is held, and perhaps what is not any more."""
        after = self.model.copy()
        held = after.locked()
        dead = bool(held) and data.draw(st.sampled_from(held)).is_dead
        held = [each for each in held if each.is_dead == dead]
        chosen = some_of(data, held) if held else []
        # A queue that refuses to bury refuses all that is named with it.
        lost = self.stale[-1:] if old and outcome is not Outcome.DEAD_LETTER else []
        tokens = [each.token for each in chosen] + lost
        if not tokens:
            return
        if dead and chosen and outcome is Outcome.DEAD_LETTER:
            refused = self.real.settle([chosen[0].token], Settlement(outcome))
            assert isinstance(refused[chosen[0].token], InvalidOperation)
            return
        reason = REASON if outcome is Outcome.DEAD_LETTER else None
        for each in chosen:
            after.settle(each, outcome, reason)
        with self.power(after):
            refused = self.real.settle(tokens, Settlement(outcome, reason))
            assert sorted(refused) == sorted(lost)

    @move(6, lambda self: self.model.locked() or self.stale, old=SELDOM)
    def renew(self, data: st.DataObject, old: bool) -> None:
        """Renew locks on messages."""
        held = [each for each in self.model.locked() if each.until_ms]
        chosen = some_of(data, held) if held else []
        lost = self.stale[-1:] if old else []
        refused = self.real.renew([each.token for each in chosen] + lost)
        assert sorted(refused) == sorted(lost)
        for each in chosen:
            each.until_ms = self.model.now_ms + self.queue.lock_ms

    @move(3, lambda self: self.fragments == 1 and not self.has_sessions, count=st.integers(1, 4))
    def delete(self, _: st.DataObject, count: int) -> None:
        """Delete the oldest of what nobody holds."""
        after = self.model.copy()
        ready = after.ready()
        for each in ready:
            del after.messages[each.body]
        with self.power(after, sure=False):
            deleted = self.real.delete(count)
            assert deleted <= count
            assert bool(deleted) == bool(ready)
            after.messages |= {each.body: each for each in ready[deleted:]}

    # Deferral -------------------------------------------------------------------------------------

    @move(
        15,
        lambda self: self.model.aside(State.DEFERRED),
        delete=st.booleans(),
        wrong=SELDOM,
    )
    def receive_deferred(self, data: st.DataObject, delete: bool, wrong: bool) -> None:
        """Receive by number what was deferred: all that are named, or none."""
        after = self.model.copy()
        aside = after.aside(State.DEFERRED)
        first = data.draw(st.sampled_from(aside))
        # Of one queue, of one session, and of one fragment: most of the time.
        alike = [m for m in aside if (m.is_dead, m.session) == (first.is_dead, first.session)]
        chosen = [first] if wrong else some_of(data, alike)
        sequences = [each.sequence for each in chosen]
        dead = first.is_dead
        of_session = self.has_sessions and not dead
        error = self.refusal_of(sequences)
        if error is None and of_session and first.session not in self.model.held:
            error = SessionLockLost
        if error is None:
            # It is too late for those whose time is over, whether or not the others can be had.
            over = [each for each in chosen if each.is_over(after.now_ms)]
            for each in over:
                after.expire(each)
            error = MessageNotFound if wrong or over else None
        sequences += [sequences[0] + 1000] if wrong else []
        for each in chosen if error is None and delete else ():
            del after.messages[each.body]
        with self.power(after, [each.body for each in chosen]):
            got = self.expect(
                error,
                lambda: self.real.receive_deferred(
                    sequences,
                    dead=dead,
                    delete=delete,
                    holder=self.inboxes.get(first.session or "") if of_session else None,
                ),
            )
            if error is None:
                assert self.taken(chosen, got) == chosen
                if not delete:
                    self.hold(after, chosen, got)

    def hold(self, model: SessionModel, messages: list[Message], got: list[Got]) -> None:
        """A receiver has them."""
        for message, each in zip(messages, got, strict=True):
            model.lock(message, each.token)


def some_of(data: st.DataObject, messages: list[Message]) -> list[Message]:
    """A few of them, in their order."""
    size = len(messages)
    places = st.lists(st.integers(0, size - 1), min_size=1, max_size=3, unique=True)
    return [messages[at] for at in sorted(data.draw(places))]


def as_sent(message: Message) -> Incoming:
    """The message as the real queue is given it."""
    sent = incoming(
        message.body, message_id=message.message_id, session=message.session, key=message.key
    )
    sent.ttl_ms, sent.due_ms = message.ttl_ms, message.due_ms
    return sent
