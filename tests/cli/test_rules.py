"""How a rule is shown to a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def test_a_rule_is_shown_as_it_is_written(partibus: Callable[..., Any]) -> None:
    partibus("topic", "create", "cli-rules")
    partibus("subscription", "create", "cli-rules", "s")
    partibus("rule", "create", "cli-rules", "s", "r", "--correlation", "Label=order")
    assert "Label=order" in partibus("rule", "show", "cli-rules", "s", "r").out
    shown = json.loads(partibus("rule", "show", "cli-rules", "s", "r", "--output", "json").out)
    assert shown["Filter"]["type"].endswith("CorrelationFilter")


def test_a_rule_keeps_what_an_update_does_not_name(partibus: Callable[..., Any]) -> None:
    place = ("cli-changes", "s", "r")
    partibus("topic", "create", "cli-changes", "--no-partitioned")
    partibus("subscription", "create", "cli-changes", "s")
    partibus("rule", "create", *place, "--sql", "a = 1", "--action", "SET b = 1")
    assert partibus("rule", "update", *place, "--sql", "a = 2").code == 0
    shown = partibus("rule", "show", *place).out
    assert "a = 2" in shown
    assert "SET b = 1" in shown
    assert partibus("rule", "update", *place, "--action", "SET b = 2").code == 0
    changed = json.loads(partibus("rule", "show", *place, "--output", "json").out)
    assert changed["Filter"]["SqlExpression"] == "a = 2"
    assert changed["Action"]["SqlExpression"] == "SET b = 2"
    assert partibus("rule", "update", *place, "--none").code == 0
    shown = json.loads(partibus("rule", "show", *place, "--output", "json").out)
    assert shown["Filter"]["type"].endswith("FalseFilter")
    assert partibus("rule", "update", *place).code == 2
    assert partibus("rule", "update", *place, "--sql", "a =").code == 8
    assert partibus("rule", "update", "cli-changes", "s", "none", "--sql", "a = 1").code == 8
