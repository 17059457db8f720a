"""Which copies a topic makes: its rules against a model, and what cannot be passed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from partibus.broker.errors import InvalidOperation, QuotaExceeded
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming, Passage, read_message
from partibus.broker.records import Copy, Entry, FragmentKey, SubQueue
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from partibus.broker.rules.rule_set import RuleSet, TopicRules
from partibus.broker.topic_fragment import Circle, Destination, TopicFragment, kind_of_fragment
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.testing.messages import payload, read
from partibus.wire.sections import delivery

NOW_MS = 1_000_000
PARTITION = 3
HIGH = PARTITION << 48


class Bench:
    """A topic's fragment with its subscriptions, without a store."""

    def __init__(
        self,
        subscriptions: dict[SubscriptionDescription, list[RuleDescription]],
        topic: TopicDescription | None = None,
    ) -> None:
        self.fragments: dict[FragmentKey, Fragment] = {}
        made = self.fragment(1, topic or TopicDescription("t"))
        assert isinstance(made, TopicFragment)
        self.topic = made
        rules: TopicRules[int] = TopicRules()
        destinations = []
        self.subscriptions: dict[str, int] = {}
        for number, (description, its_rules) in enumerate(subscriptions.items(), 2):
            self.subscriptions[description.name] = number
            rules.put(number, RuleSet(its_rules))
            destinations.append(
                Destination(number, description, self._opener(number, description), takes_all=False)
            )
        circle = Circle(
            destinations,
            rules,
            lambda number: next(f for f in self.fragments.values() if f.number == number),
            lambda: sum(f.counters.bytes for f in self.fragments.values() if f is not self.topic),
            lambda: bytes(16),
        )
        self.topic.circle = lambda: circle

    def _opener(self, number: int, description: SubscriptionDescription) -> Callable[[], Fragment]:
        return lambda: self.fragment(number, description)

    def fragment(self, entity: int, description: Any, subqueue: int = SubQueue.ACTIVE) -> Fragment:
        key = FragmentKey(entity, 1, PARTITION, subqueue)
        if key not in self.fragments:
            number = len(self.fragments) + 1
            self.fragments[key] = kind_of_fragment(key, description)(
                key, number, 0, description, None,
                lambda: self.fragment(entity, description, SubQueue.DEAD_LETTER),
            )  # fmt: skip
        return self.fragments[key]

    def taken(self, name: str, subqueue: int = SubQueue.ACTIVE) -> list[Entry]:
        """What is staged for a subscription."""
        key = FragmentKey(self.subscriptions[name], 1, PARTITION, subqueue)
        fragment = self.fragments.get(key)
        return fragment._stage().added if fragment else []


def message(body: bytes = b"body", session: str | None = None, **properties: object) -> Incoming:
    sent = payload(body, message_id="id", session=session, properties=properties)
    return read_message(sent, len(sent), lambda: "id")


def properties_of(entry: Entry) -> dict[str, Any]:
    whole = delivery(
        entry.bare, entry.kept, entry.kept_count, delivery_count=0, ttl_ms=None,
        sequence_number=0, enqueued_time_ms=0, enqueue_sequence_number=0,
    )  # fmt: skip
    found = read(whole)
    assert found.body == b"body"
    return found.properties


VALUES = st.integers(0, 3)
Matches = Callable[[int], bool]


@st.composite
def rules(draw: st.DrawFn) -> tuple[RuleDescription, Matches]:
    """A rule without its name, and what it is to say of a message."""
    value = draw(VALUES)
    chosen, matches = draw(
        st.sampled_from([
            (TrueFilter(), lambda n: True),
            (FalseFilter(), lambda n: False),
            (SqlFilter(f"n = {value}"), lambda n: n == value),
            (SqlFilter(f"n <> {value} AND missing IS NULL"), lambda n: n != value),
            (CorrelationFilter(properties=(("n", value),)), lambda n: n == value),
        ])
    )  # fmt: skip
    action = draw(st.sampled_from([None, SqlAction(f"SET changed = {value}")]))
    return RuleDescription("", chosen, action), matches


@settings(max_examples=60, deadline=None)
@given(
    sets=st.lists(st.lists(rules(), max_size=5), min_size=1, max_size=5),
    sent=st.lists(VALUES, min_size=1, max_size=5),
)
def test_P4_every_subscription_gets_the_copies_of_the_model(
    sets: list[list[tuple[RuleDescription, Matches]]], sent: list[int]
) -> None:
    named = [
        [RuleDescription(f"r{at}", rule.filter, rule.action) for at, (rule, _) in enumerate(each)]
        for each in sets
    ]
    names = [f"s{at}" for at in range(len(sets))]
    bench = Bench(dict(zip(map(SubscriptionDescription, names), named, strict=True)))
    bench.topic.send([message(n=value) for value in sent], NOW_MS)
    wanted_in_all = 0
    for name, each in zip(names, sets, strict=True):
        wanted: Counter[tuple[int, str | None, int | None]] = Counter()
        for value in sent:
            if any(matches(value) and rule.action is None for rule, matches in each):
                wanted[value, None, None] += 1
            for at, (rule, matches) in enumerate(each):
                if matches(value) and rule.action is not None:
                    changed = int(rule.action.expression.rpartition(" ")[2])
                    wanted[value, f"r{at}", changed] += 1
        found: Counter[tuple[int, str | None, int | None]] = Counter()
        for entry in bench.taken(name):
            got = properties_of(entry)
            found[got["n"], got.get("RuleName"), got.get("changed")] += 1
        assert found == wanted
        wanted_in_all += sum(wanted.values())
        positions = [entry.position for entry in bench.taken(name)]
        assert positions == list(range(1, len(positions) + 1))
    published = bench.topic._stage().published
    assert sum(len(each.copies) for each in published) == wanted_in_all
    counters = bench.topic.counters
    assert (counters.accepted, counters.forwarded) == (len(sent), len(published))
    assert counters.accepted == counters.forwarded + counters.discarded


def everything(*names: str, **how: Any) -> dict[SubscriptionDescription, list[RuleDescription]]:
    return {SubscriptionDescription(name, **how): [RuleDescription("all")] for name in names}


def test_copies_share_the_bytes_of_their_message() -> None:
    bench = Bench(everything("a", "b"))
    sent = message()
    bench.topic.send([sent], NOW_MS)
    (one,), (other,) = bench.taken("a"), bench.taken("b")
    assert one.bare is other.bare is sent.bare
    assert isinstance(one, Copy)
    assert (one.sequence, one.origin, one.enqueued_ms) == (HIGH | 1, HIGH | 1, NOW_MS)


def test_a_message_without_session_is_set_aside_where_sessions_are_required() -> None:
    acting = RuleDescription("acts", action=SqlAction("SET sys.SessionId = 'given'"))
    described = SubscriptionDescription("s", requires_session=True)
    bench = Bench({described: [acting]} | everything("t", requires_session=True))
    bench.topic.send([message(), message(session="own")], NOW_MS)
    assert [entry.session for entry in bench.taken("s")] == ["given", "given"]
    assert [entry.session for entry in bench.taken("t")] == ["own"]
    (dead,) = bench.taken("t", SubQueue.DEAD_LETTER)
    assert properties_of(dead)["DeadLetterReason"] == "Session id is null."
    assert dead.sequence == HIGH | 1


@pytest.mark.parametrize("keeps", [True, False])
def test_a_filter_that_fails_is_dead_lettered_or_dropped(keeps: bool) -> None:
    failing = RuleDescription("r", SqlFilter("1 / n = 1"))
    described = SubscriptionDescription("s", dead_letter_on_filter_errors=keeps)
    bench = Bench({described: [failing]})
    bench.topic.send([message(n=0), message(n=1)], NOW_MS)
    assert len(bench.taken("s")) == 1
    dead = [properties_of(each) for each in bench.taken("s", SubQueue.DEAD_LETTER)]
    assert [each["DeadLetterReason"] for each in dead] == ["FilterException"] * keeps


def test_a_forwarded_message_keeps_where_it_comes_from() -> None:
    bench = Bench(everything("s"))
    forwarded = message()
    forwarded.passage = Passage(origin=77, enqueued_ms=5, hops=2, source="orders")
    bench.topic.send([forwarded], NOW_MS)
    (copy,) = bench.taken("s")
    assert (copy.origin, copy.enqueued_ms, copy.hops, copy.source) == (77, 5, 2, "orders")


def test_scheduled_messages_of_a_batch_keep_their_place_in_the_numbering() -> None:
    bench = Bench(everything("s"))
    batch = [message(n=n) for n in range(4)]
    batch[1].due_ms = batch[2].due_ms = NOW_MS + 10
    assert bench.topic.send(batch, NOW_MS) == 1
    waiting = bench.topic._stage().added
    assert [entry.position for entry in waiting] == [2, 3]
    assert [copy.origin for copy in bench.taken("s")] == [HIGH | 1, HIGH | 4]
    bench.topic.committed(bench.topic.take_changes())
    assert bench.topic.activate(waiting, NOW_MS + 10)
    assert [copy.origin for copy in bench.taken("s")][2:] == [HIGH | 5, HIGH | 6]
    assert [copy.enqueued_ms for copy in bench.taken("s")][2:] == [NOW_MS + 10] * 2
    assert bench.topic._stage().removed == [2, 3]
    assert (bench.topic.counters.scheduled, bench.topic.counters.bytes) == (0, 0)


def test_nothing_comes_into_a_subscription_but_copies() -> None:
    bench = Bench(everything("s"))
    bench.topic.send([message()], NOW_MS)
    key = FragmentKey(bench.subscriptions["s"], 1, PARTITION, SubQueue.ACTIVE)
    with pytest.raises(InvalidOperation, match="topic"):
        bench.fragments[key].send([message()], NOW_MS)


def test_the_topic_is_full_when_its_copies_fill_it() -> None:
    bench = Bench(everything("a", "b"), TopicDescription("t", max_size_mb=1))
    sent = read_message(payload(bytes(200_000), message_id="id"), 300_000, lambda: "id")
    for _ in range(3):
        bench.topic.send([sent], NOW_MS)
    with pytest.raises(QuotaExceeded, match="topic"):
        bench.topic.send([sent], NOW_MS)
    assert len(bench.taken("a")) == 3


def test_K5_copies_of_what_was_sent_elsewhere_are_taken_back() -> None:
    bench = Bench(everything("a", "b"))
    bench.topic.send([message(n=1), message(n=2)], NOW_MS)
    for fragment in list(bench.fragments.values()):
        fragment.committed(fragment.take_changes())
    assert bench.topic.discard([2]) == 2
    for name in ("a", "b"):
        key = FragmentKey(bench.subscriptions[name], 1, PARTITION, SubQueue.ACTIVE)
        assert bench.fragments[key]._stage().removed == [2]
