"""Requests about rules are held against SPEC 4.4, and so is what is read of their answers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from partibus.client import rules
from partibus.client.dialogue import Response
from partibus.client.errors import EntityAlreadyExists, MalformedMessage
from partibus.client.rules import CorrelationFilter, Rule
from partibus.gateway.rule_maps import read_rule, write_rule
from partibus.wire.codec import decode_all, encode
from partibus.wire.values import Described, Int, Timestamp, ULong

CORRELATION = CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct", {"n": Int(1)})


def test_a_rule_is_added_with_maps() -> None:
    request = rules.add_rule("r", "a = 1", "SET b = 1")
    assert request.operation == "add-rule"
    assert request.body == {
        "rule-name": "r",
        "rule-description": {
            "rule-name": "r",
            "sql-filter": {"expression": "a = 1"},
            "sql-rule-action": {"expression": "SET b = 1"},
        },
    }
    body = rules.add_rule("r", CORRELATION, None).body["rule-description"]
    assert isinstance(body, dict)
    assert body["sql-rule-action"] is None
    assert body["correlation-filter"]["reply-to-session-id"] == "rs"
    assert body["correlation-filter"]["properties"] == {"n": 1}


@pytest.mark.parametrize("filter_", ["1=1", "1=0", "a = 1", CORRELATION, CorrelationFilter(to="t")])
@pytest.mark.parametrize("action", [None, "SET a = 1"])
def test_what_is_added_is_listed_as_it_was(
    filter_: str | CorrelationFilter, action: str | None
) -> None:
    added: dict[object, object] = dict(rules.add_rule("r", filter_, action).body)
    kept = read_rule(decode_all(encode(added)))
    listed = decode_all(encode({"rules": [{"rule-description": write_rule(kept)}]}))
    (found,) = rules.enumerated(Response(200, "OK", None, listed))
    assert found == Rule("r", filter_, action, datetime(1970, 1, 1, tzinfo=UTC))


def test_pages_are_asked_for_until_one_is_empty() -> None:
    assert rules.enumerate_rules(7).body == {"top": Int(100), "skip": Int(7)}
    assert rules.remove_rule("r").body == {"rule-name": "r"}
    assert rules.enumerated(Response(204, "none", None, {})) == []
    with pytest.raises(EntityAlreadyExists):
        rules.enumerated(Response(409, "no", "com.microsoft:entity-already-exists", {}))


RULE = ULong(0x13700000004)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rules": 5},
        {"rules": [5]},
        {"rules": [{"rule-description": 5}]},
        {"rules": [{"rule-description": Described(RULE, [5, None, "r", Timestamp(0)])}]},
        {"rules": [{"rule-description": Described(RULE, [])}]},
    ],
)
def test_what_is_no_rule_is_malformed(body: object) -> None:
    with pytest.raises(MalformedMessage):
        rules.enumerated(Response(200, "OK", None, body))
