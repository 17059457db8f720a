"""The process beside a node that reads the stores' files for bulk readers.

Accepts connections on a socket inherited from the node. A request is one line of JSON; the answer
is one line of JSON, then what it announces as chunks with their lengths before them, of which the
last is empty: a stream without its last chunk was cut off. It ends when the node does.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import pyarrow as pa

from partibus.broker.consuming import MESSAGES, NOTE, read_consumer
from partibus.broker.errors import InvalidArgument, Refusal
from partibus.broker.records import FragmentKey, SubQueue
from partibus.management.bulk.rows import RowRefused, Rows, Target
from partibus.management.bulk.table import Table, UnknownColumn
from partibus.store import StoreError
from partibus.store.browsing import StoreFile
from partibus.store.staging import StagedWriter, staged_name

# Senders and receivers come first.
NICENESS = 5
COLLECT_AFTER = (100_000, 50, 100)
REQUEST_BYTES_MAX = 1024 * 1024
# Open files kept for the next request, per store.
FILES_KEPT_MAX = 4
# Who asks for all named readers names this one.
EVERY_READER = "*"
# Arrow's record batches leave in chunks of this size at most.
CHUNK_BYTES = 256 * 1024
# What ends a stream of record batches.
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# What is written is looked at in parts of about this size.
GATHERED_BYTES = 8 * 1024 * 1024

Request = dict[str, Any]


class Worker:
    """Answers requests, each in a thread of its own; the node bounds their number."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = [Path(path) for path in paths]
        self._idle: list[SimpleQueue[StoreFile]] = [SimpleQueue() for _ in paths]

    def serve(self, listening: socket.socket) -> None:
        """Answer until the socket is closed."""
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        # Who asked may be gone; there is nobody to tell then.
        with connection, suppress(OSError), connection.makefile("rb") as lines:
            line = lines.readline(REQUEST_BYTES_MAX)
            if not line:
                return
            request: Request = json.loads(line)
            try:
                if request["what"] == "stage":
                    self._stage(request, connection, lines)
                elif request["what"] == "positions":
                    self._positions(request, connection)
                elif request["what"] == "reserved":
                    self._reserved(request, connection)
                else:
                    self._messages(request, connection)
            except (UnknownColumn, RowRefused, Refusal) as error:
                _say(connection, {"status": 400, "detail": str(error)})
            except StoreError as error:
                _say(connection, {"status": 503, "detail": str(error)})

    @contextmanager
    def _file(self, store: int) -> Iterator[StoreFile]:
        """A store's file for this thread; one that failed is opened anew next time."""
        idle = self._idle[store]
        try:
            file = idle.get_nowait()
        except Empty:
            file = StoreFile(self._paths[store])
        try:
            yield file
        except BaseException:
            file.close()
            raise
        if idle.qsize() < FILES_KEPT_MAX:
            idle.put(file)
        else:
            file.close()

    def _positions(self, request: Request, connection: socket.socket) -> None:
        found = [
            self._position(
                store, FragmentKey(*key), request.get("at_ms"), request.get("reader", "")
            )
            for store, *key in request["fragments"]
        ]
        _say(connection, {"status": 200, "fragments": found})

    def _position(
        self, store: int, key: FragmentKey, at_ms: int | None, reader: str
    ) -> dict[str, Any]:
        """First and last position of a fragment, and what it holds."""
        try:
            with self._file(store) as file:
                summary = file.fragment(key)
                if summary is None:
                    return {"fragment": key.partition, "first": 1, "last": 0, "before": 0}
                counters = summary.counters
                last = counters.next_position - 1
                first = file.first(summary.number)
                found: dict[str, Any] = {
                    "fragment": key.partition,
                    "first": first[0] if first else last + 1,
                    "last": last,
                    "active": counters.active,
                    "deferred": counters.deferred,
                    "bytes": counters.bytes,
                }
                if at_ms is not None and key.subqueue == SubQueue.ACTIVE:
                    found["before"] = file.before(summary.number, last, at_ms)
                if reader == EVERY_READER:
                    found["readers"], found["keptBytes"] = file.readers(summary.number)
                elif reader:
                    found["reader"] = file.cursor(summary.number, reader)
                    found["first"] = min(
                        found["first"], file.first_kept(summary.number) or last + 1
                    )
                return found
        except StoreError as error:
            return {"fragment": key.partition, "unavailable": str(error)}

    def _messages(self, request: Request, connection: socket.socket) -> None:
        key = FragmentKey(*request["key"])
        table = Table(request["entity"], key, request["columns"])
        after, upto = request["after"], request["upto"]
        with self._file(request["store"]) as file:
            summary = file.fragment(key)
            _say(connection, {"status": 200})
            outgoing = _Outgoing(connection, table.schema)
            while summary is not None:
                rows = file.rows(summary.number, after, upto, kept=bool(request.get("reader")))
                if not len(rows):
                    break
                outgoing.write(table.batch(rows))
                after = rows.position[-1]
            outgoing.finish()

    def _reserved(self, request: Request, connection: socket.socket) -> None:
        """What is reserved for a reader that consumes, all of it or an error."""
        key = FragmentKey(*request["key"])
        table = Table(request["entity"], key, request["columns"])
        with self._file(request["store"]) as file:
            summary = file.fragment(key)
            note = file.note(summary.number, NOTE) if summary is not None else None
            if summary is None or note is None:
                raise InvalidArgument(f"Nothing is reserved for the reader '{request['reader']}'.")
            consumer = read_consumer(note)
            consumer.check_reader(request["reader"])
            parts = list(consumer.parts(request["after"], request["upto"]))
            _say(connection, {"status": 200})
            # Fewer than ordinals, where some were given in vain too often and set aside.
            told = table.schema.with_metadata({MESSAGES: str(sum(map(len, parts)))})
            outgoing = _Outgoing(connection, told)
            for part in parts:
                at = 0
                while at < len(part):
                    rows = file.reserved(summary.number, part[at:])
                    if list(rows.position) != part[at : at + len(rows)] or not len(rows):
                        # Given back or completed meanwhile: the stream stays without its end.
                        raise OSError("it is not reserved any more")
                    outgoing.write(table.batch(rows))
                    at += len(rows)
            outgoing.finish()

    def _stage(self, request: Request, connection: socket.socket, source: BinaryIO) -> None:
        """Keep the rows that follow as messages, in one file."""
        rows = Rows(Target(**request["target"]), request["spread"])
        try:
            writer = StagedWriter(Path(request["place"]) / staged_name(request["attempt"]))
            try:
                with pa.ipc.open_stream(pa.PythonFile(_Incoming(source), "r")) as stream:
                    for batch in _gathered(stream):
                        _stage_rows(rows, batch, writer)
                writer.finish()
            finally:
                writer.discard()
        except pa.ArrowException as error:
            raise RowRefused(f"The body is no Arrow stream: {error}") from error
        except OSError as error:
            # The place may be gone: its batch was published meanwhile.
            raise StoreError(f"The messages cannot be staged: {error}") from error
        _say(connection, {"status": 200, "fragments": dict(sorted(writer.counts.items()))})


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Few large record batches instead of many small ones, as good as Arrow can tell."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        # Who sends it need not mean well: places and text are looked through.
        batch.validate(full=True)
        gathered.append(batch)
        size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()
            gathered, size = [], 0
    if gathered:
        yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()


def _stage_rows(rows: Rows, batch: pa.RecordBatch, writer: StagedWriter) -> None:
    blocks = rows.blocks(batch)
    if blocks is not None:
        for number, block in blocks:
            writer.append(number, block)
        return
    for number, message in rows.messages(batch):
        writer.add(number, message)


class _Incoming:
    """A file whose content comes in chunks; it is at its end with the empty one."""

    closed = False

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._rest = b""
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        pieces: list[bytes] = []
        wanted = size
        while (wanted > 0 or size < 0) and not self._is_over:
            if not self._rest:
                self._rest = self._chunk()
                continue
            piece = self._rest if size < 0 else self._rest[:wanted]
            self._rest = self._rest[len(piece) :]
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def _chunk(self) -> bytes:
        head = self._source.read(4)
        length = int.from_bytes(head, "big")
        chunk = self._source.read(length)
        if len(head) < 4 or len(chunk) < length:
            raise OSError("the writer went away")
        self._is_over = not length
        return chunk

    def close(self) -> None:
        pass


class _Outgoing:
    """An Arrow stream that leaves in chunks; only a whole one has its last."""

    def __init__(self, connection: socket.socket, schema: pa.Schema) -> None:
        self._connection = connection
        self._send(schema.serialize())

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch."""
        self._send(batch.serialize())

    def finish(self) -> None:
        """Say that this was all."""
        self._send(END_OF_STREAM)
        self._connection.sendall(bytes(4))

    def _send(self, data: Any) -> None:
        octets = memoryview(data)
        for at in range(0, len(octets), CHUNK_BYTES):
            chunk = octets[at : at + CHUNK_BYTES]
            self._connection.sendall(len(chunk).to_bytes(4, "big"))
            self._connection.sendall(chunk)


def _say(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _end_with_node() -> None:
    """Wait for the end of standard input, which the node never writes to, and end with it."""
    sys.stdin.buffer.read()
    os._exit(0)


def main(arguments: list[str], serve: Callable[[Worker, socket.socket], None]) -> None:
    """Serve on the socket with this number, for the stores in these files."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_BATCH"):
        # It waits its turn when it wakes, rather than to take the core from a node.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # Rows come and go without cycles; what lives now lives as long as the process.
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    threading.Thread(target=_end_with_node, daemon=True).start()
    fileno, *paths = arguments
    serve(Worker(paths), socket.socket(fileno=int(fileno)))


if __name__ == "__main__":
    main(sys.argv[1:], Worker.serve)
