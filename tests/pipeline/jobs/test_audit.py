"""Audits: what was accepted is accounted for, and what is not is told, fragment by fragment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from partibus.pipeline.jobs import Broker
from partibus.pipeline.jobs.counters import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue


def test_S3_an_audit_adds_up_what_became_of_every_message_and_finds_what_a_capture_lacks(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.audit import audit
    from partibus.pipeline.jobs.capture import capture

    broker = Broker(queue.broker.connection_string)
    queue.send_spread(60)
    out = (tmp_path / "out").as_uri()
    assert capture(spark, broker, queue.name, out).messages == 60
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        first, second, third = receiver.receive_messages(3, max_wait_time=10)[:3]
        receiver.complete_message(first)
        receiver.dead_letter_message(second, reason="test")
        receiver.abandon_message(third)

    found = audit(spark, broker, queue.name, capture=out, all_captured=True)

    assert found.discrepancies == []
    assert found.is_clean
    assert found.totals["accepted"] == 60
    assert (found.totals["completed"], found.totals["dead_lettered"]) == (1, 1)
    assert (found.totals["present"], found.totals["missing"]) == (58, 0)
    own = [each for each in found.accounts if each.subqueue == "active"]
    assert len(own) == 16
    assert sum(each.read or 0 for each in own) == 58
    assert sum(each.captured or 0 for each in own) == 60

    # A capture that has lost a message and has another twice.
    rows = spark.read.parquet(out).orderBy("fragment", "position").collect()
    fragment, position = rows[0].fragment, rows[0].position
    whole = spark.read.parquet(out)
    damaged = whole.where(f"NOT (fragment = {fragment} AND position = {position})")
    damaged = damaged.unionByName(damaged.where(f"fragment = {rows[-1].fragment}").limit(1))
    damaged.write.parquet(str(tmp_path / "damaged"))
    wrong = audit(
        spark, broker, queue.name, capture=(tmp_path / "damaged").as_uri(), all_captured=True
    )
    assert not wrong.is_clean
    text = "; ".join(wrong.discrepancies)
    assert f"fragment {fragment}: 1 messages were never captured" in text
    assert f"fragment {rows[-1].fragment}: 1 messages are captured more than once" in text


def metrics(**totals: int) -> str:
    where = '{entity="or\\"ders",partition="3",subqueue="active"'
    lines = [f"partibus_messages_{name}_total{where}}} {n}" for name, n in totals.items()]
    lines.append(f'partibus_messages{where},state="active"}} 2')
    lines.append('partibus_messages{entity="other",partition="3",subqueue="active",state="x"} 9')
    return "\n".join(lines)


def test_S3_a_message_that_no_counter_knows_is_missing() -> None:
    (counts,) = parse(metrics(accepted=10, completed=5, expired=2), 'or"ders')
    assert (counts.fragment, counts.present, counts.missing) == (3, 2, 1)
    (counts,) = parse(metrics(accepted=10, completed=5, expired=2, forwarded=1), 'or"ders')
    assert counts.missing == 0
