"""Streams that consume: what Spark has done leaves the queue, each message once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from partibus.pipeline.door import Door
from partibus.pipeline.options import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from tests.pipeline.conftest import Queue

Finish = Callable[[Callable[[], Any]], Any]


class Consuming:
    """A query that consumes a queue into Parquet files, run as often as a test likes."""

    def __init__(self, spark: SparkSession, queue: Queue, directory: Path, finish: Finish) -> None:
        self.spark = spark
        self.queue = queue
        self.directory = directory
        self._finish = finish

    def rows(self, **options: str) -> DataFrame:
        given = {"mode": "consume", "readerName": "spark", **options}
        stream = self.spark.readStream.format("servicebus").options(**self.queue.options, **given)
        return stream.schema("fragment INT, messageId STRING").load()

    def run(self, **options: str) -> StreamingQuery:
        def start() -> StreamingQuery:
            writer = self.rows(**options).writeStream.format("parquet")
            writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
            return writer.trigger(availableNow=True).start(str(self.directory / "out"))

        return self._finish(start)

    def ids(self) -> list[str]:
        rows = self.spark.read.parquet(str(self.directory / "out")).collect()
        return sorted(row.messageId for row in rows)


@pytest.fixture
def consuming(spark: SparkSession, queue: Queue, tmp_path: Path, finish: Finish) -> Consuming:
    return Consuming(spark, queue, tmp_path, finish)


def test_S2_what_a_query_has_consumed_is_gone_from_the_queue(
    consuming: Consuming, queue: Queue
) -> None:
    first = queue.send_spread(100, "a")
    query = consuming.run(maxMessagesPerTrigger="30")
    sizes = [each.numInputRows for each in query.recentProgress if each.numInputRows]
    assert sizes == [30, 30, 30, 10]
    assert consuming.ids() == sorted(first)
    # The last batch is acknowledged, too: Spark asks what comes behind it before it ends.
    assert queue.received() == []

    second = queue.send_spread(60, "b")
    consuming.run()
    assert consuming.ids() == sorted(first | second)
    assert queue.received() == []


def test_S2_a_batch_that_failed_runs_again_with_the_same_messages(
    consuming: Consuming, queue: Queue, finish: Finish
) -> None:
    from pyspark.errors import StreamingQueryException

    sent = queue.send_spread(40)
    seen: dict[int, list[set[str]]] = {}
    is_broken = True

    def write(rows: DataFrame, number: int) -> None:
        seen.setdefault(number, []).append({row.messageId for row in rows.collect()})
        if is_broken and number == 1:
            raise RuntimeError("the sink is full")

    def start() -> StreamingQuery:
        rows = consuming.rows(maxMessagesPerTrigger="15").writeStream.foreachBatch(write)
        rows = rows.option("checkpointLocation", str(consuming.directory / "each"))
        return rows.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        finish(start)
    is_broken = False
    finish(start)

    first, again = seen[1]
    assert first == again
    done = [message for runs in seen.values() for message in runs[-1]]
    assert sorted(done) == sorted(sent)
    assert queue.received() == []


def test_S2_a_batch_that_fails_again_and_again_is_dead_lettered(
    spark: SparkSession, make_queue: Callable[..., Queue], tmp_path: Path, finish: Finish
) -> None:
    from pyspark.errors import StreamingQueryException

    queue = make_queue(max_delivery_count=2)
    queue.send("good", "poison")
    consuming = Consuming(spark, queue, tmp_path, finish)
    done: list[str] = []

    def write(rows: DataFrame, number: int) -> None:
        found = [row.messageId for row in rows.collect()]
        if "poison" in found:
            raise RuntimeError("this cannot be read")
        done.extend(found)

    def start() -> StreamingQuery:
        rows = consuming.rows(maxMessagesPerTrigger="2").writeStream.foreachBatch(write)
        rows = rows.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return rows.trigger(availableNow=True).start()

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="this cannot be read"):
            finish(start)
    queue.send("later")
    finish(start)

    assert done == ["later"]
    dead = {"queue": f"{queue.name}/$deadletterqueue"}
    rows = spark.read.format("servicebus").options(**{**queue.options, **dead}).load().collect()
    assert {(row.messageId, row.deadLetterReason, row.deliveryCount) for row in rows} == {
        (name, "MaxDeliveryCountExceeded", 2) for name in ("good", "poison")
    }


def test_S2_a_query_takes_all_that_was_there_also_after_a_start_that_died_early(
    queue: Queue,
) -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from partibus.pipeline.consuming import ConsumingStreamReader
    from partibus.pipeline.options import read_options

    queue.send_spread(100)
    options = read_options({**queue.options, "mode": "consume", "readerName": "spark"})
    died = ConsumingStreamReader(options, ["messageId"])
    start = died.initialOffset()
    # It was given a batch, and did not come to write that down.
    died.latestOffset(start, ReadMaxRows(30))

    reader = ConsumingStreamReader(options, ["messageId"])
    reader.prepareForTriggerAvailableNow()
    sizes = []
    found: list[str] = []
    while (end := reader.latestOffset(start, ReadMaxRows(30))) != start:
        parts = reader.partitions(start, end)
        rows = [
            each for part in parts for batch in reader.read(part) for each in batch["messageId"]
        ]
        sizes.append(len(rows))
        found += [each.as_py() for each in rows]
        start = end

    assert sizes == [30, 30, 30, 10]
    assert len(set(found)) == 100
    assert queue.received() == []
    died.stop()
    reader.stop()


def test_S2_a_checkpoint_that_does_not_fit_its_reader_is_reported(
    consuming: Consuming, queue: Queue
) -> None:
    from pyspark.errors import StreamingQueryException

    queue.send_spread(20)
    consuming.run()
    with Door(Place(queue.broker.connection_string, queue.name)) as door:
        door.ask("DELETE", "/consumers/spark")
    queue.send_spread(20, "later")

    with pytest.raises(StreamingQueryException, match="the reader was removed"):
        consuming.run()


def test_S1_only_streams_consume(spark: SparkSession, queue: Queue) -> None:
    from pyspark.errors import PySparkException

    given = {**queue.options, "mode": "consume", "readerName": "r"}
    with pytest.raises(PySparkException, match="is for streams"):
        spark.read.format("servicebus").options(**given).load().collect()
