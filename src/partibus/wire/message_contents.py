"""Reading what a bare message says: its properties and its body, for who wants them as values.

The broker itself never needs this; bulk readers do, for every message, so the usual shape (short
properties, one data section) is read in place and everything else the long way. The parts that
many messages have in common are returned as they are encoded, so that a reader may decode each of
them once.
"""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

from partibus.wire.codec import decode, decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.message_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    PROPERTIES,
    SEQUENCE,
    section_body,
    section_code,
    text_of_id,
)
from partibus.wire.octets import compound_count, compound_start, skip
from partibus.wire.values import Described

# How many fields the properties of a message have, and where those stand that are text.
FIELDS: Final = 13

# The message id; the encoded fields behind it; the encoded application properties; the body.
Parts = tuple[str | None, bytes, bytes, bytes]


def parts(bare: bytes) -> Parts:
    """The parts of a bare message. Raises DecodeError where it is not one."""
    try:
        # properties as a short list with a short string for the id; then data, to the end
        if bare[:4] == b"\x00\x53\x73\xc0" and bare[5] and bare[6] == 0xA1:
            after_id = 8 + bare[7]
            end = 5 + bare[4]
            if after_id <= end:
                message_id = bare[8:after_id].decode()
                rest = bare[after_id:end]
                pos = end
                application = b""
                if bare[pos : pos + 3] == b"\x00\x53\x74":
                    pos = skip(bare, pos + 3, len(bare))
                    application = bare[end + 3 : pos]
                head = bare[pos : pos + 4]
                if head == b"\x00\x53\x75\xa0" and pos + 5 + bare[pos + 4] == len(bare):
                    return message_id, rest, application, bare[pos + 5 :]
                if head == b"\x00\x53\x75\xb0" and pos + 8 + int.from_bytes(
                    bare[pos + 4 : pos + 8], "big"
                ) == len(bare):
                    return message_id, rest, application, bare[pos + 8 :]
        return _parts(bare)
    except IndexError as error:
        raise DecodeError("a section is cut off") from error
    except UnicodeDecodeError as error:
        raise DecodeError("text is not UTF-8") from error


def _parts(bare: bytes) -> Parts:
    message_id: str | None = None
    rest = application = b""
    data: list[bytes] = []
    other: list[object] = []
    pos, end = 0, len(bare)
    while pos < end:
        code = section_code(bare, pos)
        body = section_body(bare, pos, end)
        pos = skip(bare, body, end)
        if code == PROPERTIES:
            if compound_count(bare, body, pos):
                start = compound_start(bare, body)
                after_id = skip(bare, start, pos)
                if bare[start] != 0x40:
                    message_id = text_of_id(bare[start:after_id])
                rest = bare[after_id:pos]
        elif code == APPLICATION_PROPERTIES:
            application = bare[body:pos]
        elif code == DATA:
            data.append(bare[body + (2 if bare[body] == 0xA0 else 5) : pos])
        elif code == SEQUENCE or code < FOOTER:
            other.append(decode_all(bare[body:pos]))
    if other:
        return message_id, rest, application, _octets(other[0] if len(other) == 1 else other)
    return message_id, rest, application, b"".join(data)


def property_values(rest: bytes) -> list[str | None]:
    """The fields behind the message id as text, so that `[field - 1]` is a field; None: none."""
    found: list[str | None] = [None] * (FIELDS - 1)
    pos = at = 0
    while pos < len(rest) and at < FIELDS - 1:
        value, pos = decode(rest, pos)
        found[at] = as_text(value)
        at += 1
    return found


def application_values(application: bytes) -> dict[str, str | None]:
    """The application properties, each value as text."""
    if not application:
        return {}
    found = decode_all(application)
    if not isinstance(found, dict):
        raise DecodeError("application properties are no map")
    return {str(name): as_text(value) for name, value in found.items()}


def annotation_values(kept: bytes) -> dict[str, object]:
    """The sender's message annotations, which are kept as pairs."""
    found: dict[str, object] = {}
    pos = 0
    while pos < len(kept):
        name, pos = decode(kept, pos)
        found[str(name)], pos = decode(kept, pos)
    return found


def as_text(value: object) -> str | None:
    """A value in the form in which a table of text shows it; None for a null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, UUID)):
        return str(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return json.dumps(_plain(value), ensure_ascii=False)


def _octets(value: object) -> bytes:
    """A body that is a value, not data: text and octets as they are, all else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(_plain(value), ensure_ascii=False).encode()


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Described):
        return _plain(value.value)
    return as_text(value) if isinstance(value, (bytes, UUID)) else str(value)
