"""Rows into an entity in numbered batches, each once, in the order of an index within each key.

The batches are those of the `servicebus` format: one that was published before is not published
again, however late it is repeated.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.rows import key_of

# Rows of one key are in one task; more tasks than this are of no use to any entity.
TASKS_MAX = 64


def publish(
    rows: DataFrame, broker: Broker, target: str, writer: str, batch: int, *, index: str, tasks: int
) -> None:
    """Publish all rows as one batch of a writer; `index` says the order, and is not written."""
    key = f.coalesce(key_of(rows), f.col(index).cast("string"))
    count = max(1, min(tasks, TASKS_MAX))
    if count == 1:
        arranged = rows.coalesce(1).sortWithinPartitions(index)
    else:
        task = f.pmod(f.xxhash64(key), f.lit(count))
        arranged = rows.repartition(count, task).sortWithinPartitions(index)
    (
        arranged.drop(index)
        .write.format("servicebus")
        .options(**broker.options(target), writerName=writer, writerBatch=str(batch))
        .mode("append")
        .save()
    )
