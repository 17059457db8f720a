"""Single properties of a bare message: reading those that are asked for, replacing some.

For the rules of subscriptions, which mention few of a message's properties. Everything else is
stepped over or copied as it is encoded. What the properties mean is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from mypy_extensions import i64

from partibus.wire.codec import decode, encode, encode_list, encode_map
from partibus.wire.errors import DecodeError
from partibus.wire.message_scan import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    section_body,
    section_code,
)
from partibus.wire.octets import (
    SPANS,
    VARIABLE_8,
    compound_count,
    compound_start,
    skip,
    skip_many,
)

# Fields of the properties section by their place (part 3.2.4 of the standard).
MESSAGE_ID: Final = 0
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
CORRELATION_ID: Final = 5
CONTENT_TYPE: Final = 6
GROUP_ID: Final = 10
REPLY_TO_GROUP_ID: Final = 12

_NULL: Final = b"\x40"


class Head:
    """Where the properties and the application properties of a bare message stand."""

    __slots__ = ("_named", "_properties", "bare", "body_offset")

    def __init__(self, bare: bytes) -> None:
        self.bare: bytes = bare
        self._properties: i64 = -1
        self._named: i64 = -1
        pos: i64 = 0
        end: i64 = len(bare)
        try:
            while pos < end:
                code: i64 = section_code(bare, pos)
                if code > APPLICATION_PROPERTIES:
                    break
                body = section_body(bare, pos, end)
                if code == PROPERTIES:
                    self._properties = body
                elif code == APPLICATION_PROPERTIES:
                    self._named = body
                pos = skip(bare, body, end)
        except IndexError as error:
            raise DecodeError("a section is cut off") from error
        self.body_offset: i64 = pos

    def field(self, index: i64) -> bytes:
        """One field of the properties section as it is encoded; b"" where it is left out."""
        data: bytes = self.bare
        pos: i64 = self._properties
        if pos < 0:
            return b""
        try:
            end = skip(data, pos, len(data))
            if index >= compound_count(data, pos, end):
                return b""
            pos = skip_many(data, compound_start(data, pos), index)
            return data[pos : skip(data, pos, end)]
        except IndexError as error:
            raise DecodeError("a property is cut off") from error

    def fields(self) -> list[bytes]:
        """The fields of the properties section, each as it is encoded."""
        return _elements(self.bare, self._properties)

    def named(self, wanted: Collection[str] | None) -> dict[str, object]:
        """The application properties of these names, decoded; all of them for None.

        Names are compared, and given, without regard to case (`property_key`). Of names that
        differ in case only, the first counts.
        """
        found: dict[str, object] = {}
        if self._named < 0:
            return found
        data: bytes = self.bare
        pos: i64 = self._named
        try:
            end = skip(data, pos, len(data))
            count = compound_count(data, pos, end)
            pos = compound_start(data, pos)
            for _ in range(count // 2):
                # The short forms of strings and fixed values in line: calls are most of the cost.
                if data[pos] == 0xA1:
                    value: i64 = pos + 2 + data[pos + 1]
                    key = property_key(_decoded(data[pos + 2 : value]))
                else:
                    value = skip(data, pos, end)
                    key = property_key(_text(data, pos, value))
                span: i64 = SPANS[data[value]]
                pos = value + span if span < VARIABLE_8 else skip(data, value, end)
                if (wanted is None or key in wanted) and key not in found:
                    found[key] = decode(data, value, end)[0]
            if pos != end:
                raise DecodeError("the application properties are longer than their pairs")
        except IndexError as error:
            raise DecodeError("an application property is cut off") from error
        return found

    def replaced(
        self, fields: Mapping[int, object], named: Mapping[str, object], removed: Collection[str]
    ) -> bytes:
        """Both sections anew: fields by place, named properties put or taken out.

        The bytes take the place of everything before `body_offset`. A property that is there keeps
        the spelling of its name.
        """
        new = self.fields()
        for index, value in fields.items():
            new += [_NULL] * (index + 1 - len(new))
            new[index] = encode(value)
        left = {property_key(name): (name, value) for name, value in named.items()}
        out = {property_key(name) for name in removed}
        kept: list[bytes] = []
        pairs = _elements(self.bare, self._named)
        for index in range(0, len(pairs) - 1, 2):
            key = property_key(_text(pairs[index], 0, len(pairs[index])))
            if key in out:
                continue
            given = left.pop(key, None)
            kept += [pairs[index], pairs[index + 1] if given is None else encode(given[1])]
        for name, value in left.values():
            kept += [encode(name), encode(value)]
        return b"".join((
            _section(PROPERTIES, encode_list(new)) if new else b"",
            _section(APPLICATION_PROPERTIES, encode_map(kept)) if kept else b"",
        ))  # fmt: skip


def property_key(name: str) -> str:
    """What names of properties are compared by."""
    return name.casefold()


def read_annotations(encoded: bytes, count: int) -> dict[str, object]:
    """Message annotations from the bytes of their pairs."""
    items: list[object] = []
    pos = 0
    for _ in range(2 * count):
        item, pos = decode(encoded, pos)
        items.append(item)
    return {str(items[i]): items[i + 1] for i in range(0, len(items), 2)}


def replace_annotations(
    encoded: bytes, count: int, changes: Mapping[str, object]
) -> tuple[bytes, int]:
    """The pairs with these keys (symbols) changed, and their number; None takes one out."""
    kept: list[bytes] = []
    pos = 0
    for _ in range(count):
        key, value_at = decode(encoded, pos)
        _, after = decode(encoded, value_at)
        if str(key) not in changes:
            kept.append(encoded[pos:after])
        pos = after
    for name, value in changes.items():
        if value is not None:
            kept.append(b"\xa3" + bytes((len(name),)) + name.encode() + encode(value))
    return b"".join(kept), len(kept)


def _elements(data: bytes, pos: int) -> list[bytes]:
    """The encoded elements of the list or map at `pos`; none where there is no section."""
    items: list[bytes] = []
    if pos < 0:
        return items
    try:
        end = skip(data, pos, len(data))
        count = compound_count(data, pos, end)
        pos = compound_start(data, pos)
        for _ in range(count):
            after = skip(data, pos, end)
            items.append(data[pos:after])
            pos = after
    except IndexError as error:
        raise DecodeError("a section is cut off") from error
    return items


def _text(data: bytes, pos: int, end: int) -> str:
    start = pos + (5 if data[pos] & 0x10 else 2)
    if data[pos] & 0xEF not in (0xA1, 0xA3):
        raise DecodeError("the name of an application property is no string")
    return _decoded(data[start:end])


def _decoded(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("text is not UTF-8") from error


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value
