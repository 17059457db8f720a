from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_S4_a_local_session_is_quiet_and_tuned(spark: SparkSession) -> None:
    from partibus.pipeline.session import SETTINGS, local_session

    for name, value in SETTINGS.items():
        assert spark.conf.get(name) == value
    assert local_session() is spark
