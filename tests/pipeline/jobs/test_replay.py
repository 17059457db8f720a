"""Replays: chosen messages, once, in order within their keys, no faster than was said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partibus.pipeline.jobs import Broker, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue

MakeQueue = Callable[..., "Queue"]


def broker_of(queue: Queue) -> Broker:
    return Broker(queue.broker.connection_string)


def dead_letter(queue: Queue, *texts: str, reason: str) -> None:
    queue.send(*texts, key="dead")
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        left = len(texts)
        while left:
            for message in receiver.receive_messages(left, max_wait_time=10):
                receiver.dead_letter_message(message, reason=reason)
                left -= 1


def test_S3_dead_letters_are_replayed_by_reason_and_stay(
    spark: SparkSession, queue: Queue, make_queue: MakeQueue
) -> None:
    from partibus.pipeline.jobs.replay import replay

    dead_letter(queue, "a", "b", reason="Timeout")
    dead_letter(queue, "c", reason="Malformed")
    target = make_queue()
    source = f"{queue.name}/$deadletterqueue"
    done = replay(
        spark, broker_of(queue), target.name, entity=source, where="deadLetterReason = 'Timeout'"
    )
    assert (done.messages, done.before) == (2, 0)
    with target.client() as client, client.get_queue_receiver(target.name) as receiver:
        found = receiver.receive_messages(3, max_wait_time=5)
        assert [str(each.message_id) for each in found] == ["a", "b"]
        assert not found[0].application_properties
    left = spark.read.format("servicebus").options(**queue.options, subQueue="deadletter").load()
    assert left.count() == 3


def test_S3_a_capture_is_replayed_in_order_at_a_rate_and_only_once(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.replay import replay

    target = make_queue(enable_partitioning=True)
    rows = [(f"m-{n}", f"key {n % 3}", n, f"text {n}") for n in range(60)]
    frame = spark.createDataFrame(
        rows, "messageId STRING, partitionKey STRING, n LONG, body STRING"
    )
    source = str(tmp_path / "capture")
    frame.selectExpr(
        "messageId", "partitionKey", "1 AS fragment", "n AS position", "body",
        "timestamp_seconds(1700000000 + n) AS enqueuedTime",
    ).write.parquet(source)  # fmt: skip
    now_s = [0.0]
    pauses: list[float] = []

    def sleep(span_s: float) -> None:
        pauses.append(span_s)
        now_s[0] += span_s

    class Interrupted(Exception):
        pass

    def interrupt(what: str, done: int, total: int | None) -> None:
        if what == "sent" and done == 40:
            raise Interrupted

    options = {"parquet": source, "rate": 20, "state": str(tmp_path / "state")}
    broker = broker_of(target)
    with pytest.raises(Interrupted):
        replay(
            spark, broker, target.name, **options, progress=interrupt,
            clock=lambda: now_s[0], sleep=sleep,
        )  # fmt: skip
    # Forty messages at twenty a second: the second batch waited a second for the first.
    assert pauses == [1.0]
    rest = replay(spark, broker, target.name, **options)
    assert (rest.messages, rest.before) == (60, 40)
    assert replay(spark, broker, target.name, **options).before == 60
    found = spark.read.format("servicebus").options(**target.options).load()
    order: dict[str, list[int]] = {}
    for each in found.orderBy("fragment", "position").collect():
        order.setdefault(each.partitionKey, []).append(int(each.messageId.removeprefix("m-")))
    assert order == {f"key {k}": list(range(k, 60, 3)) for k in range(3)}


def test_S3_a_replay_with_new_ids_is_a_new_message(
    spark: SparkSession, queue: Queue, make_queue: MakeQueue
) -> None:
    from partibus.pipeline.jobs.replay import replay

    queue.send("a", "b", key="k")
    target = make_queue()
    replay(spark, broker_of(queue), target.name, entity=queue.name, new_ids=True)
    found = target.received()
    assert len(set(found)) == 2
    assert not {"a", "b"} & set(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "a capture or an entity"),
        ({"entity": "SAME"}, "into itself"),
        ({"parquet": "/nowhere"}, "cannot be read as Parquet"),
    ],
)
def test_S3_a_wrong_replay_is_refused(
    spark: SparkSession, queue: Queue, options: dict[str, str], said: str
) -> None:
    from partibus.pipeline.jobs.replay import replay

    given = {name: queue.name if text == "SAME" else text for name, text in options.items()}
    with pytest.raises(JobFailed, match=said):
        replay(spark, broker_of(queue), queue.name, **given)


def test_S3_a_wrong_filter_is_refused(
    spark: SparkSession, queue: Queue, make_queue: MakeQueue
) -> None:
    from partibus.pipeline.jobs.replay import replay

    with pytest.raises(JobFailed, match="filter"):
        replay(spark, broker_of(queue), make_queue().name, entity=queue.name, where="nonsense > 1")
