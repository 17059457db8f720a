"""`replay`: captured messages or dead letters into an entity, chosen, paced, each once.

What is to be sent is laid out first, in the order of arrival, in a directory of its own; from there
it is published batch by batch. With a directory that stays, an interrupted replay goes on where it
was, and a finished one does nothing more. The source keeps what it has.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import JobFailed, told
from partibus.pipeline.jobs.progress import Progress, silent
from partibus.pipeline.jobs.publishing import publish
from partibus.pipeline.jobs.rows import captured, chosen, present
from partibus.wire.columns import WRITE_COLUMNS

BATCH_MAX = 100_000
# With a rate, a batch is what may be sent in this time.
BATCH_S = 1.0
INDEX = "_index"
# What the broker adds to a dead letter; sent again, it is none.
DEAD_LETTER_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")
# Said when it was first sent: a replay is sent now, and lives as long as its new entity says.
_NOT_AGAIN = ("scheduledEnqueueTime", "timeToLive")
_ROW_BITS = 33


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, this run and those before it together."""

    target: str
    source: str
    messages: int
    batches: int
    # How many of the messages were sent by an earlier run.
    before: int


@dataclass(slots=True)
class _State:
    """What a replay has to know again when it goes on."""

    source: str
    target: str
    where: str
    new_ids: bool
    batch_size: int
    name: str
    total: int = -1
    done: int = 0


def replay(
    spark: SparkSession,
    broker: Broker,
    target: str,
    *,
    parquet: str = "",
    entity: str = "",
    where: str = "",
    rate: float = 0.0,
    new_ids: bool = False,
    state: str = "",
    progress: Progress = silent,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Replayed:
    """Send messages of a capture (`parquet`) or of an entity or dead-letter queue to `target`.

    `where` is a SQL expression over the columns of messages; `rate` is in messages a second, 0 for
    no limit; `state` is a local directory that makes the replay one that can be continued.
    """
    if bool(parquet) == bool(entity):
        raise JobFailed("give a capture or an entity to replay from, and not both")
    if rate < 0:
        raise JobFailed(f"a rate of {rate} messages a second cannot be kept; 0 is without a limit")
    if entity and entity.lower() == target.lower():
        raise JobFailed(f"'{entity}' cannot be replayed into itself: it would never end")
    directory = Path(state or tempfile.mkdtemp(prefix="partibus-replay-")).resolve()
    try:
        size = max(1, min(BATCH_MAX, round(rate * BATCH_S))) if rate > 0 else BATCH_MAX
        name = f"replay-{os.urandom(8).hex()}"
        asked = _State(parquet or entity, target, where, new_ids, size, name)
        known = _begin(directory, asked)
        rows = directory / "rows"
        if known.total < 0:
            frame = captured(spark, parquet) if parquet else present(spark, broker, entity)
            known.total = _lay_out(spark, chosen(frame, where), rows, known, progress)
            _save(directory, known)
        before = known.done
        _publish(spark, broker, rows, directory, known, rate, progress, clock, sleep)
        batches = -(-known.total // known.batch_size)
        return Replayed(target, known.source, known.total, batches, before)
    finally:
        if not state:
            shutil.rmtree(directory, ignore_errors=True)


def _begin(directory: Path, asked: _State) -> _State:
    """What was begun in this directory, or a new beginning."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "replay.json"
    if not file.exists():
        _save(directory, asked)
        return asked
    known = _State(**json.loads(file.read_text()))
    for name in ("source", "target", "where", "new_ids"):
        if getattr(known, name) != getattr(asked, name):
            raise JobFailed(
                f"'{directory}' belongs to another replay ({name}: {getattr(known, name)!r}); "
                "choose another directory, or delete it"
            )
    return known


def _save(directory: Path, state: _State) -> None:
    new = directory / "replay.json.new"
    new.write_text(json.dumps(asdict(state)))
    new.replace(directory / "replay.json")


def _lay_out(
    spark: SparkSession, frame: DataFrame, rows: Path, state: _State, progress: Progress
) -> int:
    """Write what is to be sent in order and numbered; returns how many there are."""
    progress("laid out", 0, None)
    order = [name for name in ("enqueuedTime", "fragment", "position") if name in frame.columns]
    kept = [name for name in WRITE_COLUMNS if name in frame.columns and name not in _NOT_AGAIN]
    if "body" not in kept:
        raise JobFailed(f"'{state.source}' has no column 'body'; is it a capture?")
    with told():
        found = frame.select(*kept, *(name for name in order if name not in kept))
        if "applicationProperties" in kept:
            found = found.withColumn("applicationProperties", _without_reasons())
        ordered = (found.sort(*order) if order else found).drop(*order)
        # Sorted into ranges, and numbered within each: made whole by what went before.
        numbered = ordered.withColumn(INDEX, f.monotonically_increasing_id())
        raw = rows.with_name("numbered")
        numbered.write.mode("overwrite").parquet(raw.as_uri())
        numbered = spark.read.parquet(raw.as_uri())
        part = f.shiftright(INDEX, _ROW_BITS)
        counts = {
            row.part: row["count"] for row in numbered.groupBy(part.alias("part")).count().collect()
        }
        total = 0
        starts: list[tuple[int, int]] = []
        for number in sorted(counts):
            starts.append((number, total))
            total += counts[number]
        if starts:
            offsets = spark.createDataFrame(starts, "part LONG, start LONG")
            row = f.col(INDEX).bitwiseAND(f.lit((1 << _ROW_BITS) - 1))
            whole = numbered.withColumn("part", part).join(f.broadcast(offsets), "part")
            whole = whole.withColumn(INDEX, f.col("start") + row).drop("part", "start")
            if state.new_ids:
                new_id = f.substring(f.sha2(f.concat(f.lit(state.name), f.col(INDEX)), 256), 1, 32)
                whole = whole.withColumn("messageId", new_id)
            whole.write.mode("overwrite").parquet(rows.as_uri())
        shutil.rmtree(raw, ignore_errors=True)
    return total


def _without_reasons() -> Column:
    names = f.array(*(f.lit(name) for name in DEAD_LETTER_PROPERTIES))
    return f.map_filter("applicationProperties", lambda name, _: ~f.array_contains(names, name))


def _publish(
    spark: SparkSession,
    broker: Broker,
    rows: Path,
    directory: Path,
    state: _State,
    rate: float,
    progress: Progress,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    size, total = state.batch_size, state.total
    progress("sent", state.done, total)
    if state.done >= total:
        return
    frame = spark.read.parquet(rows.as_uri())
    tasks = spark.sparkContext.defaultParallelism
    began_s, sent = clock(), 0
    while state.done < total:
        first = state.done
        last = min(first + size, total)
        if rate > 0 and sent:
            sleep(max(0.0, began_s + sent / rate - clock()))
        batch = frame.where(f.col(INDEX).between(first, last - 1))
        with told():
            publish(batch, broker, state.target, state.name, first, index=INDEX, tasks=tasks)
        state.done = last
        sent += last - first
        _save(directory, state)
        progress("sent", last, total)
