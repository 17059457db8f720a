"""Changing the few things of a bare message that the broker may change.

A bare message starts at the properties. Each function returns a new one in which the named fields
differ and every other byte is as it came: values are moved as they are encoded, never decoded and
encoded again.
"""

from __future__ import annotations

from typing import Final

from partibus.wire.codec import encode, encode_list, encode_map
from partibus.wire.errors import DecodeError
from partibus.wire.message_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    VALUE,
    section_body,
    section_code,
)
from partibus.wire.octets import compound_count, compound_start, skip
from partibus.wire.values import Timestamp

_MESSAGE_ID: Final = 0
_ABSOLUTE_EXPIRY_TIME: Final = 8
_CREATION_TIME: Final = 9
_NULL: Final = b"\x40"


def with_message_id(bare: bytes, message_id: object) -> bytes:
    """Give a bare message this id where it has none."""
    fields, rest = _section(bare, PROPERTIES, 0)
    if fields and fields[_MESSAGE_ID] != _NULL:
        return bare
    changed = _replaced(fields, {_MESSAGE_ID: message_id})
    return _put(bare, 0, rest, PROPERTIES, encode_list(changed))


def with_properties(
    bare: bytes,
    *,
    absolute_expiry_time_ms: int | None = None,
    creation_time_ms: int | None = None,
) -> bytes:
    """Set the times that are given, leaving the other fields and sections as they are."""
    changes: dict[int, object] = {}
    if absolute_expiry_time_ms is not None:
        changes[_ABSOLUTE_EXPIRY_TIME] = Timestamp(absolute_expiry_time_ms)
    if creation_time_ms is not None:
        changes[_CREATION_TIME] = Timestamp(creation_time_ms)
    if not changes:
        return bare
    fields, rest = _section(bare, PROPERTIES, 0)
    return _put(bare, 0, rest, PROPERTIES, encode_list(_replaced(fields, changes)))


def with_application_properties(bare: bytes, changes: dict[str, object]) -> bytes:
    """Merge `changes` into the application properties; a value of None is a null, not a removal."""
    if not changes:
        return bare
    _, start = _section(bare, PROPERTIES, 0)
    items, rest = _section(bare, APPLICATION_PROPERTIES, start)
    if len(items) % 2:
        raise DecodeError("a map with a key without value")
    # A key may have been sent as string or as symbol; both name the same property.
    pairs = [(encode(str(key)), encode(value)) for key, value in changes.items()]
    new = {key[1:]: (key, value) for key, value in pairs}
    kept: list[bytes] = []
    for index in range(0, len(items), 2):
        if items[index][1:] not in new:
            kept += items[index : index + 2]
    for key, value in new.values():
        kept += [key, value]
    return _put(bare, start, rest, APPLICATION_PROPERTIES, encode_map(kept))


def without_body(bare: bytes) -> tuple[bytes, int]:
    """The message without its body sections, and how many bytes they took."""
    kept: list[bytes] = []
    removed = start = 0
    while start < len(bare):
        try:
            code = section_code(bare, start)
            end = skip(bare, section_body(bare, start, len(bare)), len(bare))
        except IndexError as error:
            raise DecodeError("a section is cut off") from error
        if DATA <= code <= VALUE:
            removed += end - start
        else:
            kept.append(bare[start:end])
        start = end
    return b"".join(kept), removed


def _section(bare: bytes, code: int, start: int) -> tuple[list[bytes], int]:
    """The encoded elements of this section if it stands at `start`, and where the rest begins."""
    if start >= len(bare):
        return [], start
    try:
        if section_code(bare, start) != code:
            return [], start
        body = section_body(bare, start, len(bare))
        end = skip(bare, body, len(bare))
        items: list[bytes] = []
        pos = compound_start(bare, body)
        for _ in range(compound_count(bare, body, end)):
            after = skip(bare, pos, end)
            items.append(bare[pos:after])
            pos = after
    except IndexError as error:
        raise DecodeError("a section is cut off") from error
    return items, end


def _replaced(fields: list[bytes], changes: dict[int, object]) -> list[bytes]:
    result = fields + [_NULL] * (max(changes) + 1 - len(fields))
    for index, value in changes.items():
        result[index] = encode(value)
    return result


def _put(bare: bytes, start: int, rest: int, code: int, value: bytes) -> bytes:
    return b"".join((bare[:start], bytes((0x00, 0x53, code)), value, bare[rest:]))
