"""Reading an incoming message: its sections found in one pass, undecoded.

`scan` takes the few values the broker decides by and keeps the rest as ranges of bytes; the body
is stepped over. What the values mean for the fate of a message is not known here.
"""

from __future__ import annotations

import uuid
from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from partibus.wire.codec import decode, decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.octets import (
    SPANS,
    VARIABLE_8,
    compound_count,
    compound_start,
    skip,
    skip_many,
    text_at,
    uint_at,
)
from partibus.wire.values import Symbol

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

BATCH_FORMAT: Final = 0x80013700
# 0001-01-01 in milliseconds: .NET's way to say that a time is not set.
TIME_NOT_SET_MS: Final = -62135596800000

_SYMBOLIC: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

_OUT_ONLY: Final = 0
_PARTITION_KEY: Final = 1
_VIA_PARTITION_KEY: Final = 2
_SCHEDULED_TIME: Final = 3
_ANNOTATIONS: Final[dict[bytes, int]] = {
    b"x-opt-enqueued-time": _OUT_ONLY,
    b"x-opt-sequence-number": _OUT_ONLY,
    b"x-opt-enqueue-sequence-number": _OUT_ONLY,
    b"x-opt-locked-until": _OUT_ONLY,
    b"x-opt-partition-id": _OUT_ONLY,
    b"x-opt-deadletter-source": _OUT_ONLY,
    b"x-opt-message-state": _OUT_ONLY,
    b"x-opt-partition-key": _PARTITION_KEY,
    b"x-opt-via-partition-key": _VIA_PARTITION_KEY,
    b"x-opt-scheduled-enqueue-time": _SCHEDULED_TIME,
}


class Sections:
    """What the broker needs to know of a message it takes in. Offsets are -1 for "not there"."""

    __slots__ = (
        "_absolute_expiry_time", "_creation_time", "_message_id_end", "_message_id_start",
        "application_properties_offset", "bare_offset", "body_offset", "delivery_count",
        "footer_offset", "group_id", "kept_annotations", "kept_count", "partition_key", "payload",
        "properties_offset", "scheduled_enqueue_time_ms", "ttl_ms", "via_partition_key",
    )  # fmt: skip

    def __init__(self, payload: bytes) -> None:
        self.payload: bytes = payload
        self.ttl_ms: int | None = None
        self.delivery_count: int = 0
        self.group_id: str | None = None
        self.partition_key: str | None = None
        self.via_partition_key: str | None = None
        self.scheduled_enqueue_time_ms: int | None = None
        self.bare_offset: i64 = -1
        self.properties_offset: i64 = -1
        self.application_properties_offset: i64 = -1
        self.body_offset: i64 = -1
        self.footer_offset: i64 = -1
        # The client's message annotations that stay: a number of pairs, and their bytes.
        self.kept_count: i64 = 0
        self.kept_annotations: bytes = b""
        self._message_id_start: i64 = -1
        self._message_id_end: i64 = -1
        self._absolute_expiry_time: i64 = -1
        self._creation_time: i64 = -1

    @property
    def message_id_raw(self) -> bytes:
        """The message-id as it is encoded; b"" where there is none."""
        if self._message_id_start < 0:
            return b""
        return self.payload[self._message_id_start : self._message_id_end]

    @property
    def message_id(self) -> str | None:
        """The message-id in its string form; None where there is none."""
        if self._message_id_start < 0:
            return None
        return text_of_id(self.message_id_raw)

    @property
    def absolute_expiry_time_ms(self) -> int | None:
        """When the sender says the message ends; None where it does not say."""
        start = self._absolute_expiry_time
        return None if start < 0 else _timestamp(self.payload, start)

    @property
    def creation_time_ms(self) -> int | None:
        """When the sender says the message was made; None where it does not say."""
        start = self._creation_time
        return None if start < 0 else _timestamp(self.payload, start)

    @property
    def bare(self) -> bytes:
        """What is kept of the message as it came: the payload from the properties on."""
        return self.payload[self.bare_offset :]

    @property
    def header_size(self) -> int:
        """Bytes of header, annotations and properties: all that stands before the body."""
        if self.body_offset >= 0:
            return self.body_offset
        return self.footer_offset if self.footer_offset >= 0 else len(self.payload)


def text_of_id(raw: bytes) -> str:
    """The string form of an encoded message-id, by which ids of all types are compared."""
    value = decode_all(raw)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, (str, int, uuid.UUID)):
        return str(value)
    raise DecodeError("a message-id of a type that no id has")


def scan(payload: bytes) -> Sections:
    """Find the sections of a message. Raises DecodeError where they are malformed."""
    found = Sections(payload)
    try:
        _scan(found, payload)
    except IndexError as error:
        raise DecodeError("a section is cut off") from error
    return found


def _scan(found: Sections, data: bytes) -> None:  # noqa: C901 - one loop: calls cost here
    end: i64 = len(data)
    pos: i64 = 0
    last: i64 = 0
    while pos < end:
        if data[pos] == 0 and data[pos + 1] == 0x53:
            code: i64 = data[pos + 2]
            body = pos + 3
        else:
            code = section_code(data, pos)
            body = section_body(data, pos, end)
        if code <= last and not (code == last and code in (DATA, SEQUENCE)):
            raise DecodeError("a section is repeated or out of order")
        last = code
        if SPANS[data[body]] == VARIABLE_8:
            after = body + 2 + data[body + 1]
        else:
            after = skip(data, body, end)
        if code >= PROPERTIES:
            if found.bare_offset < 0:
                found.bare_offset = pos
            if code == PROPERTIES:
                found.properties_offset = pos
                _read_properties(found, data, body, after)
            else:
                _note_section(found, data, code, pos, body)
        elif code == MESSAGE_ANNOTATIONS:
            _read_annotations(found, data, body, after)
        elif code == HEADER:
            _read_header(found, data, body, after)
        elif code != DELIVERY_ANNOTATIONS:
            raise DecodeError("a section that no message has")
        pos = after
    if pos > end:
        raise DecodeError("a section is cut off")
    if found.bare_offset < 0:
        found.bare_offset = end


def _note_section(found: Sections, data: bytes, code: i64, pos: i64, body: i64) -> None:
    if code == APPLICATION_PROPERTIES:
        found.application_properties_offset = pos
        if data[body] & 0xEF != 0xC1:
            raise DecodeError("application properties are no map")
    elif code < FOOTER:
        if found.body_offset < 0:
            found.body_offset = pos
    elif code == FOOTER:
        found.footer_offset = pos
    else:
        raise DecodeError("a section that no message has")


def section_code(data: bytes, pos: i64) -> i64:
    """Which section starts at `pos`."""
    if data[pos] != 0:
        raise DecodeError("a section without a descriptor")
    if data[pos + 1] == 0x53:
        code: i64 = data[pos + 2]
    else:
        descriptor = decode(data, pos + 1)[0]
        if isinstance(descriptor, Symbol):
            code = _SYMBOLIC.get(descriptor, 0)
        elif isinstance(descriptor, int) and 0 <= descriptor < 256:
            code = descriptor
        else:
            code = 0
    if code < HEADER or code > FOOTER:
        raise DecodeError("a section that no message has")
    return code


def section_body(data: bytes, pos: i64, end: i64) -> i64:
    """Where the value of the section at `pos` starts."""
    if data[pos + 1] == 0x53:
        return pos + 3
    return skip(data, pos + 1, end)


# The three readers below take the short forms of lists, maps, strings and numbers in line, because
# uncompiled each call would cost as much as the step itself. Each checks at last that it has come
# out exactly at the end of its section: positions only grow, so no field can have left it.


def _read_header(found: Sections, data: bytes, pos: i64, end: i64) -> None:
    count: i64 = data[pos + 2] if data[pos] == 0xC0 else compound_count(data, pos, end)
    pos = pos + 3 if data[pos] == 0xC0 else compound_start(data, pos)
    index: i64
    for index in range(count):
        span: i64 = SPANS[data[pos]]
        if index == 2:
            if data[pos] != 0x40:
                found.ttl_ms = uint_at(data, pos)
        elif index == 4 and data[pos] != 0x40:
            found.delivery_count = uint_at(data, pos)
        pos = pos + span if span < VARIABLE_8 else skip(data, pos, end)
    if pos != end:
        raise DecodeError("the header is longer than its fields")


def _read_properties(found: Sections, data: bytes, pos: i64, end: i64) -> None:
    count: i64 = data[pos + 2] if data[pos] == 0xC0 else compound_count(data, pos, end)
    pos = pos + 3 if data[pos] == 0xC0 else compound_start(data, pos)
    if count > 0:
        if data[pos] != 0x40:
            found._message_id_start = pos
        pos = skip_many(data, pos, 1)
        found._message_id_end = pos
        pos = skip_many(data, pos, 7 if count > 8 else count - 1)
    if count > 8:
        if data[pos] != 0x40:
            found._absolute_expiry_time = _checked_timestamp(data, pos)
        pos = skip_many(data, pos, 1)
    if count > 9:
        if data[pos] != 0x40:
            found._creation_time = _checked_timestamp(data, pos)
        pos = skip_many(data, pos, 1)
    if count > 10:
        after = skip_many(data, pos, 1)
        if data[pos] != 0x40:
            found.group_id = text_at(data, pos, after)
        pos = skip_many(data, after, count - 11)
    if pos != end:
        raise DecodeError("the properties are longer than their fields")


def _checked_timestamp(data: bytes, pos: i64) -> i64:
    if data[pos] != 0x83:
        raise DecodeError(f"code 0x{data[pos]:02x} is no timestamp")
    return pos


def _timestamp(data: bytes, pos: i64) -> int | None:
    value: i64 = read_i64_be(data, _checked_timestamp(data, pos) + 1)
    return None if value == TIME_NOT_SET_MS else value


def _read_annotations(found: Sections, data: bytes, pos: i64, end: i64) -> None:
    count: i64 = data[pos + 2] if data[pos] == 0xC1 else compound_count(data, pos, end)
    pos = pos + 3 if data[pos] == 0xC1 else compound_start(data, pos)
    if count % 2:
        raise DecodeError("a map with a key without value")
    # Only what is dropped or changed makes more than one piece; most messages have neither.
    pieces: list[bytes] | None = None
    kept_from = pos
    for _ in range(0, count, 2):
        start = pos
        if data[pos] == 0xA3:
            value = pos + 2 + data[pos + 1]
            key = data[pos + 2 : value]
        else:
            value = skip(data, pos, end)
            key = _key(data, pos, value)
        pos = skip(data, value, end)
        meaning = _ANNOTATIONS.get(key)
        found.kept_count += 1
        if meaning is None or data[value] == 0x40:
            continue
        if meaning == _OUT_ONLY:
            pieces = [] if pieces is None else pieces
            pieces.append(data[kept_from:start])
            kept_from = pos
            found.kept_count -= 1
        elif meaning == _SCHEDULED_TIME:
            found.scheduled_enqueue_time_ms = _timestamp(data, value)
        else:
            text = text_at(data, value, pos)
            if meaning == _PARTITION_KEY:
                found.partition_key = text
            else:
                found.via_partition_key = text
            if data[value] & 0xEF != 0xA1:
                # A re-sent message has binary here; typed clients expect the string.
                pieces = [] if pieces is None else pieces
                pieces += [data[kept_from:value], bytes([0xA1 | data[value] & 0x10])]
                kept_from = value + 1
    if pos != end:
        raise DecodeError("the annotations are longer than their pairs")
    rest = data[kept_from:pos]
    found.kept_annotations = rest if pieces is None else b"".join([*pieces, rest])


def _key(data: bytes, pos: i64, end: i64) -> bytes:
    code: i64 = data[pos]
    if code == 0xA1:
        return data[pos + 2 : end]
    return data[pos + 5 : end] if code in (0xB1, 0xB3) else b""


def split_batch(payload: bytes) -> list[bytes]:
    """The messages in a batch (message-format 0x80013700): the contents of its data sections."""
    messages: list[bytes] = []
    try:
        end: i64 = len(payload)
        pos: i64 = 0
        while pos < end:
            code: i64 = section_code(payload, pos)
            body = section_body(payload, pos, end)
            pos = skip(payload, body, end)
            if code == DATA:
                kind: i64 = payload[body]
                if kind & 0xEF != 0xA0:
                    raise DecodeError("a data section that is no binary")
                messages.append(payload[body + (2 if kind == 0xA0 else 5) : pos])
            elif code in (SEQUENCE, VALUE):
                raise DecodeError("a batch with a body that is no data")
    except IndexError as error:
        raise DecodeError("a section is cut off") from error
    if not messages:
        raise DecodeError("a batch without messages")
    return messages
