"""Rows of a store's file as Arrow record batches, with the columns that were asked for.

Runs in the process beside the node. What many messages have in common (their properties but the
id, their application properties, their annotations) is decoded once in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from partibus.broker.records import FragmentKey, State, SubQueue
from partibus.management.bulk.application import MAPS, text_maps
from partibus.management.bulk.contents import INT, Contents, Octets
from partibus.store.browsing import Rows
from partibus.wire.columns import PROPERTY_FIELDS, READ_COLUMNS
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import (
    annotation_values,
    property_values,
)

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map": MAPS,
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
_NUMBERS = {"position", "sequenceNumber", "enqueuedSequenceNumber"}
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

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """These messages as one batch."""
        wanted = set(self.columns)
        found: dict[str, Any] = {}
        if wanted & (_CONTENTS | _ANNOTATIONS):
            octets = Octets(rows.octets)
            begin = _array(rows.begin, INT)
            bare = pc.add(begin, _array(rows.kept_length, INT))
            if wanted & _CONTENTS:
                end = pc.add(begin, _array(rows.length, INT))
                self._read_contents(Contents(octets, bare, end), wanted, found)
            if wanted & _ANNOTATIONS:
                self._read_annotations(octets.between(begin, bare), found)
        if wanted & _NUMBERS:
            self._read_numbers(rows, found)
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
        if name in ("enqueuedTime", "expiresAt"):
            times = rows.enqueued_ms if name == "enqueuedTime" else rows.expires_ms
            return _array(times, pa.int64()).cast(_MS).cast(_US)
        if name == "state":
            if not any(rows.state):
                return _repeated(_STATES[State.ACTIVE], len(rows))
            return [_STATES[State(state)] for state in rows.state]
        columns = {
            "sessionId": rows.session,
            "deliveryCount": rows.deliveries,
            "deadLetterSource": rows.source,
        }
        return columns[name]

    def _read_numbers(self, rows: Rows, found: dict[str, Any]) -> None:
        """Partition and position, but for who has kept an old number."""
        high = pa.scalar(self._partition << _SEQUENCE_BITS, pa.int64())
        position = _array(rows.position, pa.int64())
        own = _others(rows.sequence, pc.add(position, high))
        found["position"] = position
        found["sequenceNumber"] = own
        found["enqueuedSequenceNumber"] = _others(rows.origin, own)

    def _read_contents(self, contents: Contents, wanted: set[str], found: dict[str, Any]) -> None:
        """All that lies in the bare messages."""
        if "messageId" in wanted:
            found["messageId"] = contents.message_ids()
        if "body" in wanted:
            found["body"] = contents.bodies()
        names = [name for name in PROPERTY_FIELDS if name in wanted]
        if names:
            values, which = _each(contents.properties(), property_values)
            for name in names:
                at = PROPERTY_FIELDS[name] - 1
                found[name] = _spread([each[at] for each in values], which, pa.string())
        if "applicationProperties" in wanted or (self._is_dead and wanted & _DEAD.keys()):
            maps = found["applicationProperties"] = text_maps(contents.application())
        for column, name in _DEAD.items():
            if column in wanted:
                found[column] = (
                    pc.map_lookup(maps, pa.scalar(name), "first")
                    if self._is_dead
                    else pa.nulls(len(contents), pa.string())
                )

    def _read_annotations(self, kept: pa.Array, found: dict[str, Any]) -> None:
        values, which = _each(kept, annotation_values)
        keys = [_text(each.get("x-opt-partition-key")) for each in values]
        found["partitionKey"] = _spread(keys, which, pa.string())
        times = [each.get("x-opt-scheduled-enqueue-time") for each in values]
        found["scheduledEnqueueTime"] = _spread(
            [time * 1000 if isinstance(time, int) else None for time in times], which, _US
        )


def _others(values: Sequence[int | None], usual: pa.Array) -> pa.Array:
    """Values where there are some, else the usual ones."""
    if values.count(None) == len(values):
        return usual
    return pc.coalesce(_array(values, pa.int64()), usual)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def _repeated(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _each(encoded: pa.Array, read: Callable[[bytes], T]) -> tuple[list[T], pa.Array]:
    """The values of what is there, each once, and which of them each row has."""
    found = encoded.dictionary_encode()
    values: list[T] = []
    for each in found.dictionary.to_pylist():
        try:
            values.append(read(each))
        except DecodeError:
            values.append(read(b""))
    return values, found.indices


def _spread(values: list[Any], which: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column whose rows have these values."""
    if len(values) == 1:
        return pa.repeat(pa.scalar(values[0], kind), len(which))
    return _array(values, kind).take(which)
