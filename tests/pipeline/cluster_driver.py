"""A driver to be killed, in a process of its own: reads, writes and streams on a Spark cluster.

Run as a program: connection string, directory, master. Prints what was read and written as JSON,
then runs two streams to their end, a queue into another queue and, by a job, into Parquet. Run
again with the same directory, it goes on with the streams.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from partibus.pipeline import local_session
from partibus.pipeline.jobs import Broker, capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH = 20
WRITTEN = 300


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


def read_and_write(spark: SparkSession, place: dict[str, str]) -> None:
    """At once, by the executors."""
    rows = spark.read.format("servicebus").options(**place, queue="source").load()
    say({"read": [row.messageId for row in rows.select("messageId").collect()]})
    frame = spark.range(WRITTEN, numPartitions=4).selectExpr(
        "concat('w', id) AS messageId", "concat('key ', id % 7) AS partitionKey", "'x' AS body"
    )
    frame.write.format("servicebus").options(**place, queue="written").mode("append").save()
    say({"written": WRITTEN})


def copying(spark: SparkSession, place: dict[str, str], directory: Path) -> StreamingQuery:
    """A stream from a queue into another."""
    options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": str(BATCH)}
    rows = spark.readStream.format("servicebus").options(**place, queue="source", **options).load()
    writer = rows.writeStream.format("servicebus").options(**place, queue="target")
    writer = writer.option("checkpointLocation", str(directory / "queue.checkpoint"))
    return writer.trigger(availableNow=True).start()


def main(connection_string: str, directory: str, master: str) -> None:
    spark = local_session("to be killed", master)
    place = {"connectionString": connection_string}
    if master.startswith("local-cluster"):
        read_and_write(spark, place)
    # The same queue into Parquet, by a job, at the same time.
    captured = str(Path(directory) / "parquet")
    with ThreadPoolExecutor(1) as pool:
        broker = Broker(connection_string)
        job = pool.submit(capture, spark, broker, "source", captured, messages_per_batch=BATCH)
        copying(spark, place, Path(directory)).awaitTermination()
        say({"captured": job.result().messages})
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
