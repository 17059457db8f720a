"""A driver to be killed: copies a queue into another one and into Parquet, in small batches.

Run as a program: connection string, source, target, directory.
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


if __name__ == "__main__":
    main(*sys.argv[1:])
