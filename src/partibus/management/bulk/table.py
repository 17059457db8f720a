"""Rows of a store's file as Arrow record batches, with the columns that were asked for.

Runs in the process beside the node. What many messages have in common (their properties but the
id, their application properties, their annotations) is decoded once, while it is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pyarrow as pa

from partibus.broker.records import FragmentKey, State, SubQueue
from partibus.store.browsing import Row
from partibus.wire.columns import PROPERTY_FIELDS, READ_COLUMNS
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import (
    annotation_values,
    application_values,
    parts,
    property_values,
)

# Encoded parts whose values are remembered, of each kind.
REMEMBERED_MAX = 4096
REMEMBERED_BYTES_MAX = 512

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map": pa.map_(pa.string(), pa.string()),
}
_STATES = {State.ACTIVE: "active", State.DEFERRED: "deferred", State.SCHEDULED: "scheduled"}
_CONTENTS = {
    *PROPERTY_FIELDS, "messageId", "applicationProperties", "body", "deadLetterReason",
    "deadLetterErrorDescription",
}  # fmt: skip
_ANNOTATIONS = {"partitionKey", "scheduledEnqueueTime"}
_DEAD = {
    "deadLetterReason": "DeadLetterReason",
    "deadLetterErrorDescription": "DeadLetterErrorDescription",
}
_SEQUENCE_BITS = 48
_OF_ROW: dict[str, Callable[[Row], object]] = {
    "position": lambda row: row.position,
    "enqueuedTime": lambda row: row.enqueued_ms * 1000,
    "expiresAt": lambda row: row.expires_ms * 1000 if row.expires_ms else None,
    "sessionId": lambda row: row.session,
    "deliveryCount": lambda row: row.deliveries,
    "state": lambda row: _STATES[State(row.state)],
    "deadLetterSource": lambda row: row.source,
}

T = TypeVar("T")


class UnknownColumn(Exception):
    """A column was asked for that no message has."""


class Table:
    """How the messages of one fragment become record batches."""

    def __init__(self, entity: str, key: FragmentKey, columns: Iterable[str]) -> None:
        self._entity = entity
        self._partition = key.partition
        self._is_dead = key.subqueue != SubQueue.ACTIVE
        self.columns = list(columns)
        for name in self.columns:
            if name not in READ_COLUMNS:
                raise UnknownColumn(f"There is no column '{name}'.")
        self.schema = pa.schema([(name, _TYPES[READ_COLUMNS[name]]) for name in self.columns])
        self._properties = _remembering(property_values)
        self._application = _remembering(application_values)
        self._annotations = _remembering(annotation_values)

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        """These messages as one batch."""
        wanted = set(self.columns)
        found: dict[str, Any] = {}
        if wanted & _CONTENTS:
            self._read_contents(rows, wanted, found)
        if wanted & _ANNOTATIONS:
            self._read_annotations(rows, found)
        arrays = [
            pa.array(
                found[name] if name in found else self._column(name, rows),
                self.schema.field(i).type,
            )
            for i, name in enumerate(self.columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, rows: list[Row]) -> Any:
        high = self._partition << _SEQUENCE_BITS
        if name == "entity":
            return [self._entity] * len(rows)
        if name == "fragment":
            return [self._partition] * len(rows)
        if name == "sequenceNumber":
            return [high | row.position if row.sequence is None else row.sequence for row in rows]
        if name == "enqueuedSequenceNumber":
            own = self._column("sequenceNumber", rows)
            return [row.origin or number for row, number in zip(rows, own, strict=True)]
        return list(map(_OF_ROW[name], rows))

    def _read_contents(self, rows: list[Row], wanted: set[str], found: dict[str, Any]) -> None:
        """All that lies in the bare messages, read in one pass."""
        split = [_parts(row) for row in rows]
        found["messageId"] = [each[0] for each in split]
        found["body"] = [each[3] for each in split]
        names = [name for name in PROPERTY_FIELDS if name in wanted]
        if names:
            values = [self._properties(each[1]) for each in split]
            for name in names:
                at = PROPERTY_FIELDS[name] - 1
                found[name] = [each[at] for each in values]
        if "applicationProperties" in wanted or (self._is_dead and wanted & _DEAD.keys()):
            maps = [self._application(each[2]) for each in split]
            found["applicationProperties"] = [list(each.items()) for each in maps]
        for column, name in _DEAD.items():
            if column in wanted:
                found[column] = (
                    [each.get(name) for each in maps] if self._is_dead else [None] * len(rows)
                )

    def _read_annotations(self, rows: list[Row], found: dict[str, Any]) -> None:
        values = [
            self._annotations(row.content[: row.kept_length]) if row.kept_length else {}
            for row in rows
        ]
        found["partitionKey"] = [_text(each.get("x-opt-partition-key")) for each in values]
        times = [each.get("x-opt-scheduled-enqueue-time") for each in values]
        found["scheduledEnqueueTime"] = [
            time * 1000 if isinstance(time, int) else None for time in times
        ]


def _parts(row: Row) -> tuple[str | None, bytes, bytes, bytes]:
    bare = row.content[row.kept_length :] if row.kept_length else row.content
    try:
        return parts(bare)
    except DecodeError:
        # It was accepted, so it is shown: as the octets that came.
        return None, b"", b"", bare


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _remembering(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """The same function, which knows the answer to what it was asked a moment ago."""
    known: dict[bytes, T] = {}

    def remembered(encoded: bytes) -> T:
        value = known.get(encoded)
        if value is None:
            try:
                value = read(encoded)
            except DecodeError:
                value = read(b"")
            if len(encoded) <= REMEMBERED_BYTES_MAX:
                if len(known) >= REMEMBERED_MAX:
                    known.clear()
                known[encoded] = value
        return value

    return remembered
