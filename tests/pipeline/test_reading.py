"""Reading queues with Spark: every message once, as it was sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage

from partibus.broker.partitioning import index_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.pipeline.conftest import Queue


def read(spark: SparkSession, queue: Queue, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("servicebus").options(**queue.options, **options)
    return (reader.schema(schema) if schema else reader).load()


def ids(frame: DataFrame) -> list[str]:
    return [row.messageId for row in frame.select("messageId").collect()]


def test_S1_a_partitioned_queue_is_read_whole_and_stays_as_it_is(
    spark: SparkSession, queue: Queue
) -> None:
    sent = queue.send_spread(200)

    assert sorted(ids(read(spark, queue))) == sorted(sent)
    assert sorted(queue.received()) == sorted(sent)


def test_S1_a_message_is_read_with_all_it_says(
    spark: SparkSession, make_queue: Callable[..., Queue]
) -> None:
    queue = make_queue()
    message = ServiceBusMessage(
        b"\x00body",
        message_id="id",
        subject="greeting",
        content_type="text/plain",
        correlation_id="c",
        reply_to="r",
        to="t",
        partition_key="k",
        application_properties={"colour": "red", "size": 3},
    )
    with queue.client() as client, client.get_queue_sender(queue.name) as sender:
        sender.send_messages(message)

    row = read(spark, queue).collect()[0]

    assert bytes(row.body) == b"\x00body"
    assert (row.messageId, row.subject, row.contentType) == ("id", "greeting", "text/plain")
    assert (row.correlationId, row.replyTo, row.to, row.partitionKey) == ("c", "r", "t", "k")
    assert row.applicationProperties == {"colour": "red", "size": "3"}
    assert (row.entity, row.fragment, row.position, row.sequenceNumber) == (queue.name, 0, 1, 1)
    assert (row.state, row.deliveryCount, row.sessionId) == ("active", 0, None)
    assert abs(row.enqueuedTime.timestamp() - time.time()) < 600


def test_S1_dead_letters_are_read_in_the_order_they_died(spark: SparkSession, queue: Queue) -> None:
    queue.send("a", "b", "c", key="k")
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        messages = receiver.receive_messages(3, max_wait_time=10)
        for message in sorted(messages, key=lambda each: each.message_id, reverse=True):
            receiver.dead_letter_message(message, reason="bad", error_description="very")

    rows = read(spark, queue, subQueue="deadletter").orderBy("position").collect()

    assert [row.messageId for row in rows] == ["c", "b", "a"]
    assert {(row.deadLetterReason, row.deadLetterErrorDescription) for row in rows} == {
        ("bad", "very")
    }
    assert [row.sequenceNumber & 0xFFFF for row in rows] == [3, 2, 1]
    assert ids(read(spark, queue)) == []


def test_S2_a_part_is_read_by_sequence_numbers(spark: SparkSession, queue: Queue) -> None:
    queue.send(*(f"m{n}" for n in range(1, 11)), key="k")
    fragment = index_of("k", 16) + 1

    found = read(
        spark, queue,
        startingOffsets=f'{{"{fragment}": 3}}', endingOffsets=f'{{"{fragment}": 7}}',
    )  # fmt: skip

    assert sorted(ids(found)) == ["m3", "m4", "m5", "m6"]


def test_S2_a_part_is_read_by_time(spark: SparkSession, make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    queue.send("early")
    time.sleep(0.01)
    middle = time.time_ns() // 1_000_000
    time.sleep(0.01)
    queue.send("late")

    assert ids(read(spark, queue, startingTimestamp=str(middle))) == ["late"]
    assert ids(read(spark, queue, endingTimestamp=str(middle))) == ["early"]


def test_S1_only_the_columns_that_are_chosen_are_fetched(spark: SparkSession, queue: Queue) -> None:
    queue.send("a")
    frame = read(spark, queue, schema="body BINARY, fragment INT")
    assert frame.columns == ["body", "fragment"]
    assert bytes(frame.collect()[0].body) == b"a"
    assert "body" not in read(spark, queue, includeBody="false").columns


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"quue": "x"}, "", "did you mean 'queue'"),
        ({"queue": "nothing-there"}, "", "could not be found"),
        ({"startingOffsets": '{"99": 1}'}, "", "there is no fragment 99"),
        ({}, "colour STRING", "messages have no column 'colour'"),
        ({}, "body STRING", "column 'body' is binary, not string"),
    ],
)
def test_S1_what_is_wrong_is_said_before_anything_is_read(
    spark: SparkSession, queue: Queue, options: dict[str, str], schema: str, text: str
) -> None:
    reader = spark.read.format("servicebus").options(**{**queue.options, **options})
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=text):
        (reader.schema(schema) if schema else reader).load().count()


def test_A4_reading_needs_the_right_to_listen(spark: SparkSession, queue: Queue) -> None:
    sender = queue.broker.create_access_rule("sender", "Send", queue=queue.name)
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="'Listen' claim"):
        read(spark, queue).sparkSession.read.format("servicebus").options(
            **{**queue.options, "connectionString": sender}
        ).load().count()


def test_A4_the_key_is_in_no_plan(
    spark: SparkSession, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    read(spark, queue).explain(True)
    # Nor with the settings of a session that is not ours.
    own = spark.conf.get("spark.sql.redaction.options.regex")
    spark.conf.unset("spark.sql.redaction.options.regex")
    try:
        read(spark, queue).explain("formatted")
        read(spark, queue).explain(True)
    finally:
        spark.conf.set("spark.sql.redaction.options.regex", own)
    shown = capsys.readouterr().out
    key = queue.broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert "servicebus" in shown
    assert key not in shown
