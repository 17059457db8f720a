"""What Spark does and no document says, and what readers depend on all the same.

A source that writes down what it is asked, run by the Spark that is installed: if another version
does otherwise, this fails, and not a query of somebody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Finish = Callable[[Callable[[], Any]], Any]
BATCHES = 3


def recording_source(log: str) -> type:  # noqa: C901 - one class, small methods
    """Batches of one row each, and a line in a file for everything that is asked."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    def note(*what: object) -> None:
        with Path(log).open("a") as file:
            file.write(" ".join(map(str, what)) + "\n")

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def prepareForTriggerAvailableNow(self) -> None:
            note("start")

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            note("latest", start["at"])
            return {"at": min(start["at"] + 1, BATCHES)}

        def partitions(
            self, start: dict[str, int], end: dict[str, int]
        ) -> Sequence[InputPartition]:
            note("partitions", start["at"], end["at"])
            return [InputPartition(end["at"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

        def commit(self, end: dict[str, int]) -> None:
            note("commit", end["at"])

    class Recording(DataSource):
        @classmethod
        def name(cls) -> str:
            return "recording"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    return Recording


def test_S2_spark_asks_for_more_only_behind_what_it_has_done_and_commits_late(
    spark: SparkSession, tmp_path: Path, finish: Finish
) -> None:
    from pyspark.errors import StreamingQueryException

    log = tmp_path / "log"
    spark.dataSource.register(recording_source(str(log)))
    is_broken = True

    def write(rows: DataFrame, number: int) -> None:
        rows.collect()
        if is_broken and number == 1:
            raise RuntimeError("the sink is full")
        with log.open("a") as file:
            file.write(f"done {number + 1}\n")

    def start() -> Any:
        writer = spark.readStream.format("recording").load().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        finish(start)
    before = log.read_text().splitlines()
    is_broken = False
    finish(start)
    lines = log.read_text().splitlines()
    after = lines[len(before) :]

    # Where a batch begins was done: our readers take it for an acknowledgement.
    for at, line in enumerate(lines):
        what, *numbers = line.split()
        if what in ("latest", "commit") and numbers != ["0"]:
            assert f"done {numbers[0]}" in lines[:at], (line, lines)
    # The open batch is run again as it was, before anything else is asked.
    assert "done 2" not in before
    first = next(line for line in after if line.split()[0] in ("partitions", "latest"))
    assert first == "partitions 1 2", lines
    # Behind the last batch it asks once more, and that is how its end becomes known: a commit
    # comes with the next batch only, and the last one has none.
    assert f"latest {BATCHES}" in after, lines
    assert lines.index("commit 1") > lines.index("done 1")
    assert f"commit {BATCHES}" not in lines
