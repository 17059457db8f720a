"""What the messages of an entity are, in a form that two entities can be compared by.

For each key: how many messages, the sum of their contents' hashes, and a hash over them in their
order. Messages without a key have no order; they are compared as a set.
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
    """How two entities differ."""

    messages_before: int
    messages_after: int
    # Keys of which messages are missing, too many, changed, or in another order.
    keys: list[str]
    keys_different: int

    @property
    def is_none(self) -> bool:
        """Whether they hold the same."""
        return not self.keys_different


def fingerprint(rows: DataFrame) -> DataFrame:
    """One row for each key, and one for messages without."""
    properties = f.to_json(f.array_sort(f.map_entries("applicationProperties")))
    texts = [f.coalesce(f.col(name).cast("string"), f.lit("\0")) for name in CONTENTS]
    content = f.xxhash64(*texts, f.coalesce(properties, f.lit("[]")))
    key = key_of(rows)
    named = rows.select(key.alias("key"), "position", content.alias("content"))
    ordered = f.array_sort(f.collect_list(f.struct("position", "content")))
    grouped = named.where("key IS NOT NULL").groupBy("key")
    keyed = grouped.agg(
        f.count("*").alias("messages"),
        f.sum(f.col("content").cast("decimal(38)")).alias("contents"),
        f.xxhash64(f.transform(ordered, lambda each: each["content"])).alias("order"),
    )
    rest = named.where("key IS NULL").agg(
        f.lit(None).cast("string").alias("key"),
        f.count("*").alias("messages"),
        f.sum(f.col("content").cast("decimal(38)")).alias("contents"),
        f.lit(0).cast("long").alias("order"),
    )
    return keyed.unionByName(rest)


def keep(rows: DataFrame, directory: str) -> int:
    """Write the fingerprint of these messages to a directory; returns how many they are."""
    fingerprint(rows).write.mode("overwrite").parquet(directory)
    row = rows.sparkSession.read.parquet(directory).agg(f.sum("messages").alias("n")).first()
    return int(row.n or 0) if row else 0


def compare(spark: SparkSession, directory: str, rows: DataFrame, shown: int = 5) -> Difference:
    """Compare a fingerprint that was kept with the messages of another entity."""
    before = spark.read.parquet(directory).alias("before")
    after = fingerprint(rows).alias("after")
    same = [
        f.col(f"before.{name}").eqNullSafe(f.col(f"after.{name}"))
        for name in ("messages", "contents", "order")
    ]
    joined = before.join(
        after, f.col("before.key").eqNullSafe(f.col("after.key")), "full_outer"
    ).select(
        f.coalesce("before.key", "after.key", f.lit("(none)")).alias("key"),
        f.coalesce("before.messages", f.lit(0)).alias("was"),
        f.coalesce("after.messages", f.lit(0)).alias("now"),
        (same[0] & same[1] & same[2]).alias("same"),
    ).cache()  # fmt: skip
    try:
        total = joined.agg(f.sum("was").alias("was"), f.sum("now").alias("now")).first()
        wrong = joined.where("NOT same")
        keys = [row.key for row in wrong.orderBy("key").limit(shown).collect()]
        return Difference(
            int(total.was or 0) if total else 0,
            int(total.now or 0) if total else 0,
            keys,
            wrong.count(),
        )
    finally:
        joined.unpersist()
