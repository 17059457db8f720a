"""What a pipeline may be declared as, and how a mistake is told."""

from __future__ import annotations

import pytest

from partibus.broker.pipelines import PipelineDescription, read_pipeline
from partibus.broker.properties import InvalidDescription

SMALLEST = {"Source": "orders", "Sql": "SELECT body FROM messages", "Target": "copies"}


def test_S5_a_pipeline_needs_a_source_a_statement_and_a_target() -> None:
    assert read_pipeline("copy", SMALLEST) == PipelineDescription(
        name="copy", source="orders", sql="SELECT body FROM messages", target="copies"
    )


def test_S5_everything_can_be_said() -> None:
    found = read_pipeline(
        "sums",
        {
            "Source": "news/subscriptions/all/$DeadLetterQueue",
            "SourceOptions": {"MAXMESSAGESPERTRIGGER": 10, "failOnDataLoss": False},
            "Watermark": "PT10S",
            "Function": "shop.sums:by_region",
            "TargetDirectory": "sums",
            "Trigger": "availablenow",
        },
    )
    assert found.source_entity == "news/subscriptions/all"
    assert found.source_options == {"maxMessagesPerTrigger": "10", "failOnDataLoss": "false"}
    assert (found.watermark_ms, found.trigger_ms) == (10_000, 0)
    assert (found.function, found.target_directory) == ("shop.sums:by_region", "sums")


def test_S5_a_statement_may_have_lines() -> None:
    lines = ["SELECT body", "FROM messages"]
    assert read_pipeline("p", {**SMALLEST, "Sql": lines}).sql == "SELECT body\nFROM messages"


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"Source": None}, "Source", "text"),
        ({"Source": ""}, "Source", "is needed"),
        ({"Sql": 7}, "Sql", "list of its lines"),
        ({"Sql": ""}, "Sql", "not empty"),
        ({"Function": "shop:sums"}, "Sql", "both are given"),
        ({"TargetDirectory": "sums"}, "Target", "both are given"),
        ({"Target": 3}, "Target", "text"),
        ({"Trigger": "soon"}, "Trigger", "such as PT10S, or AvailableNow"),
        ({"Trigger": "P2D"}, "Trigger", "at most a day"),
        ({"Watermark": "10 seconds"}, "Watermark", "such as PT10S"),
        ({"Sorce": "orders"}, "Sorce", "did you mean Source?"),
        ({"SourceOptions": ["x"]}, "SourceOptions", "an object"),
        ({"SourceOptions": {"queue": "x"}}, "SourceOptions.queue", "no such property"),
        ({"SourceOptions": {"startingOffset": "x"}}, "SourceOptions.startingOffset", "did you"),
        ({"SourceOptions": {"mode": None}}, "SourceOptions.mode", "text"),
    ],
)
def test_S5_what_is_wrong_is_named(changes: dict[str, object], where: str, said: str) -> None:
    with pytest.raises(InvalidDescription) as refused:
        read_pipeline("p", {**SMALLEST, **changes})
    assert refused.value.property == where
    assert said in refused.value.problem


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".hidden", "x" * 65])
def test_S5_a_name_is_a_file_name(name: str) -> None:
    with pytest.raises(InvalidDescription):
        read_pipeline(name, SMALLEST)


@pytest.mark.parametrize("name", ["sums", "a.b", "a:b:c", ":f", "m:", "1m:f", "m:f()"])
def test_S5_a_function_is_named_by_its_module(name: str) -> None:
    properties = {"Source": "orders", "Function": name, "Target": "copies"}
    with pytest.raises(InvalidDescription, match="module:function"):
        read_pipeline("p", properties)


def test_S5_neither_statement_nor_function_is_refused() -> None:
    with pytest.raises(InvalidDescription, match="neither is given"):
        read_pipeline("p", {"Source": "orders", "Target": "copies"})
