"""Captures: each message once in Parquet by date and fragment, over interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partibus.pipeline.jobs import Broker, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue


def broker_of(queue: Queue) -> Broker:
    return Broker(queue.broker.connection_string)


def test_S3_a_capture_has_each_message_once_over_several_runs(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.capture import capture

    sent = queue.send_spread(100, "a")
    out = (tmp_path / "out").as_uri()
    told: list[tuple[int, int | None]] = []
    first = capture(
        spark,
        broker_of(queue),
        queue.name,
        out,
        messages_per_batch=40,
        progress=lambda what, done, total: told.append((done, total)),
    )
    assert (first.messages, first.behind) == (100, 0)
    assert first.batches >= 2
    assert told[-1] == (100, 100)
    again = capture(spark, broker_of(queue), queue.name, out)
    assert again.messages == 0
    sent |= queue.send_spread(40, "b")
    assert capture(spark, broker_of(queue), queue.name, out).messages == 40
    rows = spark.read.parquet(out)
    assert sorted(row.messageId for row in rows.collect()) == sorted(sent)
    assert {"date", "fragment", "body", "capturedTime"} <= set(rows.columns)
    (day,) = list((tmp_path / "out").glob("date=*"))
    assert len(list(day.glob("fragment=*"))) > 4


def test_S3_a_continuous_capture_goes_on_until_it_is_told_to_end(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.capture import capture

    queue.send("first")
    seen: list[int] = []

    def progress(what: str, done: int, total: int | None) -> None:
        if done == 1 and 1 not in seen:
            queue.send("second")
        seen.append(done)

    out = str(tmp_path / "out")
    found = capture(
        spark,
        broker_of(queue),
        queue.name,
        out,
        continuous=True,
        every_s=0.2,
        progress=progress,
        until=lambda: seen[-1] == 2,
    )
    assert found.messages == 2
    assert sorted(row.messageId for row in spark.read.parquet(out).collect()) == ["first", "second"]


def test_S3_a_job_that_cannot_be_done_says_why_in_one_line(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.capture import capture

    with pytest.raises(JobFailed, match="no-such-queue") as told:
        capture(spark, broker_of(queue), "no-such-queue", str(tmp_path / "out"))
    assert "\n" not in str(told.value)
    assert "SharedAccessKey=" not in str(told.value)
