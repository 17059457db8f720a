"""`capture`: an entity into Parquet files by date and fragment, each message once.

A stream with a checkpoint beside its output: run again, it goes on where it was, also after a
kill. Nothing is taken out of the entity. What consumers complete before it was captured is not
there, unless the capture has a reader name, for which the broker keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import told
from partibus.pipeline.jobs.progress import Progress, silent
from partibus.pipeline.lag import lag_of

# In the output, where readers of Parquet do not look.
CHECKPOINT = "_checkpoint"
MESSAGES_PER_BATCH = 500_000
LOOK_EVERY_S = 0.5
EVERY_S = 10.0
# How often a query is started that Spark could not start.
STARTS_MAX = 5
_US_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capture did in this run."""

    entity: str
    directory: str
    messages: int
    batches: int
    # Positions that were still to be read when it ended.
    behind: int


def capture(
    spark: SparkSession,
    broker: Broker,
    entity: str,
    directory: str,
    *,
    continuous: bool = False,
    every_s: float = EVERY_S,
    reader_name: str = "",
    messages_per_batch: int = MESSAGES_PER_BATCH,
    progress: Progress = silent,
    until: Callable[[], bool] = lambda: False,
) -> Captured:
    """Capture what is there now, or go on until `until` says so or somebody interrupts.

    The directory gets `date=…/fragment=…` with all columns of messages and `capturedTime`.
    """
    options = {
        **broker.options(entity),
        "startingOffsets": "earliest",
        "maxMessagesPerTrigger": str(messages_per_batch),
    }
    # Empty, it says that this is meant.
    options["readerName"] = reader_name
    with told():
        stream = dated(spark.readStream.format("servicebus").options(**options).load())
        writer = (
            stream.writeStream.format("parquet")
            .partitionBy("date", "fragment")
            .option("checkpointLocation", f"{directory.rstrip('/')}/{CHECKPOINT}")
        )
        if continuous:
            writer = writer.trigger(processingTime=f"{every_s} seconds")
        else:
            writer = writer.trigger(availableNow=True)
        seen = _Seen(progress)
        for attempt in range(1, STARTS_MAX + 1):
            try:
                _run(writer.start(directory), seen, until)
            except StreamingQueryException as error:
                # Spark waits ten seconds for a Python process, which a busy machine may need.
                if "connect back" not in str(error) or attempt == STARTS_MAX:
                    raise
            else:
                break
    return Captured(entity, directory, seen.messages, len(seen.batches), seen.behind)


def _run(query: StreamingQuery, seen: _Seen, until: Callable[[], bool]) -> None:
    """Wait for a query to end, or end it."""
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            seen.look(query)
            if until():
                break
    except KeyboardInterrupt:
        # How a continuous capture is told to end; the batch under way is done next time.
        pass
    finally:
        query.stop()
    seen.look(query)


def dated(messages: DataFrame) -> DataFrame:
    """With the day of arrival in UTC, whatever the session's zone, and the time of capture."""
    day = f.floor(f.unix_micros("enqueuedTime") / f.lit(_US_PER_DAY)).cast("int")
    return messages.withColumn("date", f.date_from_unix_date(day)).withColumn(
        "capturedTime", f.current_timestamp()
    )


class _Seen:
    """What a query has told of its batches; it tells the last ones again and again."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.batches: set[int] = set()
        self.messages = 0
        self.behind = 0

    def look(self, query: StreamingQuery) -> None:
        for each in query.recentProgress:
            if each.batchId not in self.batches and each.numInputRows:
                self.batches.add(each.batchId)
                self.messages += each.numInputRows
                self.behind = sum(lag_of(each).values())
        total = self.messages + self.behind if self.batches else None
        self._progress("captured", self.messages, total)
