"""Rules on the wire: what the clients send is read, what they expect is written."""

from __future__ import annotations

from typing import Any

import pytest

from partibus.broker.errors import InvalidArgument
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from partibus.gateway.rule_maps import read_rule, write_rule
from partibus.wire.codec import decode_all, encode
from partibus.wire.values import Described, Int, Symbol, Timestamp, ULong

RULE = 0x13700000004


def added(**description: object) -> dict[object, object]:
    named = {name.replace("_", "-"): value for name, value in description.items()}
    return {"rule-name": "r", "rule-description": named}


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"sql_filter": {"expression": "a = 1"}}, SqlFilter("a = 1")),
        ({"sql_filter": {"expression": "1=1"}}, TrueFilter()),
        ({"sql_filter": {"expression": "1=0"}, "correlation_filter": None}, FalseFilter()),
        ({"true_filter": {}}, TrueFilter()),
        (
            {"correlation_filter": {"label": "l", "to": None, "properties": {"n": Int(1)}}},
            CorrelationFilter(label="l", properties=(("n", Int(1)),)),
        ),
        (
            {"correlation_filter": {Symbol("reply-to-session-id"): "s", "content-type": "c"}},
            CorrelationFilter(reply_to_session_id="s", content_type="c"),
        ),
    ],
)
def test_filters_come_as_maps(filter_: dict[str, object], expected: Filter) -> None:
    assert read_rule(added(**filter_)) == RuleDescription("r", expected)


def test_an_action_and_the_name_within_the_description() -> None:
    sql, action = {"expression": "a = 1"}, {"expression": "SET a = 2"}
    rule = RuleDescription("r", SqlFilter("a = 1"), SqlAction("SET a = 2"))
    assert read_rule(added(sql_filter=sql, sql_rule_action=action)) == rule
    description = {"sql-filter": sql, "sql-rule-action": None, "rule-name": "inner"}
    assert read_rule({"rule-description": description}).name == "inner"


RULES = [
    RuleDescription("all", TrueFilter(), None, 5),
    RuleDescription("none", FalseFilter()),
    RuleDescription("sql", SqlFilter("a = 1"), SqlAction("SET b = 1"), 1_700_000_000_000),
    RuleDescription(
        "correlation",
        CorrelationFilter("c", "id", "l", "m", "r", "rs", "s", "t", (("n", Int(1)), ("x", "y"))),
    ),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_lists_of_an_enumeration_can_be_added_again(
    rule: RuleDescription, symbolic: bool
) -> None:
    written: Any = decode_all(encode(write_rule(rule)))
    if symbolic:
        names = {0x13700000004: "rule-description", 0x13700000005: "empty-rule-action",
                 0x13700000006: "sql-rule-action", 0x1370000006: "sql-filter",
                 0x1370000007: "true-filter", 0x1370000008: "false-filter",
                 0x1370000009: "correlation-filter"}  # fmt: skip

        def renamed(each: Described) -> Described:
            return Described(Symbol(f"com.microsoft:{names[each.descriptor]}:list"), each.value)  # type: ignore[index]

        filter_, action, *rest = written.value
        written = Described(renamed(written).descriptor, [renamed(filter_), renamed(action), *rest])
    again = read_rule({"rule-description": written})
    assert (again.name, again.filter, again.action) == (rule.name, rule.filter, rule.action)


def test_the_types_of_an_enumeration_are_those_that_clients_read() -> None:
    found = write_rule(RULES[2])
    filter_, action, name, created = found.value  # type: ignore[misc]
    assert found.descriptor == 0x13700000004
    assert filter_ == Described(ULong(0x1370000006), ["a = 1", Int(20)])
    assert action == Described(ULong(0x13700000006), ["SET b = 1", Int(20)])
    assert (name, created, type(created)) == ("sql", 1_700_000_000_000, Timestamp)
    correlation = write_rule(RULES[3]).value[0].value  # type: ignore[index]
    expected = ["id", "m", "t", "r", "l", "s", "rs", "c", {"n": 1, "x": "y"}]
    assert correlation == expected


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "rule-description is not a map"),
        ({"rule-name": "r", "rule-description": {}}, "exactly one of sql-filter"),
        (added(sql_filter={"expression": "a"}, true_filter={}), "exactly one of"),
        (added(sql_filter="a = 1"), "sql-filter is not a map"),
        (added(sql_filter={"expression": 5}), "expression of sql-filter is not a string"),
        (added(correlation_filter={}), "at least one of correlation-id"),
        (added(correlation_filter={"properties": [1]}), "not a map"),
        (added(sql_filter={"expression": "a = 1"}, sql_rule_action=5), "not a map"),
        ({"rule-description": {"sql-filter": {"expression": "a = 1"}}}, "rule-name is missing"),
        ({"rule-description": Described(ULong(5), [])}, "neither a map nor a list"),
        ({"rule-name": "r", "rule-description": Described(ULong(RULE), [])}, "filter of the rule"),
        (
            {"rule-description": Described(ULong(RULE), [Described(ULong(9), []), None, "r"])},
            "none of sql-filter",
        ),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(body: dict[object, object], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_rule(body)
