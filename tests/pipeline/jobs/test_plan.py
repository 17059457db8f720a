"""Plans: traffic is routed as the broker would, and what follows is said with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partibus.broker.partitioning import index_of
from partibus.pipeline.jobs import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def traffic(spark: SparkSession) -> DataFrame:
    """Two thousand messages in a minute: many customers, two regions, one of them rare."""
    return spark.range(2000).selectExpr(
        "concat('id-', id) AS messageId",
        "CAST(NULL AS STRING) AS sessionId",
        "IF(id % 10 = 0, NULL, concat('customer ', id % 500)) AS partitionKey",
        "IF(id % 100 = 0, 'south', 'north') AS subject",
        "timestamp_micros(1700000040000000 + id * 1000) AS enqueuedTime",
        "CAST('x' AS BINARY) AS body",
    )


def test_S6_a_plan_routes_as_the_broker_does(traffic: DataFrame) -> None:
    from partibus.pipeline.jobs.plan import AS_SENT, plan

    found = plan(traffic, keys=["subject"], fragments=[4, 16])

    assert found.messages == 2000
    sent, by_subject = found.candidates
    assert (sent.key, sent.keys, sent.keyed, sent.keyless) == (AS_SENT, 450, 1800, 200)
    expected = [0] * 4
    for number in range(2000):
        if number % 10:
            expected[index_of(f"customer {number % 500}", 4)] += 1
    # What has no key is shared out evenly.
    assert sent.spreads[0].messages == [each + 50 for each in expected]
    assert sent.spreads[0].refused_worst == max(expected) / 2000
    assert sent.spreads[0].refused_mean == 1800 / 4 / 2000
    assert by_subject.hot == [("north", 1980), ("south", 20)]
    assert by_subject.spreads[1].idle >= 14
    assert by_subject.spreads[1].refused_worst >= 1980 / 2000
    # In favour of the key that spreads.
    assert (found.partitioned, found.key) == (True, AS_SENT)
    assert any("times the mean" in each for each in found.reasons)


def test_M5_S6_low_traffic_needs_no_fragments(traffic: DataFrame) -> None:
    from partibus.pipeline.jobs.plan import plan

    found = plan(traffic.limit(50))
    assert not found.partitioned
    assert "conventional" in found.reasons[0]


def test_S6_a_wrong_key_is_refused(traffic: DataFrame) -> None:
    from partibus.pipeline.jobs.plan import plan

    with pytest.raises(JobFailed, match="no_such_column"):
        plan(traffic, keys=["no_such_column"])


def test_S6_a_hot_key_is_pointed_out() -> None:
    from partibus.pipeline.jobs.plan import Candidate, Plan, recommend, spread_of

    candidate = Candidate("region", 2, 1000, 0, [("north", 990)], [spread_of([10, 990], 0)])
    found = Plan(1000, 50.0, [candidate])
    recommend(found)
    assert found.partitioned
    assert any("'north' alone has 99.0%" in each for each in found.reasons)
    assert any("no candidate is even" in each for each in found.reasons)


def test_S6_uneven_keys_get_the_fragments_that_have_least_to_do() -> None:
    from partibus.pipeline.jobs.plan import Candidate, Plan, recommend, spread_of

    # One key has two fifths of the messages, and more fragments share the rest.
    spreads = [spread_of([700, 300], 0), spread_of([400, *[40] * 15], 0)]
    skewed = Candidate("customer", 500, 1000, 0, [("big", 400)], spreads)
    # Three values, whatever the fragments.
    regions = [spread_of([600, 400], 0), spread_of([600, 250, 150, *[0] * 13], 0)]
    few = Candidate("region", 3, 1000, 0, [("north", 600)], regions)
    found = Plan(1000, 50.0, [few, skewed])
    recommend(found)
    assert (found.key, found.fragments) == ("customer", 16)
    assert any("'big' alone has 40.0%" in each for each in found.reasons)
    found = Plan(1000, 50.0, [few])
    recommend(found)
    assert found.fragments == 2
