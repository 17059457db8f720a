"""The broker's routing rule as a Spark expression: which fragment a key belongs to.

The same hash on both sides, so a DataFrame can be arranged by fragment without asking the broker.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

FRAGMENTS = 16


def fragment_of(key: Column | str, fragments: int = FRAGMENTS) -> Column:
    """The `fragment` of a session id or partition key, as messages of that key have it."""
    return (f.pmod(f.xxhash64(key), f.lit(fragments)) + 1).cast("int")


def arranged(frame: DataFrame, key: str, fragments: int = FRAGMENTS) -> DataFrame:
    """The rows with all of one key in one task, so that a write keeps the order within keys."""
    return frame.repartition(fragments, fragment_of(key, fragments))
