from __future__ import annotations

import pytest


def test_S1_spark_finds_the_format_under_its_name() -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")
    import pyspark_servicebus
    from partibus.pipeline import ServiceBusDataSource
    from partibus.pipeline.source import ServiceBusDataSource as Source

    assert pyspark_servicebus.DefaultSource is ServiceBusDataSource is Source
    assert Source.name() == "servicebus"


def test_S1_the_pipeline_has_nothing_else() -> None:
    import partibus.pipeline

    with pytest.raises(AttributeError):
        partibus.pipeline.nothing  # noqa: B018 - asked for
