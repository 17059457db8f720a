"""Rules as they are written: read, checked, kept and given back."""

from __future__ import annotations

from uuid import UUID

import pytest

from partibus.broker.properties import InvalidDescription
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    check_rule,
    default_rule,
    read_rule,
    write_rule,
)
from partibus.wire.values import Int, Timestamp

RULES = [
    default_rule(),
    RuleDescription("none", FalseFilter()),
    RuleDescription("sql", SqlFilter("a > @b", (("b", Timestamp(5)),)), SqlAction("SET c = 1")),
    RuleDescription(
        "correlation",
        CorrelationFilter(
            label="l",
            reply_to_session_id="s",
            properties=(("n", 5), ("i", Int(5)), ("u", UUID(int=7)), ("t", "x"), ("b", True)),
        ),
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_kept_with_the_types_of_its_values(rule: RuleDescription) -> None:
    kept = read_rule(rule.name, write_rule(rule))
    assert kept == rule
    if isinstance(rule.filter, CorrelationFilter):
        assert isinstance(kept.filter, CorrelationFilter)
        before = [type(value) for _, value in rule.filter.properties]
        assert [type(value) for _, value in kept.filter.properties] == before


def test_what_the_vendors_sample_says_is_allowed() -> None:
    rule = read_rule(
        "r",
        {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Label": "subject1", "Properties": {"prop3": "value3"}},
        },
    )
    assert rule.filter == CorrelationFilter(label="subject1", properties=(("prop3", "value3"),))
    rule = read_rule(
        "r",
        {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "sys.MessageId = '123'"},
            "Action": {"SqlExpression": "SET sys.To = 'x'"},
        },
    )
    assert rule.filter == SqlFilter("sys.MessageId = '123'")
    assert rule.action == SqlAction("SET sys.To = 'x'")
    assert read_rule("r", {}).filter == TrueFilter()


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"FilterType": "Magic"}, "FilterType"),
        ({"Filter": {}}, "Filter"),
        ({"CorrelationFilter": {"Labl": "x"}}, "Labl"),
        ({"CorrelationFilter": {"Properties": 1}}, "Properties"),
        ({"CorrelationFilter": {"Properties": {"a": [1]}}}, "Properties"),
        ({"FilterType": "Correlation"}, "CorrelationFilter"),
        ({"SqlFilter": "1=1"}, "SqlFilter"),
        ({"SqlFilter": {"SqlExpression": "x" * 1025}}, "SqlExpression"),
        ({"FilterType": "Sql"}, "SqlExpression"),
    ],
)
def test_a_rule_that_could_not_work_is_refused(properties: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidDescription) as refused:
        read_rule("r", properties)
    assert refused.value.property == name


@pytest.mark.parametrize("name", ["", "a/b", "$Other", "x" * 51])
def test_a_rule_has_a_plain_name_or_the_default_one(name: str) -> None:
    check_rule(RuleDescription("$default"))
    with pytest.raises(InvalidDescription, match="Name"):
        check_rule(RuleDescription(name))
