"""The `BrokerProperties` of a message: JSON in a header or a batch, and what they set (SPEC 7.5).

Names are those of the documents; unknown ones are passed over, as the service does. What the
values mean to the broker is decided when the message is read there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from partibus.broker.durations import parse_duration
from partibus.broker.errors import InvalidArgument
from partibus.management.messages.headers import MS_PER_S, read_time, write_time
from partibus.wire.message_parts import Parts, Properties, data, join
from partibus.wire.values import Timestamp

SPAN_MS_MAX = 10**15
STATES = ("Active", "Deferred", "Scheduled")

_TEXTS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "session_id",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "To": "to",
}
_ANNOTATIONS = {"PartitionKey": "x-opt-partition-key", "ViaPartitionKey": "x-opt-via-partition-key"}


@dataclass(slots=True)
class Outline:
    """What a sender says of a message besides its body."""

    properties: Properties = field(default_factory=Properties)
    annotations: dict[str, object] = field(default_factory=dict)
    application: dict[str, object] = field(default_factory=dict)
    ttl_ms: int | None = None

    def with_body(self, body: bytes, now_ms: int) -> bytes:
        """The message as it travels."""
        return join(
            self.properties,
            data(body),
            ttl_ms=self.ttl_ms,
            now_ms=now_ms,
            annotations=self.annotations,
            application=self.application,
        )


def read_header(text: str | None) -> Outline:
    """What the header `BrokerProperties` says, where there is one."""
    if text is None:
        return Outline()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"BrokerProperties is not JSON: {error}") from error
    return read_properties(found)


def read_properties(found: object) -> Outline:
    """What an object of BrokerProperties says. Raises InvalidArgument for what it cannot mean."""
    if not isinstance(found, Mapping):
        raise InvalidArgument("BrokerProperties is not a JSON object, as {...}.")
    outline = Outline()
    for name, attribute in _TEXTS.items():
        setattr(outline.properties, attribute, _text(name, found))
    for name, annotation in _ANNOTATIONS.items():
        key = _text(name, found)
        if key is not None:
            outline.annotations[annotation] = key
    outline.ttl_ms = _time_to_live(found)
    due = _text("ScheduledEnqueueTimeUtc", found)
    if due is not None:
        at = read_time(due)
        if at is None:
            raise InvalidArgument(
                f"ScheduledEnqueueTimeUtc '{due}' is no time, as Sun, 06 Nov 1994 08:49:37 GMT."
            )
        outline.annotations["x-opt-scheduled-enqueue-time"] = at
    return outline


def _text(name: str, found: Mapping[str, object]) -> str | None:
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise InvalidArgument(f"{name} in BrokerProperties is not a text.")


def _time_to_live(found: Mapping[str, object]) -> int | None:
    span = found.get("TimeToLiveTimeSpan")
    if isinstance(span, str):
        return _span("TimeToLiveTimeSpan", _time_span_ms(span))
    seconds = found.get("TimeToLive")
    if seconds is None:
        return None
    if isinstance(seconds, str):
        try:
            seconds = float(seconds)
        except ValueError:
            raise InvalidArgument(f"TimeToLive '{seconds}' is no number of seconds.") from None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidArgument("TimeToLive is no number of seconds.")
    # Also what is no number at all ends at the limit.
    return _span("TimeToLive", round(min(seconds, SPAN_MS_MAX) * MS_PER_S))


def _time_span_ms(text: str) -> int:
    """ISO 8601 (PT30S), or .NET's d.hh:mm:ss."""
    days, _, clock = text.rpartition(".") if text.count(":") == 2 else ("", "", text)
    parts = clock.split(":")
    if len(parts) == 3 and all(map(str.isdecimal, parts)) and (not days or days.isdecimal()):
        hours, minutes, seconds = map(int, parts)
        return (((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) * MS_PER_S
    span_ms = parse_duration(text)
    if span_ms is None:
        raise InvalidArgument(f"TimeToLiveTimeSpan '{text}' is no span of time, as PT30S.")
    return span_ms


def _span(name: str, span_ms: int) -> int:
    if span_ms <= 0:
        raise InvalidArgument(f"{name} is not more than nothing.")
    return min(span_ms, SPAN_MS_MAX)


def write_properties(parts: Parts) -> dict[str, object]:
    """The BrokerProperties of a message that was received."""
    annotations = parts.annotations
    state = annotations.get("x-opt-message-state") or 0
    deliveries = parts.header_field(4)
    written: dict[str, object] = {
        # HTTP counts this delivery, AMQP the ones before it.
        "DeliveryCount": (deliveries if isinstance(deliveries, int) else 0) + 1,
        "EnqueuedSequenceNumber": annotations.get("x-opt-enqueue-sequence-number"),
        "EnqueuedTimeUtc": _time(annotations.get("x-opt-enqueued-time")),
        "LockedUntilUtc": _time(annotations.get("x-opt-locked-until")),
        "LockToken": parts.delivery_annotations.get("x-opt-lock-token"),
        "SequenceNumber": annotations.get("x-opt-sequence-number"),
        "State": STATES[state] if isinstance(state, int) and 0 <= state < len(STATES) else None,
        "PartitionKey": annotations.get("x-opt-partition-key"),
        "ViaPartitionKey": annotations.get("x-opt-via-partition-key"),
        "ScheduledEnqueueTimeUtc": _time(annotations.get("x-opt-scheduled-enqueue-time")),
        "DeadLetterSource": annotations.get("x-opt-deadletter-source"),
        "MessageId": parts.property(0),
        "To": parts.property(2),
        "Label": parts.property(3),
        "ReplyTo": parts.property(4),
        "CorrelationId": parts.property(5),
        "SessionId": parts.property(10),
        "ReplyToSessionId": parts.property(12),
        "TimeToLive": _seconds(parts.header_field(2)),
    }
    return {name: _plain(value) for name, value in written.items() if value is not None}


def _time(value: object) -> str | None:
    return write_time(int(value)) if isinstance(value, Timestamp) else None


def _seconds(ttl_ms: object) -> float | None:
    return ttl_ms / MS_PER_S if isinstance(ttl_ms, int) else None


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, (UUID, str)) else value
