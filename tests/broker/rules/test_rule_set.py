"""Rule sets: which copies a message makes, what failures do, and what is looked at."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_messages import bare, view

from partibus.broker.properties import InvalidDescription
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from partibus.broker.rules.errors import InvalidRule
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.rule_set import CompiledRule, Copy, Outcome, RuleSet, TopicRules
from partibus.wire.message_properties import Head
from partibus.wire.values import Int, Long

SET = SqlAction("SET done = TRUE")


def rule(name: str, filter_: Filter | str, action: SqlAction | None = None) -> RuleDescription:
    found = SqlFilter(filter_) if isinstance(filter_, str) else filter_
    return RuleDescription(name, found, action)


def copies(outcome: Outcome) -> list[str | None]:
    return [copy.rule for copy in outcome.copies]


def test_rules_without_action_make_one_copy_and_each_with_action_one_more() -> None:
    rules = [
        rule("a", "n = 1"),
        rule("b", TrueFilter()),
        rule("c", CorrelationFilter(label="x")),
        rule("d", "n > 0", SET),
        rule("e", CorrelationFilter(properties=(("n", 1),)), SqlAction("SET n = 2")),
        rule("f", "n = 2", SET),
        rule("g", FalseFilter(), SET),
    ]
    outcome = RuleSet(rules).evaluate(view({"n": Int(1)}, subject="x"))
    assert copies(outcome)[0] is None
    assert sorted(copies(outcome)[1:], key=str) == ["d", "e"]
    by_name = {copy.rule: copy for copy in outcome.copies}
    changed = by_name["e"].revision
    assert changed is not None
    assert Head(changed.head).named(None) == {"n": 2, "rulename": "e"}
    assert outcome.failure is None
    assert by_name[None] == Copy()


def test_no_rule_no_copy() -> None:
    for rules in ([], [rule("a", FalseFilter())], [rule("a", "gone = 1")]):
        assert RuleSet(rules).evaluate(view()) == Outcome()


def test_a_failing_filter_is_told_and_takes_no_copy_from_others() -> None:
    broken = rule("broken", "1 / 0 = 1")
    alone = RuleSet([broken]).evaluate(view())
    assert alone.copies == ()
    assert alone.failure is not None
    assert (alone.failure.rule, alone.failure.reason) == ("broken", "FilterException")
    # A copy that another rule makes answers for a filter that would have made the same.
    for rules in ([broken, rule("all", "1=1")], [rule("all", TrueFilter()), broken]):
        assert RuleSet(rules).evaluate(view()) == Outcome((Copy(),))
    acting = RuleSet([rule("broken", "1 / 0 = 1", SET), rule("all", "1=1")]).evaluate(view())
    assert copies(acting) == [None]
    assert acting.failure is not None


@pytest.mark.parametrize(
    ("value", "other", "equal"),
    [
        (Int(1), Long(1), True),
        (1, 1.0, False),
        (1, "1", False),
        (1, True, False),
        ("a", "A", False),
        (0.5, 0.5, True),
        (b"x", b"x", True),
        (b"x", "x", False),
    ],
)
def test_a_correlation_filter_compares_with_type_and_case(
    value: object, other: object, equal: bool
) -> None:
    found = RuleSet([rule("a", CorrelationFilter(properties=(("P", value),)))])
    assert bool(found.evaluate(view({"p": other})).copies) is equal
    assert not found.evaluate(view()).copies
    assert not found.evaluate(view({"p": None})).copies


def test_a_correlation_filter_needs_all_that_it_asks_for() -> None:
    asked = CorrelationFilter(
        correlation_id="7", message_id="m", to="t", reply_to="r", label="l", session_id="s",
        reply_to_session_id="rs", content_type="c", properties=(("a", 1), ("b", "x")),
    )  # fmt: skip
    found = RuleSet([rule("a", asked)])
    fields = {
        "message_id": "m", "to": "t", "subject": "l", "reply_to": "r", "correlation_id": "7",
        "content_type": "c", "group_id": "s", "reply_to_group_id": "rs",
    }  # fmt: skip
    user: dict[str, object] = {"a": 1, "b": "x", "c": 2}
    assert found.evaluate(view(user, **fields)).copies
    for name in fields:
        assert not found.evaluate(view(user, **fields | {name: "other"})).copies
    assert not found.evaluate(view({"a": 1}, **fields)).copies


def test_a_rule_that_is_none_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidRule, match="position 3"):
        CompiledRule(rule("a", "a b"))
    with pytest.raises(InvalidRule, match="SET property = value"):
        CompiledRule(rule("a", "1=1", SqlAction("LET a = 1")))
    with pytest.raises(InvalidDescription, match="allowed: text, a number"):
        CompiledRule(rule("a", CorrelationFilter(properties=(("p", [1]),))))


def test_rules_that_stay_are_not_compiled_again() -> None:
    first = RuleSet([rule("a", "n = 1"), rule("b", "n = 2")])
    second = RuleSet([rule("A", "n = 1"), rule("b", "n = 2"), rule("c", "n = 3")], first)
    assert second.rules["b"] is first.rules["b"]
    assert second.rules["a"] is not first.rules["a"]


def test_only_what_rules_mention_is_decoded() -> None:
    topic: TopicRules[int] = TopicRules()
    message = {"a": 1, "b": 2, "c": "x" * 1000}
    topic.put(1, RuleSet([RuleDescription("$Default")]))
    seen = view(message)
    topic.evaluate(seen)
    assert seen.user == {}
    topic.put(2, RuleSet([rule("r", "a = 1"), rule("s", CorrelationFilter(label="l"))]))
    topic.put(3, RuleSet([rule("r", CorrelationFilter(properties=(("B", 2),)))]))
    seen = view(message)
    assert set(topic.evaluate(seen)) == {1, 2, 3}
    assert seen.user == {"a": 1, "b": 2}
    topic.put(3, RuleSet([]))
    topic.put(2, RuleSet([rule("r", "P('' + 'a') = 1")]))
    seen = view(message)
    topic.evaluate(seen)
    assert set(seen.user) == {"a", "b", "c"}
    topic.remove(2)
    topic.remove(2)
    seen = view(message)
    assert set(topic.evaluate(seen)) == {1}
    assert seen.user == {}


def test_a_message_with_malformed_properties_fails_what_asks_for_them() -> None:
    good = bare({"ab": 1}, message_id="id")
    broken = good.replace(b"\xa1\x02ab", b"\xa0\x02ab")
    topic: TopicRules[str] = TopicRules()
    topic.put("all", RuleSet([RuleDescription("$Default")]))
    topic.put("sql", RuleSet([rule("r", "ab = 1")]))
    topic.put("correlation", RuleSet([rule("r", CorrelationFilter(properties=(("ab", 1),)))]))
    topic.put("acting", RuleSet([rule("r", TrueFilter(), SET)]))
    assert set(topic.evaluate(MessageView(good))) == {"all", "sql", "correlation", "acting"}
    outcomes = topic.evaluate(MessageView(broken))
    assert outcomes["all"].copies
    for key in ("sql", "acting"):
        failure = outcomes[key].failure
        assert failure is not None
        assert "malformed" in failure.description
    assert "correlation" not in outcomes


def evaluation_calls(topic: TopicRules[int], message: MessageView) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # A collection in between would call what others have left to be called.
    gc.disable()
    sys.setprofile(count)
    try:
        topic.evaluate(message)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_a_thousand_correlation_filters_cost_no_more_than_one() -> None:
    def topic_of(count: int) -> TopicRules[int]:
        topic: TopicRules[int] = TopicRules()
        for key in range(min(10, count)):
            topic.put(key, RuleSet(correlating(number) for number in range(key, count, 10)))
        return topic

    def correlating(number: int) -> RuleDescription:
        asked = CorrelationFilter(label=f"l{number}", properties=(("n", number),))
        return rule(f"r{number}", asked)

    one, thousand = topic_of(1), topic_of(1_000)
    message = view({"n": 0}, subject="l0")
    assert one.evaluate(message) == thousand.evaluate(message)
    few = evaluation_calls(one, view({"n": 0}, subject="l0"))
    assert evaluation_calls(thousand, view({"n": 0}, subject="l0")) == few


def test_filters_that_search_long_texts_cannot_hold_a_message_up() -> None:
    topic: TopicRules[int] = TopicRules()
    hostile = " OR ".join(["s LIKE '%_%_%_b'"] * 10)
    for key in range(10):
        topic.put(key, RuleSet([rule("r", hostile)]))
    topic.put(10, RuleSet([rule("r", "n = 1 AND kind LIKE 'or%'")]))
    message = view({"s": "a" * 60_000, "n": 1, "kind": "order"})
    outcomes = topic.evaluate(message)
    # Each of them has failed, one after the other with less to spend; who asks little is served.
    for key in range(10):
        failure = outcomes[key].failure
        assert failure is not None
        assert "steps" in failure.description
    assert outcomes[10] == Outcome((Copy(),))
    assert message._steps_total <= 2_000_000 + 500_000 + 11 * 62_000


# A model of copies: rules that look at two numbers, asked one after the other.

NUMBERS = st.integers(0, 2)
FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(lambda n: SqlFilter(f"a = {n}"), NUMBERS),
    st.builds(lambda n: SqlFilter(f"b / a = {n}"), NUMBERS),
    st.builds(lambda n: CorrelationFilter(properties=(("a", n),)), NUMBERS),
    st.builds(lambda n, m: CorrelationFilter(properties=(("b", n), ("A", m))), NUMBERS, NUMBERS),
)  # fmt: skip
ACTIONS = st.sampled_from([None, None, SET, SqlAction("SET c = b / a")])
RULES = st.lists(st.tuples(FILTERS, ACTIONS), max_size=4)


def takes(filter_: Filter, a: int, b: int) -> bool | None:
    """Whether a filter takes the message; None if it fails."""
    match filter_:
        case SqlFilter(text):
            wanted = int(text.rpartition("=")[2])
            if "/" not in text:
                return a == wanted
            return b // a == wanted if a else None
        case CorrelationFilter():
            return all({"a": a, "b": b}[key.lower()] == value for key, value in filter_.properties)
    return isinstance(filter_, TrueFilter)


def expected(
    rules: list[tuple[Filter, SqlAction | None]], a: int, b: int
) -> tuple[list[str], bool]:
    made: list[str] = []
    failed = failed_plainly = plain = False
    for number, (filter_, action) in enumerate(rules):
        answer = takes(filter_, a, b)
        if answer is None:
            failed |= action is not None
            failed_plainly |= action is None
        elif answer and action is None:
            plain = True
        elif answer and action is not SET and not a:
            failed = True
        elif answer:
            made.append(str(number))
    return ["None"] * plain + made, failed or (failed_plainly and not plain)


@given(st.lists(RULES, max_size=4), st.lists(RULES, max_size=4), NUMBERS, NUMBERS)
def test_a_topic_makes_the_copies_that_a_model_makes(
    before: list[list[tuple[Filter, SqlAction | None]]],
    after: list[list[tuple[Filter, SqlAction | None]]],
    a: int,
    b: int,
) -> None:
    topic: TopicRules[int] = TopicRules()
    for subscriptions in (before, after):
        sets = [
            RuleSet(rule(str(n), filter_, action) for n, (filter_, action) in enumerate(rules))
            for rules in subscriptions
        ]
        for key, found in enumerate(sets):
            topic.put(key, found)
        for key in range(len(sets), 4):
            topic.remove(key)
        outcomes = topic.evaluate(view({"A": Int(a), "b": Int(b)}))
        for key, rules in enumerate(subscriptions):
            outcome = outcomes.get(key, Outcome())
            made = sorted(str(copy.rule) for copy in outcome.copies)
            wanted, fails = expected(rules, a, b)
            assert (made, outcome.failure is not None) == (sorted(wanted), fails)
            assert outcome == sets[key].evaluate(view({"A": Int(a), "b": Int(b)}))
