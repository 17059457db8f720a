"""Columns of Arrow record batches as encoded messages: all rows of a column at once.

For plain rows only: who has a session, a time of its own or something that must be refused is
looked at row by row (rows.py). What comes out is what that would have made of them, but that one
long value makes all sizes of its column wide ones. Runs in the process beside the node.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from partibus.broker.message import HEADERS_BYTES_MAX, KEY_LENGTH_MAX
from partibus.wire.codec import encode
from partibus.wire.columns import PROPERTY_FIELDS
from partibus.wire.values import Symbol

PARTITION_KEY = encode(Symbol("x-opt-partition-key"))
PROPERTIES = b"\x00\x53\x73"
APPLICATION = b"\x00\x53\x74"
DATA = b"\x00\x53\x75"
NULL = b"\x40"

PLAIN_COLUMNS = frozenset(
    {"messageId", "partitionKey", "applicationProperties", "body", *PROPERTY_FIELDS}
)

_BINARY = 0xA0
_TEXT = 0xA1
_LIST = 0xC0
_MAP = 0xC1
# Set in the code of a type: its sizes have four bytes.
_WIDE = 0x10
_SMALL_MAX = 255
_ID_BYTES = 16
_OCTETS = pa.array([bytes((each,)) for each in range(256)], pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())
# The bits by which a random UUID is known.
_VERSION = bytes(each & 0x0F | 0x40 for each in range(256))
_VARIANT = bytes(each & 0x3F | 0x80 for each in range(256))

Part = Any
Columns = Mapping[str, Any]


class Keys(NamedTuple):
    """The partition keys of some rows: each different one, and which of them a row has."""

    distinct: list[str]
    index: Any


def distinct_keys(columns: Columns) -> Keys | None:
    """The keys of the rows; None where there are none, or one is too long."""
    column = columns.get("partitionKey")
    if column is None or _characters(column) > KEY_LENGTH_MAX:
        return None
    found = column.dictionary_encode()
    return Keys(found.dictionary.to_pylist(), found.indices)


def is_plain(columns: Columns) -> bool:
    """Whether all rows of these columns can be encoded here; columns without values are absent."""
    return columns.keys() <= PLAIN_COLUMNS and all(
        _characters(columns[name]) <= KEY_LENGTH_MAX
        for name in ("messageId", "partitionKey")
        if name in columns
    )


def encoded(columns: Columns, count: int, keys: Keys | None) -> Any:
    """Each message as it is kept, its annotations before it; None where one may be too large."""
    head = [*_properties(columns, count), *_application(columns)]
    if sum(_longest(each) for each in head) > HEADERS_BYTES_MAX:
        return None
    kept = [] if keys is None else [kept_of(keys)]
    body = columns.get("body")
    content = _text(b"", _BINARY) if body is None else _sized(_BINARY, body.fill_null(b""))
    return _join(*kept, *head, DATA, *content)


def kept_of(keys: Keys) -> Any:
    """The annotations of the rows; empty where a row has no key."""
    table = pa.array([PARTITION_KEY + encode(key) for key in keys.distinct], pa.binary())
    return table.take(keys.index).fill_null(b"")


def new_ids(count: int) -> Any:
    """As many ids as that, each a random UUID without dashes."""
    octets = bytearray(os.urandom(_ID_BYTES * count))
    octets[6::_ID_BYTES] = octets[6::_ID_BYTES].translate(_VERSION)
    octets[8::_ID_BYTES] = octets[8::_ID_BYTES].translate(_VARIANT)
    width = 2 * _ID_BYTES
    offsets = array("i", range(0, width * (count + 1), width))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets.hex().encode())]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _properties(columns: Columns, count: int) -> list[Part]:
    """The section with the message's id; fields that nobody names are left out at its end."""
    ids = columns.get("messageId")
    if ids is None:
        ids = new_ids(count)
    elif ids.null_count:
        ids = pc.coalesce(ids, new_ids(count))
    fields: list[Part] = _sized(_TEXT, ids)
    said = {at: name for name, at in PROPERTY_FIELDS.items() if name in columns}
    for at in range(1, max(said, default=0) + 1):
        name = said.get(at)
        fields.append(NULL if name is None else _or_null(_sized(_TEXT, columns[name])))
    length = 1 + max(said, default=0)
    return [PROPERTIES, *_compound(_LIST, _join(*fields), length)]


def _application(columns: Columns) -> list[Part]:
    """The section with application properties; rows without any have none."""
    column = columns.get("applicationProperties")
    if column is None:
        return []
    pairs = _join(_join(*_sized(_TEXT, column.keys)), _or_null(_sized(_TEXT, column.items)))
    lists = pa.ListArray.from_arrays(column.offsets, pairs)
    counts = pc.multiply(pc.list_value_length(lists), 2)
    section = _join(APPLICATION, *_compound(_MAP, pc.binary_join(lists, b""), counts))
    has_any = pc.and_(column.is_valid(), pc.greater(counts, 0))
    return [pc.if_else(has_any, section, _NOTHING)]


def _sized(code: int, values: Any) -> list[Part]:
    """The parts of values with their sizes before them; what is null stays null."""
    values = values.cast(pa.binary())
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) <= _SMALL_MAX:
        return [bytes((code,)), _OCTETS.take(lengths), values]
    return [bytes((code | _WIDE,)), _wide(lengths), values]


def _compound(code: int, content: Any, counts: Any) -> list[Part]:
    """The parts of lists or maps: size, count and content."""
    lengths = pc.binary_length(content)
    most = counts if isinstance(counts, int) else pc.max(counts).as_py()
    if pc.max(lengths).as_py() < _SMALL_MAX and most <= _SMALL_MAX:
        size, number = _OCTETS.take(pc.add(lengths, 1)), _OCTETS
        many = bytes((counts,)) if isinstance(counts, int) else number.take(counts)
        return [bytes((code,)), size, many, content]
    many = counts.to_bytes(4, "big") if isinstance(counts, int) else _wide(counts)
    return [bytes((code | _WIDE,)), _wide(pc.add(lengths, 4)), many, content]


def _wide(numbers: Any) -> Any:
    """Numbers as four bytes each, the highest first."""
    plain = array("i", numbers.fill_null(0).cast(pa.int32()).to_pylist())
    if sys.byteorder == "little":
        plain.byteswap()
    buffers = [None, pa.py_buffer(plain)]
    return pa.Array.from_buffers(pa.binary(4), len(plain), buffers).cast(pa.binary())


def _text(content: bytes, code: int) -> list[Part]:
    return [bytes((code, len(content))) + content]


def _or_null(parts: list[Part]) -> Any:
    return _join(*parts).fill_null(NULL)


def _join(*parts: Part) -> Any:
    scalars = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts]
    return pc.binary_join_element_wise(*scalars, _NOTHING)


def _longest(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else pc.max(pc.binary_length(part)).as_py() or 0


def _characters(column: Any) -> int:
    return pc.max(pc.utf8_length(column)).as_py() or 0
