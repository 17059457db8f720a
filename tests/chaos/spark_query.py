"""A driver to be killed: copies a queue into another one and into Parquet, in small batches.

Run as a program: connection string, source, target, directory; or `consume`, and no target.
"""

from __future__ import annotations

import sys
from pathlib import Path

from partibus.pipeline import local_session

BATCH = "50"


def main(connection_string: str, source: str, target: str, directory: str) -> None:
    spark = local_session("to be killed", "local[2]")
    place = {"connectionString": connection_string}
    rows = (
        spark.readStream.format("servicebus")
        .options(**place, queue=source, startingOffsets="earliest", maxMessagesPerTrigger=BATCH)
        .load()
    )
    queries = []
    for name in ("queue", "parquet"):
        writer = rows.writeStream.option("checkpointLocation", str(Path(directory) / f"{name}.c"))
        if name == "queue":
            writer = writer.format("servicebus").options(**place, queue=target)
        else:
            writer = writer.format("parquet").option("path", str(Path(directory) / "parquet"))
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    print("done")


def consume(connection_string: str, source: str, directory: str) -> None:
    """Take a queue's messages out of it, into Parquet."""
    spark = local_session("to be killed", "local[2]")
    options = {"mode": "consume", "readerName": "chaos", "maxMessagesPerTrigger": BATCH}
    rows = spark.readStream.format("servicebus").options(
        connectionString=connection_string, queue=source, **options
    )
    writer = rows.load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(Path(directory) / "consume.c"))
    writer = writer.option("path", str(Path(directory) / "parquet"))
    writer.trigger(availableNow=True).start().awaitTermination()
    print("done")


if __name__ == "__main__":
    if sys.argv[1] == "consume":
        consume(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
