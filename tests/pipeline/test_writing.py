"""Writing to queues with Spark: every row once, where its key belongs, and as it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.pipeline.conftest import Queue


def write(frame: DataFrame, queue: Queue, **options: str) -> None:
    frame.write.format("servicebus").options(**queue.options, **options).mode("append").save()


def test_S1_a_dataframe_becomes_messages_in_the_fragments_of_their_keys(
    spark: SparkSession, queue: Queue
) -> None:
    from partibus.pipeline import arranged, fragment_of

    rows = [(f"id-{n}", f"customer {n % 7}", f"text {n}") for n in range(300)]
    frame = spark.createDataFrame(rows, "messageId STRING, customer STRING, body STRING")

    write(arranged(frame, "customer"), queue, partitionKeyColumn="customer")

    found = spark.read.format("servicebus").options(**queue.options).load()
    assert found.where(found.fragment != fragment_of("partitionKey")).count() == 0
    assert sorted(row.messageId for row in found.collect()) == sorted(row[0] for row in rows)
    # In the order of the rows, within each key.
    order: dict[str, list[int]] = {}
    for each in found.orderBy("fragment", "position").collect():
        order.setdefault(each.partitionKey, []).append(int(each.messageId.removeprefix("id-")))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len(queue.received()) == 300


def test_S1_a_message_is_written_with_all_it_says(
    spark: SparkSession, make_queue: Callable[..., Queue]
) -> None:
    queue = make_queue()
    frame = spark.sql("""
        SELECT 'id' AS messageId, 'k' AS partitionKey, 's' AS subject, 'text/plain' AS contentType,
               'c' AS correlationId, 'r' AS replyTo, 't' AS to, 60000L AS timeToLive,
               map('colour', 'red') AS applicationProperties, 'grüezi' AS body""")
    write(frame, queue)
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        assert (message.message_id, message.partition_key, message.subject) == ("id", "k", "s")
        assert (message.content_type, message.correlation_id) == ("text/plain", "c")
        assert (message.reply_to, message.to) == ("r", "t")
        assert message.application_properties == {b"colour": b"red"}
        assert str(message) == "grüezi"
        assert message.time_to_live is not None
        assert message.time_to_live.total_seconds() == 60
        receiver.complete_message(message)


def test_S3_what_was_read_is_written_to_another_queue(
    spark: SparkSession, queue: Queue, make_queue: Callable[..., Queue]
) -> None:
    sent = queue.send_spread(100)
    other = make_queue()
    write(spark.read.format("servicebus").options(**queue.options).load(), other)
    assert sorted(other.received()) == sorted(sent)


def test_F2_copies_are_dropped_where_duplicates_are_detected(
    spark: SparkSession, make_queue: Callable[..., Queue]
) -> None:
    queue = make_queue(enable_partitioning=True, requires_duplicate_detection=True)
    frame = spark.range(50).selectExpr("concat('id-', id) AS messageId", "'x' AS body")
    write(frame, queue)
    write(frame, queue)
    assert sorted(queue.received()) == sorted(f"id-{n}" for n in range(50))


@pytest.mark.parametrize(
    ("sql", "options", "text"),
    [
        ("SELECT 'x' AS text", {}, "no column 'body'"),
        ("SELECT 'x' AS body, 1 AS colour", {}, "no column 'colour'"),
        ("SELECT 'x' AS body, 'a' AS sessionId, 'b' AS partitionKey", {}, "both set and differ"),
        ("SELECT 'x' AS body, repeat('k', 200) AS messageId", {}, "128 are allowed"),
        ("SELECT repeat('x', 300000) AS body", {}, "is larger than"),
        ("SELECT 'x' AS body", {"subQueue": "deadletter"}, "no part of it"),
    ],
)
def test_S1_what_cannot_be_written_is_said_and_nothing_is_published(
    spark: SparkSession, queue: Queue, sql: str, options: dict[str, str], text: str
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, Py4JJavaError), match=text):
        write(spark.sql(sql), queue, **options)
    assert queue.received() == []


def test_S1_a_stream_is_written_once_though_its_batch_runs_again(
    spark: SparkSession,
    queue: Queue,
    make_queue: Callable[..., Queue],
    tmp_path: Path,
    finish: Callable[[Callable[[], Any]], Any],
) -> None:
    target = make_queue(enable_partitioning=True)
    checkpoint = tmp_path / "checkpoint"

    def start() -> Any:
        stream = spark.readStream.format("servicebus").options(
            **queue.options, startingOffsets="earliest", maxMessagesPerTrigger="40"
        )
        return (
            stream.load()
            .writeStream.format("servicebus")
            .options(**target.options)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    first = queue.send_spread(100, "a")
    finish(start)
    # As if the driver had died after its last commit was published and before it was noted.
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    second = queue.send_spread(40, "b")
    finish(start)

    found = target.received()
    assert len(found) == len(set(found))
    assert set(found) == first | second
    assert json.loads((checkpoint / "metadata").read_text())["id"]


def test_S1_a_topic_is_written_and_its_subscription_is_read(
    spark: SparkSession, queue: Queue
) -> None:
    queue.broker.create_topic("news", enable_partitioning=True)
    queue.broker.create_subscription("news", "all")
    place = {"connectionString": queue.broker.connection_string, "topic": "news"}
    frame = spark.range(40).selectExpr("concat('id-', id) AS messageId", "'x' AS body")
    frame.write.format("servicebus").options(**place).mode("append").save()
    found = spark.read.format("servicebus").options(**place, subscription="all").load()
    assert sorted(row.messageId for row in found.collect()) == sorted(f"id-{n}" for n in range(40))
