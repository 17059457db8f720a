"""A driver to be killed, in a process of its own: reads, writes and streams on a Spark cluster.

Run as a program: connection string, directory, master. Prints what was read and written as JSON,
then runs two streams to their end, a queue into Parquet and into another queue. Run again with the
same directory, it goes on with the streams.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from partibus.pipeline import local_session
from partibus.pipeline.jobs import Broker, capture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH = "20"
WRITTEN = 300


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


def read_and_write(spark: SparkSession, place: dict[str, str], directory: Path) -> None:
    """At once, by the executors."""
    rows = spark.read.format("servicebus").options(**place, queue="source").load()
    say({"read": [row.messageId for row in rows.select("messageId").collect()]})
    frame = spark.range(WRITTEN, numPartitions=4).selectExpr(
        "concat('w', id) AS messageId", "concat('key ', id % 7) AS partitionKey", "'x' AS body"
    )
    frame.write.format("servicebus").options(**place, queue="written").mode("append").save()
    say({"written": WRITTEN})
    broker = Broker(place["connectionString"])
    say({"captured": capture(spark, broker, "written", str(directory / "captured")).messages})


def streams(spark: SparkSession, place: dict[str, str], directory: Path) -> list[StreamingQuery]:
    """The same queue into files and into a queue."""
    options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": BATCH}
    rows = spark.readStream.format("servicebus").options(**place, queue="source", **options).load()
    writers = {
        "queue": rows.writeStream.format("servicebus").options(**place, queue="target"),
        "parquet": rows.select("messageId")
        .writeStream.format("parquet")
        .option("path", str(directory / "parquet")),
    }
    return [
        writer.option("checkpointLocation", str(directory / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start()
        for name, writer in writers.items()
    ]


def main(connection_string: str, directory: str, master: str) -> None:
    spark = local_session("to be killed", master)
    place = {"connectionString": connection_string}
    if master.startswith("local-cluster"):
        read_and_write(spark, place, Path(directory))
    for query in streams(spark, place, Path(directory)):
        query.awaitTermination()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
