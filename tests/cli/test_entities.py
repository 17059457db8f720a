"""Entities from the shell (M4, P5): what is made is what the documents say, and refusals tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def made(run: Run, *arguments: str) -> dict[str, Any]:
    ran = run(*arguments, "--output", "json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


def test_P5_a_queue_is_partitioned_unless_that_is_refused(partibus: Run) -> None:
    spread = made(partibus, "queue", "create", "cli-spread", "--set", "LockDuration=PT45S")
    assert spread["EnablePartitioning"] == "true"
    assert spread["LockDuration"] == "PT45S"
    single = made(partibus, "queue", "create", "cli-single", "--no-partitioned", "--sessions")
    assert (single["EnablePartitioning"], single["RequiresSession"]) == ("false", "true")
    hint = partibus("queue", "create", "cli-hint")
    assert "low traffic" in hint.err


def test_M4_a_queue_lives_and_dies_by_commands(partibus: Run) -> None:
    made(partibus, "queue", "create", "cli-life")
    partibus("send", "cli-life", "--lines", stdin="a\nb\n")
    shown = made(partibus, "queue", "show", "cli-life")
    assert shown["CountDetails"]["ActiveMessageCount"] == "2"
    listed = json.loads(partibus("queue", "list", "--output", "json").out)
    assert "cli-life" in {each["Name"] for each in listed}
    assert "cli-life" in partibus("queue", "list").out
    changed = made(partibus, "queue", "update", "cli-life", "--set", "MaxDeliveryCount=3")
    assert changed["MaxDeliveryCount"] == "3"
    assert changed["EnablePartitioning"] == "true"
    assert partibus("queue", "delete", "cli-life", "--yes").code == 0
    gone = partibus("queue", "show", "cli-life")
    assert (gone.code, "cli-life" in gone.err) == (8, True)


def test_P5_what_cannot_change_is_refused_by_name(partibus: Run) -> None:
    made(partibus, "queue", "create", "cli-fixed")
    refused = partibus("queue", "update", "cli-fixed", "--set", "EnablePartitioning=false")
    assert refused.code == 8
    assert "EnablePartitioning" in refused.err
    twice = partibus("queue", "create", "cli-fixed")
    assert (twice.code, "SubCode=40900" in twice.err) == (8, True)
    wrong = partibus("queue", "create", "cli-wrong", "--set", "LockDuration=PT1H")
    assert (wrong.code, "LockDuration" in wrong.err) == (8, True)
    assert partibus("queue", "update", "cli-fixed").code == 2
    assert partibus("queue", "create", "x", "--set", "nothing").code == 2


def test_M4_topics_subscriptions_and_rules_are_made(partibus: Run) -> None:
    made(partibus, "topic", "create", "cli-topic")
    made(partibus, "subscription", "create", "cli-topic", "north", "--set", "MaxDeliveryCount=7")
    rule = made(
        partibus, "rule", "create", "cli-topic", "north", "only",
        "--sql", "region = 'north'", "--action", "SET seen = 1",
    )  # fmt: skip
    assert rule["Filter"]["SqlExpression"] == "region = 'north'"
    correlated = made(
        partibus, "rule", "create", "cli-topic", "north", "labelled",
        "--correlation", "Label=order", "--correlation", "region=south",
    )  # fmt: skip
    assert correlated["Filter"]["Label"] == "order"
    listed = partibus("rule", "list", "cli-topic", "north").out
    assert "region = 'north'" in listed
    assert "$Default" in listed
    assert partibus("rule", "delete", "cli-topic", "north", "$Default", "--yes").code == 0
    assert "$Default" not in partibus("rule", "list", "cli-topic", "north").out
    assert "1=0" in partibus("rule", "create", "cli-topic", "north", "no", "--none").out
    assert "north" in partibus("subscription", "list", "cli-topic").out
    shown = made(partibus, "subscription", "show", "cli-topic", "north")
    assert shown["MaxDeliveryCount"] == "7"
    bad = partibus("rule", "create", "cli-topic", "north", "bad", "--sql", "region = ")
    assert bad.code == 8
    both = partibus("rule", "create", "cli-topic", "north", "x", "--sql", "1=1", "--none")
    assert both.code == 2
    assert partibus("topic", "delete", "cli-topic", "--yes").code == 0
    assert partibus("subscription", "show", "cli-topic", "north").code == 8
