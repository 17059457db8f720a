"""Writing DataFrames and streams to an entity: staged by tasks, published once by the driver.

A task sends its rows in pieces that can be sent again; nobody sees them. The driver's commit names
the pieces of the tasks that won, and the broker publishes each message once, however often the
commit is repeated. A stream's batches are known by the query's id and their number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from partibus.pipeline.lending import lent
from partibus.pipeline.options import Place
from partibus.pipeline.reading import freeze

if TYPE_CHECKING:
    import pyarrow as pa

# A piece is held in memory until the broker has it, and the next beside it.
PIECE_BYTES = 8 * 1024 * 1024
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged: its pieces, and how many messages of each go to which fragment."""

    writer: str
    batch: int
    partition: int
    pieces: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go, and which column becomes what of a message."""

    place: Place
    columns: dict[str, str]

    def stage(self, batches: Iterator[pa.RecordBatch], staged: Staged, attempt: str) -> Staged:
        """In an executor: send rows, piece by piece, the next being made meanwhile."""
        freeze()
        with lent(self.place) as door, ThreadPoolExecutor(1) as sender:

            def send(name: str, piece: bytes) -> None:
                path = f"/writers/{staged.writer}/{staged.batch}/{name}"
                told = door.ask("PUT", path, {"spread": str(staged.partition)}, piece)
                staged.pieces[name] = told["fragments"]

            on_its_way: Future[None] | None = None
            for number, piece in enumerate(_pieces(batches, self.columns)):
                if on_its_way is not None:
                    on_its_way.result()
                on_its_way = sender.submit(send, f"{attempt}-{number}", piece)
            if on_its_way is not None:
                on_its_way.result()
        return staged

    def publish(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publish what the tasks have staged."""
        staged = sorted(_staged(messages), key=lambda each: each.partition)
        pieces = {name: counts for each in staged for name, counts in each.pieces.items()}
        if pieces:
            path = f"/writers/{staged[0].writer}/{staged[0].batch}"
            with lent(self.place) as door:
                door.insist("POST", path, json.dumps(pieces).encode())

    def discard(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: what was staged is not wanted."""
        with lent(self.place) as door:
            for each in _staged(messages):
                for name in each.pieces:
                    door.ask("DELETE", f"/writers/{each.writer}/{each.batch}/{name}")


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [each for each in messages if isinstance(each, Staged)]


def _pieces(batches: Iterator[pa.RecordBatch], columns: dict[str, str]) -> Iterator[bytes]:
    """The rows as Arrow streams of bounded size, with the columns of a message."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            arrays = [batch.column(name) for name in columns.values()]
            gathered.append(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
            size += batch.nbytes
        if size >= PIECE_BYTES:
            yield _encoded(gathered)
            gathered, size = [], 0
    if gathered:
        yield _encoded(gathered)


def _encoded(batches: list[pa.RecordBatch]) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _attempt() -> tuple[Any, str]:
    """The context of this task, and a name for this attempt that no other has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context, f"{context.partitionId()}-{context.taskAttemptId()}-{os.urandom(8).hex()}"


class BatchWriter(DataSourceArrowWriter):
    """A whole DataFrame: all of it is published, or nothing was."""

    def __init__(self, sink: Sink, writer_name: str, batch: int = 0) -> None:
        self._sink = sink
        self._writer = writer_name or os.urandom(16).hex()
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In an executor."""
        context, attempt = _attempt()
        staged = Staged(self._writer, self._batch, context.partitionId())
        return self._sink.stage(iterator, staged, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: every task has staged its rows."""
        self._sink.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: a task failed for good."""
        self._sink.discard(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream: each of its batches is published once, over restarts."""

    def __init__(self, sink: Sink, writer_name: str) -> None:
        self._sink = sink
        self._writer = writer_name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In an executor."""
        context, attempt = _attempt()
        writer = self._writer or context.getLocalProperty(QUERY_ID)
        batch = context.getLocalProperty(BATCH_ID)
        if not writer or batch is None:
            raise RuntimeError("Spark does not say which query and batch this is")
        staged = Staged(writer, int(batch), context.partitionId())
        return self._sink.stage(iterator, staged, attempt)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: every task has staged its rows of this batch."""
        assert all(each.batch == batchId for each in _staged(messages))
        self._sink.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: a task failed for good."""
        self._sink.discard(messages)
