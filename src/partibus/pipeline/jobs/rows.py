"""Messages as rows for the jobs: from a capture, or from an entity as it is now.

A capture is a directory that `capture` wrote; any Parquet with the columns of messages will do.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import JobFailed, told
from partibus.pipeline.schema import TYPES
from partibus.wire.columns import READ_COLUMNS

DEAD_LETTERS = "/$deadletterqueue"


def captured(spark: SparkSession, directory: str) -> DataFrame:
    """The rows of a capture; none where nothing was captured yet."""
    try:
        return spark.read.parquet(directory)
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            # A directory without a file: no messages, or not one of ours.
            schema = StructType([StructField(n, TYPES[kind]) for n, kind in READ_COLUMNS.items()])
            return spark.createDataFrame([], schema.add("capturedTime", TYPES["timestamp"]))
        raise JobFailed(
            f"'{directory}' cannot be read as Parquet, as `partibus pipeline capture` writes it: "
            f"{str(error).partition(chr(10))[0]}"
        ) from error


def present(spark: SparkSession, broker: Broker, entity: str) -> DataFrame:
    """The messages that an entity has now; nothing is locked or taken."""
    with told():
        return spark.read.format("servicebus").options(**broker.options(entity)).load()


def key_of(frame: DataFrame) -> Column:
    """The key that a message was sent with, as the broker reads it (K1); null: none."""
    known = [name for name in ("sessionId", "partitionKey") if name in frame.columns]
    return f.coalesce(*(f.col(name) for name in known)) if known else f.lit(None).cast("string")


def chosen(frame: DataFrame, condition: str) -> DataFrame:
    """Those rows that a SQL expression is true of."""
    try:
        return frame.where(condition) if condition else frame
    except AnalysisException as error:
        first = str(error).partition("\n")[0]
        raise JobFailed(f'the filter "{condition}" cannot be used: {first}') from error


def subqueue_of(entity: str) -> tuple[str, str]:
    """An entity without the name of its sub-queue, and that sub-queue as metrics call it."""
    lowered = entity.lower()
    for suffix, subqueue in (
        ("/$transfer" + DEAD_LETTERS, "transfer_dead_letter"),
        (DEAD_LETTERS, "dead_letter"),
    ):
        if lowered.endswith(suffix):
            return entity[: -len(suffix)], subqueue
    return entity, "active"
