"""Rows of a store's file as Arrow record batches, with the columns that were asked for.

Runs in the process beside the node. What many messages have in common (their properties but the
id, their application properties, their annotations) is decoded once, while it is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from partibus.broker.records import FragmentKey, State, SubQueue
from partibus.store.browsing import Rows
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
_STATES = {
    State.ACTIVE: "active",
    State.DEFERRED: "deferred",
    State.SCHEDULED: "scheduled",
    # It is in the queue until its reader is done with it.
    State.RESERVED: "active",
}
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
_MS = pa.timestamp("ms", tz="UTC")
_US = _TYPES["timestamp"]

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

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """These messages as one batch."""
        wanted = set(self.columns)
        found: dict[str, Any] = {}
        if wanted & _CONTENTS:
            self._read_contents(rows, wanted, found)
        if wanted & _ANNOTATIONS:
            self._read_annotations(rows, found)
        arrays = []
        for name in self.columns:
            values = found[name] if name in found else self._column(name, rows)
            kind = self.schema.field(name).type
            arrays.append(values if isinstance(values, pa.Array) else _array(values, kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, rows: Rows) -> Any:
        """A column that the file itself has."""
        if name == "entity":
            return _repeated(self._entity, len(rows))
        if name == "fragment":
            return pa.repeat(pa.scalar(self._partition, pa.int32()), len(rows))
        if name in ("sequenceNumber", "enqueuedSequenceNumber"):
            own = self._sequence_numbers(rows)
            if name == "sequenceNumber":
                return own
            return pc.coalesce(_array(rows.origin, pa.int64()), own)
        if name in ("enqueuedTime", "expiresAt"):
            times = rows.enqueued_ms if name == "enqueuedTime" else rows.expires_ms
            return _array(times, pa.int64()).cast(_MS).cast(_US)
        if name == "state":
            if not any(rows.state):
                return _repeated(_STATES[State.ACTIVE], len(rows))
            return [_STATES[State(state)] for state in rows.state]
        columns = {
            "position": rows.position,
            "sessionId": rows.session,
            "deliveryCount": rows.deliveries,
            "deadLetterSource": rows.source,
        }
        return columns[name]

    def _sequence_numbers(self, rows: Rows) -> pa.Array:
        """Partition and position, but for who has kept an old number."""
        high = self._partition << _SEQUENCE_BITS
        own = pc.add(pa.array(rows.position, pa.int64()), high)
        return pc.coalesce(_array(rows.sequence, pa.int64()), own)

    def _read_contents(self, rows: Rows, wanted: set[str], found: dict[str, Any]) -> None:
        """All that lies in the bare messages, read in one pass."""
        if not len(rows):
            found.update(dict.fromkeys(_CONTENTS, ()))
            return
        split = list(map(_parts, rows.content, rows.kept_length))
        ids, properties, application, bodies = zip(*split, strict=True)
        found["messageId"], found["body"] = ids, bodies
        names = [name for name in PROPERTY_FIELDS if name in wanted]
        if names:
            self._read_properties(properties, names, found)
        if "applicationProperties" in wanted or (self._is_dead and wanted & _DEAD.keys()):
            maps = list(map(self._application, application))
            found["applicationProperties"] = [list(each.items()) for each in maps]
        for column, name in _DEAD.items():
            if column in wanted:
                found[column] = (
                    [each.get(name) for each in maps]
                    if self._is_dead
                    else pa.nulls(len(rows), pa.string())
                )

    def _read_properties(
        self, properties: Sequence[bytes], names: list[str], found: dict[str, Any]
    ) -> None:
        """Most messages of a queue say the same here, so that is looked at once."""
        if len(set(properties)) == 1:
            same = self._properties(properties[0])
            for name in names:
                found[name] = _repeated(same[PROPERTY_FIELDS[name] - 1], len(properties))
            return
        values = list(map(self._properties, properties))
        for name in names:
            at = PROPERTY_FIELDS[name] - 1
            found[name] = [each[at] for each in values]

    def _read_annotations(self, rows: Rows, found: dict[str, Any]) -> None:
        if not any(rows.kept_length):
            found["partitionKey"] = pa.nulls(len(rows), pa.string())
            found["scheduledEnqueueTime"] = pa.nulls(len(rows), _US)
            return
        read = self._annotations
        values = [
            read(content[:length])
            for content, length in zip(rows.content, rows.kept_length, strict=True)
        ]
        found["partitionKey"] = [_text(each.get("x-opt-partition-key")) for each in values]
        times = [each.get("x-opt-scheduled-enqueue-time") for each in values]
        found["scheduledEnqueueTime"] = [
            time * 1000 if isinstance(time, int) else None for time in times
        ]


def _parts(content: bytes, kept_length: int) -> tuple[str | None, bytes, bytes, bytes]:
    bare = content[kept_length:] if kept_length else content
    try:
        return parts(bare)
    except DecodeError:
        # It was accepted, so it is shown: as the octets that came.
        return None, b"", b"", bare


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def _repeated(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


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
