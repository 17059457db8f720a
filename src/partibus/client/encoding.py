"""Messages to AMQP sections and back (SPEC 2).

The types matter to other clients: a long for a sequence number, a timestamp for a time, a string
for a key. What a message means is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from partibus.client.errors import MalformedMessage
from partibus.client.message import Message, MessageId, MessageState, ReceivedMessage
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
    TIME_NOT_SET_MS,
    VALUE,
    section_body,
    section_code,
)
from partibus.wire.values import Symbol, Timestamp, UInt

TTL_MS_MAX: Final = 0xFFFFFFFF
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MIN_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_TIME_MAX_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_DAY_MAX_MS: Final = 253_402_300_799_999


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970; a time without a zone could be any, so it is refused."""
    if time.tzinfo is None:
        raise ValueError("a time needs a time zone, as datetime.now(UTC) has")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def to_time(value: object) -> datetime | None:
    """The time of an AMQP timestamp; None for none, and for .NET's way to say so."""
    if not isinstance(value, int) or value == TIME_NOT_SET_MS:
        return None
    return _EPOCH + timedelta(milliseconds=min(max(value, _TIME_MIN_MS), _TIME_MAX_MS))


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def encode_message(message: Message, now_ms: int) -> bytes:
    """A message in its sections. Raises EncodeError for values that AMQP has no form for."""
    ttl_ms = None
    if message.time_to_live is not None:
        ttl_ms = message.time_to_live // timedelta(milliseconds=1)
        if ttl_ms <= 0:
            raise ValueError("the time to live of a message is more than nothing")
    parts = []
    if ttl_ms is not None:
        header: list[object] = [None, None, UInt(min(ttl_ms, TTL_MS_MAX))]
        parts.append(_section(HEADER, encode(header)))
    annotations = _annotations(message)
    if annotations:
        parts.append(_section(MESSAGE_ANNOTATIONS, encode(annotations)))
    parts.append(_section(PROPERTIES, _properties(message, ttl_ms, now_ms)))
    if message.properties:
        application = {str(name): _plain(value) for name, value in message.properties.items()}
        parts.append(_section(APPLICATION_PROPERTIES, encode(application)))
    parts.append(_body(message.body))
    return b"".join(parts)


def _annotations(message: Message) -> dict[object, object]:
    annotations: dict[object, object] = {}
    if message.partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = message.partition_key
    if message.via_partition_key is not None:
        annotations[Symbol("x-opt-via-partition-key")] = message.via_partition_key
    if message.scheduled_enqueue_time is not None:
        at = Timestamp(to_ms(message.scheduled_enqueue_time))
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = at
    return annotations


def _properties(message: Message, ttl_ms: int | None, now_ms: int) -> bytes:
    fields: list[object] = [
        message.message_id,
        None,
        message.to,
        message.subject,
        message.reply_to,
        message.correlation_id,
        None if message.content_type is None else Symbol(message.content_type),
        None,
        # A header holds 49 days at most; these two hold any time to live.
        None if ttl_ms is None else Timestamp(min(now_ms + ttl_ms, _DAY_MAX_MS)),
        None if ttl_ms is None else Timestamp(now_ms),
        message.session_id,
        None,
        message.reply_to_session_id,
    ]
    while fields and fields[-1] is None:
        fields.pop()
    return encode_list([encode(field) for field in fields])


def _body(body: object) -> bytes:
    if isinstance(body, str):
        return _section(DATA, encode(body.encode()))
    if isinstance(body, (bytes, bytearray, memoryview)):
        return _section(DATA, encode(bytes(body)))
    return _section(VALUE, encode(_plain(body)))


def _plain(value: object) -> object:
    return Timestamp(to_ms(value)) if isinstance(value, datetime) else value


def encode_batch(messages: list[bytes], first: Message) -> bytes:
    """Encoded messages as one batch; the keys of the first stand on the envelope (SPEC 1.5)."""
    parts = []
    annotations: dict[object, object] = {}
    if first.partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = first.partition_key
    if first.via_partition_key is not None:
        annotations[Symbol("x-opt-via-partition-key")] = first.via_partition_key
    if annotations:
        parts.append(_section(MESSAGE_ANNOTATIONS, encode(annotations)))
    envelope = Message(message_id=first.message_id, session_id=first.session_id)
    parts.append(_section(PROPERTIES, _properties(envelope, None, 0)))
    parts += [_section(DATA, encode(message)) for message in messages]
    return b"".join(parts)


def decode_message(payload: bytes, lock_token: UUID | None = None) -> ReceivedMessage:
    """A message that came. Raises MalformedMessage where it is none."""
    message = ReceivedMessage(lock_token=lock_token)
    data: list[bytes] = []
    try:
        position = 0
        while position < len(payload):
            code = int(section_code(payload, position))
            start = int(section_body(payload, position, len(payload)))
            value, position = decode(payload, start)
            kind, read = _READERS.get(code, (object, _pass_over))
            if not isinstance(value, kind):
                raise DecodeError(f"section 0x{code:02x} holds something else")
            read(message, value)
            if code == DATA and isinstance(value, bytes):
                data.append(value)
    except (IndexError, ValueError) as error:
        raise MalformedMessage(f"a message came that cannot be read: {error}") from error
    if data:
        message.body = data[0] if len(data) == 1 else b"".join(data)
    return message


def _read_header(message: ReceivedMessage, fields: list[object]) -> None:
    ttl_ms, delivery_count = _field(fields, 2), _field(fields, 4)
    if isinstance(ttl_ms, int):
        message.time_to_live = timedelta(milliseconds=min(ttl_ms, TTL_MS_MAX))
    if isinstance(delivery_count, int):
        message.delivery_count = int(delivery_count)


def _read_delivery_annotations(message: ReceivedMessage, found: dict[str, object]) -> None:
    token = found.get("x-opt-lock-token")
    if message.lock_token is None and isinstance(token, UUID):
        message.lock_token = token


def _read_annotations(message: ReceivedMessage, found: dict[str, object]) -> None:
    message.partition_key = _text(found.get("x-opt-partition-key"))
    message.via_partition_key = _text(found.get("x-opt-via-partition-key"))
    message.scheduled_enqueue_time = to_time(found.get("x-opt-scheduled-enqueue-time"))
    message.sequence_number = _number(found.get("x-opt-sequence-number"))
    message.enqueued_sequence_number = _number(found.get("x-opt-enqueue-sequence-number"))
    message.enqueued_time = to_time(found.get("x-opt-enqueued-time"))
    message.locked_until = to_time(found.get("x-opt-locked-until"))
    message.partition_id = _number(found.get("x-opt-partition-id"))
    message.dead_letter_source = _text(found.get("x-opt-deadletter-source"))
    message.state = MessageState(_number(found.get("x-opt-message-state")) or 0)


def _read_properties(message: ReceivedMessage, fields: list[object]) -> None:
    message.message_id = _id(_field(fields, 0))
    message.to = _text(_field(fields, 2))
    message.subject = _text(_field(fields, 3))
    message.reply_to = _text(_field(fields, 4))
    message.correlation_id = _id(_field(fields, 5))
    message.content_type = _text(_field(fields, 6))
    message.expires_at = to_time(_field(fields, 8))
    message.session_id = _text(_field(fields, 10))
    message.reply_to_session_id = _text(_field(fields, 12))


def _read_application_properties(message: ReceivedMessage, found: dict[str, object]) -> None:
    message.properties = {
        str(name): to_time(value) if isinstance(value, Timestamp) else value
        for name, value in found.items()
    }


def _read_value(message: ReceivedMessage, value: object) -> None:
    message.body = value


def _pass_over(message: ReceivedMessage, value: object) -> None:
    return


# What each section holds, and who reads it.
_READERS: Final[dict[int, tuple[type, Callable[[ReceivedMessage, Any], None]]]] = {
    HEADER: (list, _read_header),
    DELIVERY_ANNOTATIONS: (dict, _read_delivery_annotations),
    MESSAGE_ANNOTATIONS: (dict, _read_annotations),
    PROPERTIES: (list, _read_properties),
    APPLICATION_PROPERTIES: (dict, _read_application_properties),
    DATA: (bytes, _pass_over),
    SEQUENCE: (list, _read_value),
    VALUE: (object, _read_value),
}


def _field(fields: list[object], index: int) -> object:
    return fields[index] if index < len(fields) else None


def _text(value: object) -> str | None:
    # Messages that were received and sent again by some clients have bytes where text was.
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _id(value: object) -> MessageId | None:
    return value if isinstance(value, (str, int, bytes, UUID)) else None
