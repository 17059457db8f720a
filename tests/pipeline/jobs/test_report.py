"""Reports: the numbers are right, and a page of them holds nothing that a message could break."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_S3_a_report_tells_skew_hot_keys_arrivals_latency_and_reasons(spark: SparkSession) -> None:
    from partibus.pipeline.jobs.report import report
    from partibus.pipeline.jobs.report_page import page

    frame = spark.range(400).selectExpr(
        "CAST(IF(id < 300, 1, 2) AS INT) AS fragment",
        "id AS position",
        "IF(id < 300, '<script>', 'b') AS partitionKey",
        "timestamp_micros(1700000000000000 + id * 1000000) AS enqueuedTime",
        "timestamp_micros(1700000000000000 + id * 1000000 + 50000) AS capturedTime",
        "CAST('12345' AS BINARY) AS body",
    )
    dead = spark.createDataFrame([("Timeout",), ("Timeout",), (None,)], "deadLetterReason STRING")

    found = report(frame, "orders", dead_letters=dead)

    assert (found.messages, found.bytes) == (400, 2000)
    assert [each["messages"] for each in found.fragments] == [300, 100]
    assert found.skew == pytest.approx(1.5)
    assert found.gini == pytest.approx(0.25)
    assert found.hot_keys[0] == {"key": "<script>", "messages": 300}
    assert sum(each["messages"] for each in found.arrivals) == 400
    assert found.arrival_width_s == 5
    assert not found.latency_is_age
    assert found.latency["p99"] == pytest.approx(0.05)
    assert {each["upto_s"]: each["messages"] for each in found.latencies}[0.1] == 400
    assert found.dead_letters[0] == {"reason": "Timeout", "messages": 2}
    text = page(found)
    assert "<script>" not in text
    assert "://" not in text, "nothing from elsewhere"
    assert text.count("<svg") == 5
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")
    assert found.as_json()["messages"] == 400


def test_S3_a_report_of_nothing_says_so(spark: SparkSession) -> None:
    from partibus.pipeline.jobs.report import Report
    from partibus.pipeline.jobs.report_page import page

    assert "There are no messages" in page(Report("empty"))
