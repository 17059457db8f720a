"""Messages to AMQP sections and back (SPEC 2).

The types matter to other clients: a long for a sequence number, a timestamp for a time, a string
for a key. What a message means is not known here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from partibus.client.errors import MalformedMessage
from partibus.client.message import Message, MessageId, MessageState, ReceivedMessage
from partibus.wire.codec import encode
from partibus.wire.message_parts import TTL_MS_MAX, Parts, Properties, data, join, section, split
from partibus.wire.message_scan import TIME_NOT_SET_MS, VALUE
from partibus.wire.values import Timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MIN_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_TIME_MAX_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


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


def encode_message(message: Message, now_ms: int) -> bytes:
    """A message in its sections. Raises EncodeError for values that AMQP has no form for."""
    ttl_ms = None
    if message.time_to_live is not None:
        ttl_ms = message.time_to_live // timedelta(milliseconds=1)
        if ttl_ms <= 0:
            raise ValueError("the time to live of a message is more than nothing")
    return join(
        _properties(message),
        _body(message.body),
        ttl_ms=ttl_ms,
        now_ms=now_ms,
        annotations=_annotations(message),
        application={str(name): _plain(value) for name, value in message.properties.items()},
    )


def _annotations(message: Message) -> dict[str, object]:
    annotations = _key_annotations(message)
    if message.scheduled_enqueue_time is not None:
        at = Timestamp(to_ms(message.scheduled_enqueue_time))
        annotations["x-opt-scheduled-enqueue-time"] = at
    return annotations


def _key_annotations(message: Message) -> dict[str, object]:
    annotations: dict[str, object] = {}
    if message.partition_key is not None:
        annotations["x-opt-partition-key"] = message.partition_key
    if message.via_partition_key is not None:
        annotations["x-opt-via-partition-key"] = message.via_partition_key
    return annotations


def _properties(message: Message) -> Properties:
    return Properties(
        message_id=message.message_id,
        to=message.to,
        subject=message.subject,
        reply_to=message.reply_to,
        correlation_id=message.correlation_id,
        content_type=message.content_type,
        session_id=message.session_id,
        reply_to_session_id=message.reply_to_session_id,
    )


def _body(body: object) -> bytes:
    if isinstance(body, str):
        return data(body.encode())
    if isinstance(body, (bytes, bytearray, memoryview)):
        return data(bytes(body))
    return section(VALUE, encode(_plain(body)))


def _plain(value: object) -> object:
    return Timestamp(to_ms(value)) if isinstance(value, datetime) else value


def encode_batch(messages: list[bytes], first: Message) -> bytes:
    """Encoded messages as one batch; the keys of the first stand on the envelope (SPEC 1.5)."""
    return join(
        Properties(message_id=first.message_id, session_id=first.session_id),
        b"".join(map(data, messages)),
        annotations=_key_annotations(first),
    )


def decode_message(payload: bytes, lock_token: UUID | None = None) -> ReceivedMessage:
    """A message that came. Raises MalformedMessage where it is none."""
    message = ReceivedMessage(lock_token=lock_token)
    try:
        _read(message, split(payload))
    except ValueError as error:
        raise MalformedMessage(f"a message came that cannot be read: {error}") from error
    return message


def _read(message: ReceivedMessage, parts: Parts) -> None:
    _read_header(message, parts)
    _read_annotations(message, parts.annotations)
    _read_properties(message, parts)
    message.properties = {
        str(name): to_time(value) if isinstance(value, Timestamp) else value
        for name, value in parts.application.items()
    }
    message.body = b"".join(parts.data) if parts.data else parts.value


def _read_header(message: ReceivedMessage, parts: Parts) -> None:
    ttl_ms, delivery_count = parts.header_field(2), parts.header_field(4)
    if isinstance(ttl_ms, int):
        message.time_to_live = timedelta(milliseconds=min(ttl_ms, TTL_MS_MAX))
    if isinstance(delivery_count, int):
        message.delivery_count = int(delivery_count)
    token = parts.delivery_annotations.get("x-opt-lock-token")
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


def _read_properties(message: ReceivedMessage, parts: Parts) -> None:
    message.message_id = _id(parts.property(0))
    message.to = _text(parts.property(2))
    message.subject = _text(parts.property(3))
    message.reply_to = _text(parts.property(4))
    message.correlation_id = _id(parts.property(5))
    message.content_type = _text(parts.property(6))
    message.expires_at = to_time(parts.property(8))
    message.session_id = _text(parts.property(10))
    message.reply_to_session_id = _text(parts.property(12))


def _text(value: object) -> str | None:
    # Messages that were received and sent again by some clients have bytes where text was.
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _id(value: object) -> MessageId | None:
    return value if isinstance(value, (str, int, bytes, UUID)) else None
