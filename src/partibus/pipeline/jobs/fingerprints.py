"""What the messages of an entity are, in a form that two entities can be compared by.

For each key: how many messages, and a hash over their contents in their order. Messages without a
key have no order; for each content it is kept how many there are. What has come to an entity behind
what was there before is told apart from a difference: the order of each key begins as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from partibus.pipeline.jobs.rows import key_of

CONTENTS = ("messageId", "subject", "correlationId", "contentType", "to", "replyTo", "body")
SCHEMA = (
    "fragment INT, position LONG, messageId STRING, sessionId STRING, partitionKey STRING, "
    "subject STRING, correlationId STRING, contentType STRING, to STRING, replyTo STRING, "
    "state STRING, applicationProperties MAP<STRING, STRING>, body BINARY"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """How an entity differs from what was there before."""

    messages_before: int
    messages_after: int
    # Keys of which messages are missing, changed, or in another order.
    keys: list[str]
    keys_different: int
    # Messages that have come behind all others of their key.
    late: int

    @property
    def is_none(self) -> bool:
        """Whether they hold the same."""
        return not self.keys_different and not self.late


def _contents(rows: DataFrame) -> DataFrame:
    properties = f.to_json(f.array_sort(f.map_entries("applicationProperties")))
    texts = [f.coalesce(f.col(name).cast("string"), f.lit("\0")) for name in CONTENTS]
    content = f.xxhash64(*texts, f.coalesce(properties, f.lit("[]")))
    return rows.select(key_of(rows).alias("key"), "position", content.alias("content"))


def _keyed(contents: DataFrame) -> DataFrame:
    """For each key the contents in order."""
    ordered = f.array_sort(f.collect_list(f.struct("position", "content")))
    return (
        contents.where("key IS NOT NULL")
        .groupBy("key")
        .agg(f.transform(ordered, lambda each: each["content"]).alias("contents"))
    )


def _keyless(contents: DataFrame) -> DataFrame:
    """For each content of messages without a key, how many there are."""
    return contents.where("key IS NULL").groupBy("content").agg(f.count("*").alias("messages"))


def keep(rows: DataFrame, directory: str) -> int:
    """Write the fingerprint of these messages to a directory; returns how many they are."""
    contents = _contents(rows)
    keyed = _keyed(contents).select(
        "key",
        f.lit(None).cast("long").alias("content"),
        f.size("contents").cast("long").alias("messages"),
        f.xxhash64("contents").alias("order"),
    )
    keyless = _keyless(contents).select(
        f.lit(None).cast("string").alias("key"),
        "content",
        "messages",
        f.lit(None).cast("long").alias("order"),
    )
    keyed.unionByName(keyless).write.mode("overwrite").parquet(directory)
    row = rows.sparkSession.read.parquet(directory).agg(f.sum("messages").alias("n")).first()
    return int(row.n or 0) if row else 0


def compare(spark: SparkSession, directory: str, rows: DataFrame, shown: int = 5) -> Difference:
    """Compare a fingerprint that was kept with the messages of another entity."""
    before = spark.read.parquet(directory)
    contents = _contents(rows)
    was = f.coalesce("messages", f.lit(0)).cast("long")
    keyed = (
        before.where("key IS NOT NULL")
        .join(_keyed(contents), "key", "full_outer")
        .select(
            "key",
            was.alias("was"),
            f.coalesce(f.size("contents"), f.lit(0)).cast("long").alias("now"),
            # As many as there were; of a key that is new, none.
            f.coalesce(
                f.xxhash64(f.slice("contents", f.lit(1), was.cast("int"))) == f.col("order"),
                f.col("order").isNull(),
            ).alias("begins"),
        )
    )
    after = _keyless(contents).withColumnRenamed("messages", "now")
    keyless = (
        before.where("key IS NULL")
        .join(after, "content", "full_outer")
        .select(
            f.lit("(none)").alias("key"),
            was.alias("was"),
            f.coalesce("now", f.lit(0)).cast("long").alias("now"),
            f.lit(True).alias("begins"),
        )
    )
    found = keyed.unionByName(keyless).cache()
    try:
        whole = f.col("begins") & (f.col("now") >= f.col("was"))
        total = found.agg(
            f.sum("was").alias("was"),
            f.sum("now").alias("now"),
            f.sum(f.when(whole, f.col("now") - f.col("was")).otherwise(0)).alias("late"),
        ).first()
        wrong = found.where(~whole).groupBy("key").count()
        keys = [row.key for row in wrong.orderBy("key").limit(shown).collect()]
        assert total is not None, "a sum is a row"
        return Difference(
            int(total.was or 0), int(total.now or 0), keys, wrong.count(), int(total.late or 0)
        )
    finally:
        found.unpersist()
