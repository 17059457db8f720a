"""How an entity is spread, told to an operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from partibus.testing.serve import LiveBroker


def test_K2_where_tells_the_fragment_that_a_key_goes_to(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    broker.create_queue("cli-where", enable_partitioning=True)
    for key in ("north", "süd / 7", "x&y=z"):
        partibus("send", "cli-where", "x", "--key", key)
        (message,) = json.loads(partibus("peek", "cli-where", "--output", "json").out)
        where = json.loads(partibus("where", "cli-where", key, "--output", "json").out)
        assert where["partition"] == message["sequenceNumber"] >> 48
        partibus("receive", "cli-where", "--count", "1")


def test_P1_fragments_lie_in_different_stores_on_all_nodes(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    broker.create_queue("cli-fragments", enable_partitioning=True)
    partibus("send", "cli-fragments", "--lines", "--key", "k", stdin="a\nb\nc\n")
    rows = json.loads(partibus("fragments", "cli-fragments", "--output", "json").out)
    assert [each["partition"] for each in rows] == list(range(1, 17))
    assert {each["store"] for each in rows} == set(range(16))
    assert {each["node"] for each in rows} == {0, 1}
    assert sorted(each["active"] for each in rows) == [0] * 15 + [3]
    assert all(each["available"] for each in rows)
    broker.create_queue("cli-one-fragment")
    (row,) = json.loads(partibus("fragments", "cli-one-fragment", "--output", "json").out)
    assert row["partition"] == 0
    assert partibus("fragments", "there-is-none").code == 8
