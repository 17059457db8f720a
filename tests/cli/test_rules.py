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
