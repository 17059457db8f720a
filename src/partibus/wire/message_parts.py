"""A message as a whole, section by section: for who writes or reads all of one.

Clients and the HTTP door put messages together and take them apart here. The broker itself never
does: it moves sections as they came (message_scan, message_patch, message_build). What the values
mean is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partibus.wire.codec import decode, encode, encode_list
from partibus.wire.errors import DecodeError
from partibus.wire.message_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_body,
    section_code,
)
from partibus.wire.values import Symbol, Timestamp, UInt

TTL_MS_MAX = 0xFFFFFFFF
# The last millisecond that every client's calendar has.
_TIME_MAX_MS = 253_402_300_799_999

_KINDS: dict[int, type] = {
    HEADER: list,
    DELIVERY_ANNOTATIONS: dict,
    MESSAGE_ANNOTATIONS: dict,
    PROPERTIES: list,
    APPLICATION_PROPERTIES: dict,
    DATA: bytes,
    SEQUENCE: list,
}


@dataclass(slots=True)
class Properties:
    """The standard properties that Service Bus knows. The ids may be of any type of id."""

    message_id: object = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: object = None
    content_type: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None


@dataclass(slots=True)
class Parts:
    """A message that was taken apart; fields that the sender left out are missing."""

    header: list[object] = field(default_factory=list)
    delivery_annotations: dict[str, object] = field(default_factory=dict)
    annotations: dict[str, object] = field(default_factory=dict)
    properties: list[object] = field(default_factory=list)
    application: dict[str, object] = field(default_factory=dict)
    data: list[bytes] = field(default_factory=list)
    # The body where it is a value or a sequence; there may be a value that is null.
    value: object = None

    def header_field(self, index: int) -> object:
        """A field of the header; None where it is missing."""
        return self.header[index] if index < len(self.header) else None

    def property(self, index: int) -> object:
        """A field of the properties; None where it is missing."""
        return self.properties[index] if index < len(self.properties) else None


def section(code: int, value: bytes) -> bytes:
    """One section, of an encoded value."""
    return bytes((0x00, 0x53, code)) + value


def join(
    properties: Properties,
    body: bytes,
    *,
    ttl_ms: int | None = None,
    now_ms: int = 0,
    annotations: Mapping[str, object] | None = None,
    application: Mapping[str, object] | None = None,
) -> bytes:
    """A message of these parts; `body` is one or more sections. Raises EncodeError."""
    parts = []
    if ttl_ms is not None:
        header: list[object] = [None, None, UInt(min(ttl_ms, TTL_MS_MAX))]
        parts.append(section(HEADER, encode(header)))
    if annotations:
        named = {Symbol(name): value for name, value in annotations.items()}
        parts.append(section(MESSAGE_ANNOTATIONS, encode(named)))
    parts.append(section(PROPERTIES, _encode_properties(properties, ttl_ms, now_ms)))
    if application:
        parts.append(section(APPLICATION_PROPERTIES, encode(dict(application))))
    parts.append(body)
    return b"".join(parts)


def data(body: bytes) -> bytes:
    """A body of bytes."""
    return section(DATA, encode(body))


def _encode_properties(given: Properties, ttl_ms: int | None, now_ms: int) -> bytes:
    fields: list[object] = [
        given.message_id,
        None,
        given.to,
        given.subject,
        given.reply_to,
        given.correlation_id,
        None if given.content_type is None else Symbol(given.content_type),
        None,
        # A header holds 49 days at most; these two hold any time to live.
        None if ttl_ms is None else Timestamp(min(now_ms + ttl_ms, _TIME_MAX_MS)),
        None if ttl_ms is None else Timestamp(now_ms),
        given.session_id,
        None,
        given.reply_to_session_id,
    ]
    while fields and fields[-1] is None:
        fields.pop()
    return encode_list([encode(each) for each in fields])


def split(payload: bytes) -> Parts:
    """Take a message apart. Raises DecodeError where it is none."""
    parts = Parts()
    position = 0
    try:
        while position < len(payload):
            code = int(section_code(payload, position))
            start = int(section_body(payload, position, len(payload)))
            value, position = decode(payload, start)
            if not isinstance(value, _KINDS.get(code, object)):
                raise DecodeError(f"section 0x{code:02x} holds something else")
            _put(parts, code, value)
    except IndexError as error:
        raise DecodeError("the message ends too early") from error
    return parts


def _put(parts: Parts, code: int, value: object) -> None:
    if code == DATA and isinstance(value, bytes):
        parts.data.append(value)
    elif isinstance(value, list):
        _put_list(parts, code, value)
    elif isinstance(value, dict):
        _put_map(parts, code, value)
    elif code == VALUE:
        parts.value = value


def _put_list(parts: Parts, code: int, value: list[object]) -> None:
    if code == HEADER:
        parts.header = value
    elif code == PROPERTIES:
        parts.properties = value
    else:
        parts.value = value


def _put_map(parts: Parts, code: int, value: dict[str, object]) -> None:
    if code == MESSAGE_ANNOTATIONS:
        parts.annotations = value
    elif code == DELIVERY_ANNOTATIONS:
        parts.delivery_annotations = value
    elif code == APPLICATION_PROPERTIES:
        parts.application = value
    elif code == VALUE:
        parts.value = value
