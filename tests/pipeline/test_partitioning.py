from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from partibus.broker.partitioning import index_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All of Unicode but surrogates, which UTF-8 does not have.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=128)


def test_K2_spark_and_the_broker_agree_on_the_fragment_of_every_key(spark: SparkSession) -> None:
    from partibus.pipeline import fragment_of

    keys: set[str] = {"", "a", "grüezi", "\0", "💡" * 32}

    @settings(max_examples=500, database=None)
    @given(st.lists(texts, max_size=20))
    def gather(more: list[str]) -> None:
        keys.update(more)

    gather()
    frame = spark.createDataFrame([(key,) for key in keys], "key STRING")
    for fragments in (2, 4, 16):
        rows = frame.select("key", fragment_of("key", fragments).alias("fragment")).collect()
        assert len(rows) == len(keys)
        assert all(row.fragment == index_of(row.key, fragments) + 1 for row in rows)
