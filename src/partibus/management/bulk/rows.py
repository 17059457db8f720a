"""Rows of Arrow record batches as messages, each with the fragment that it belongs to.

Runs in the process beside the node. The rules are those of every other door: keys pin, what breaks
a limit is refused with the row it stands in, and a message without an id gets one.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from partibus.broker.errors import Refusal
from partibus.broker.message import HEADERS_BYTES_MAX, Incoming, check_keys, check_length
from partibus.broker.partitioning import index_of
from partibus.wire.codec import encode, encode_list, encode_map
from partibus.wire.columns import PROPERTY_FIELDS, WRITE_COLUMNS
from partibus.wire.values import Symbol, Timestamp

# Rows without a key that stay together.
KEYLESS_RUN = 256
ENTROPY_BYTES = 4096
_SESSION_FIELD = 10
_NULL = b"\x40"
_PARTITION_KEY = encode(Symbol("x-opt-partition-key"))
_SCHEDULED = encode(Symbol("x-opt-scheduled-enqueue-time"))
_PROPERTIES = b"\x00\x53\x73"
_APPLICATION = b"\x00\x53\x74"
_DATA = b"\x00\x53\x75"


class RowRefused(Exception):
    """A row that is no message which the entity takes."""


@dataclass(frozen=True, slots=True)
class Target:
    """What must be known of the entity that is written to."""

    fragments: int
    requires_session: bool
    detects_duplicates: bool
    message_bytes_max: int


class Rows:
    """Turns the rows of one attempt into messages."""

    def __init__(self, target: Target, spread: int) -> None:
        self._target = target
        # Which fragment the first rows without a key go to.
        self._spread = spread
        self._keyless = 0
        self._row = 0
        self._entropy = b""

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Incoming]]:
        """The fragment and the message of each row."""
        for name in batch.schema.names:
            if name not in WRITE_COLUMNS:
                raise RowRefused(f"There is no column '{name}' that could be written.")
        columns = {name: _plain(name, batch.column(i)) for i, name in enumerate(batch.schema.names)}
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
        bare = head + _DATA + encode(b"" if body is None else body)
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
            fields += [_NULL] * max(said)
            for at, text in said.items():
                fields[at] = encode(text)
        head = _PROPERTIES + encode_list(fields)
        application = given.get("applicationProperties")
        if application:
            pairs = [encode(each) for pair in application for each in pair]
            head += _APPLICATION + encode_map(pairs)
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
        kept += _PARTITION_KEY + encode(key)
        count += 1
    if due is not None:
        due_ms = due // 1000
        kept += _SCHEDULED + encode(Timestamp(due_ms))
        count += 1
    return kept, count, due_ms


def _plain(name: str, column: pa.Array) -> list[Any]:
    """A column as Python values: times as microseconds, text bodies as octets."""
    kind = WRITE_COLUMNS[name]
    try:
        if kind == "timestamp":
            return list(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist())
        if kind == "binary":
            return list(column.cast(pa.binary()).to_pylist())
        if kind == "long":
            return list(column.cast(pa.int64()).to_pylist())
        if kind == "string":
            return list(column.cast(pa.string()).to_pylist())
        return list(column.cast(pa.map_(pa.string(), pa.string())).to_pylist())
    except pa.ArrowException as error:
        raise RowRefused(f"The column '{name}' cannot be read as {kind}: {error}") from error
