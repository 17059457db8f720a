"""Rows of Arrow record batches as messages, each with the fragment that it belongs to.

Runs in the process beside the node. The rules are those of every other door: keys pin, what breaks
a limit is refused with the row it stands in, and a message without an id gets one.
"""

from __future__ import annotations

import os
import uuid
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import sub
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partibus.broker.blocks import LENGTH_MAX, Block, arrange, kept_part
from partibus.broker.errors import Refusal
from partibus.broker.message import HEADERS_BYTES_MAX, Incoming, check_keys, check_length
from partibus.broker.partitioning import index_of
from partibus.management.bulk.encoding import (
    APPLICATION,
    DATA,
    NULL,
    PARTITION_KEY,
    PROPERTIES,
    Keys,
    distinct_keys,
    encoded,
    is_plain,
    kept_of,
)
from partibus.store.staging import CHUNK_BYTES, CHUNK_MESSAGES
from partibus.wire.codec import encode, encode_list, encode_map
from partibus.wire.columns import PROPERTY_FIELDS, WRITE_COLUMNS
from partibus.wire.values import Symbol, Timestamp

# Rows without a key that stay together.
KEYLESS_RUN = 256
ENTROPY_BYTES = 4096
_SESSION_FIELD = 10
_SCHEDULED = encode(Symbol("x-opt-scheduled-enqueue-time"))


class RowRefused(Exception):
    """A row that is no message which the entity takes."""


@dataclass(frozen=True, slots=True)
class Target:
    """What must be known of the entity that is written to."""

    fragments: int
    requires_session: bool
    detects_duplicates: bool
    message_bytes_max: int
    # It takes blocks: a queue that need not look at a message.
    takes_blocks: bool


class Rows:
    """Turns the rows of one attempt into messages."""

    def __init__(self, target: Target, spread: int) -> None:
        self._target = target
        # Which fragment the first rows without a key go to.
        self._spread = spread
        self._keyless = 0
        self._row = 0
        self._entropy = b""

    def blocks(self, batch: pa.RecordBatch) -> list[tuple[int, Block]] | None:
        """The rows as blocks for fragments; None where they must be looked at one by one."""
        if not self._target.takes_blocks or not batch.num_rows:
            return None
        typed = {name: _typed(name, column) for name, column in _columns(batch)}
        columns = {n: column for n, column in typed.items() if column.null_count < len(column)}
        if not is_plain(columns):
            return None
        keys = distinct_keys(columns)
        messages = encoded(columns, batch.num_rows, keys)
        lengths_max = min(self._target.message_bytes_max, LENGTH_MAX)
        if messages is None or pc.max(pc.binary_length(messages)).as_py() > lengths_max:
            return None
        self._row += batch.num_rows
        fragments = self._fragments(keys, batch.num_rows)
        # Sorting is stable: what has one key stays in its order.
        order = pc.array_sort_indices(fragments)
        parts = [0] * batch.num_rows if keys is None else _kept_parts(keys, order)
        counts = sorted((each["values"], each["counts"]) for each in _counted(fragments))
        return list(_cut(messages.take(order), parts, counts))

    def _fragments(self, keys: Keys | None, count: int) -> pa.Array:
        """The partition id of each row."""
        fragments = self._target.fragments
        if fragments == 1:
            return pa.repeat(pa.scalar(0, pa.int32()), count)
        if keys is None:
            return self._keyless_fragments(count)
        table = [index_of(key, fragments) + 1 for key in keys.distinct]
        found = pa.array(table, pa.int32()).take(keys.index)
        if found.null_count:
            spread = self._keyless_fragments(found.null_count)
            found = pc.replace_with_mask(found, found.is_null(), spread)
        return found

    def _keyless_fragments(self, count: int) -> pa.Array:
        """Where the next rows without a key go: runs of them to one fragment after the other."""
        found = array("i")
        while len(found) < count:
            run, at = divmod(self._keyless, KEYLESS_RUN)
            taken = min(KEYLESS_RUN - at, count - len(found))
            fragment = (self._spread + run) % self._target.fragments + 1
            found.extend(array("i", [fragment]) * taken)
            self._keyless += taken
        return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(found)])

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Incoming]]:
        """The fragment and the message of each row."""
        columns = {name: _plain(name, column) for name, column in _columns(batch)}
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            self._row += 1
            given = dict(zip(names, values, strict=True))
            try:
                message = self._message(given)
            except Refusal as refusal:
                raise RowRefused(f"Row {self._row}: {refusal}") from refusal
            yield self._fragment(message), message

    def _message(self, given: dict[str, Any]) -> Incoming:
        session, key = given.get("sessionId"), given.get("partitionKey")
        if session is not None or key is not None:
            check_keys(session, key)
        if session is None and self._target.requires_session:
            raise RowRefused(f"Row {self._row}: the entity requires a sessionId.")
        message_id = given.get("messageId")
        if message_id is None:
            message_id = self._new_id()
        else:
            check_length("MessageId", message_id)
        encoded_id = encode(message_id)
        head = self._head(given, encoded_id, session)
        body = given.get("body")
        bare = head + DATA + encode(b"" if body is None else body)
        kept, kept_count, due_ms = _annotations(key, given.get("scheduledEnqueueTime"))
        if len(bare) + len(kept) > self._target.message_bytes_max or len(head) > HEADERS_BYTES_MAX:
            raise RowRefused(
                f"Row {self._row}: the message of {len(bare)} bytes is larger than the "
                f"{self._target.message_bytes_max} bytes allowed."
            )
        ttl_ms = given.get("timeToLive") or 0
        return Incoming(bare, kept, kept_count, ttl_ms, due_ms, session, key, encoded_id)

    def _head(self, given: dict[str, Any], encoded_id: bytes, session: str | None) -> bytes:
        fields = [encoded_id]
        texts = {at: given.get(name) for name, at in PROPERTY_FIELDS.items()}
        texts[_SESSION_FIELD] = session
        said = {at: text for at, text in texts.items() if text is not None}
        if said:
            fields += [NULL] * max(said)
            for at, text in said.items():
                fields[at] = encode(text)
        head = PROPERTIES + encode_list(fields)
        application = given.get("applicationProperties")
        if application:
            pairs = [encode(each) for pair in application for each in pair]
            head += APPLICATION + encode_map(pairs)
        return head

    def _fragment(self, message: Incoming) -> int:
        """The partition id."""
        fragments = self._target.fragments
        if fragments == 1:
            return 0
        key = message.session if message.session is not None else message.partition_key
        if key is None and self._target.detects_duplicates:
            key = message.message_id
        if key is not None:
            return index_of(key, fragments) + 1
        self._keyless += 1
        return (self._spread + (self._keyless - 1) // KEYLESS_RUN) % fragments + 1

    def _new_id(self) -> str:
        if len(self._entropy) < 16:
            self._entropy = os.urandom(ENTROPY_BYTES)
        taken, self._entropy = self._entropy[:16], self._entropy[16:]
        return uuid.UUID(bytes=taken, version=4).hex


def _annotations(key: str | None, due: int | None) -> tuple[bytes, int, int]:
    """Kept annotations, how many they are, and when the message becomes active."""
    kept, count, due_ms = b"", 0, 0
    if key is not None:
        kept += PARTITION_KEY + encode(key)
        count += 1
    if due is not None:
        due_ms = due // 1000
        kept += _SCHEDULED + encode(Timestamp(due_ms))
        count += 1
    return kept, count, due_ms


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for at, name in enumerate(batch.schema.names):
        if name not in WRITE_COLUMNS:
            raise RowRefused(f"There is no column '{name}' that could be written.")
        yield name, batch.column(at)


def _counted(fragments: pa.Array) -> list[dict[str, int]]:
    return list(pc.value_counts(fragments).to_pylist())


def _kept_parts(keys: Keys, order: pa.Array) -> list[int]:
    """What the rows of blocks say of annotations."""
    lengths = pc.binary_length(kept_of(keys)).take(order).to_pylist()
    return [kept_part(length, 1) if length else 0 for length in lengths]


def _cut(
    messages: pa.Array, parts: list[int], counts: list[tuple[int, int]]
) -> Iterator[tuple[int, Block]]:
    """Messages in the order of their fragments, of which each has so many, as bounded blocks."""
    _, offsets_buffer, content = messages.buffers()
    offsets = memoryview(offsets_buffer).cast("i")
    at = 0
    for fragment, count in counts:
        last = at + count
        while at < last:
            end = min(at + CHUNK_MESSAGES, last)
            if offsets[end] - offsets[at] > CHUNK_BYTES:
                end = max(bisect_right(offsets, offsets[at] + CHUNK_BYTES, at, end) - 1, at + 1)
            bounds = offsets[at : end + 1].tolist()
            lengths = map(sub, bounds[1:], bounds)
            rows = arrange(lengths, parts[at:end])
            yield fragment, Block(rows, content[bounds[0] : bounds[-1]].to_pybytes())
            at = end


def _plain(name: str, column: pa.Array) -> list[Any]:
    """A column as Python values: times as microseconds, text bodies as octets."""
    return list(_typed(name, column).to_pylist())


def _typed(name: str, column: pa.Array) -> pa.Array:
    """A column in the type that it is read as."""
    kind = WRITE_COLUMNS[name]
    try:
        if kind == "timestamp":
            return column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        if kind == "binary":
            return column.cast(pa.binary())
        if kind == "long":
            return column.cast(pa.int64())
        if kind == "string":
            return column.cast(pa.string())
        return column.cast(pa.map_(pa.string(), pa.string()))
    except pa.ArrowException as error:
        raise RowRefused(f"The column '{name}' cannot be read as {kind}: {error}") from error
