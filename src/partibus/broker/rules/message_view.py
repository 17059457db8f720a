"""A message as rules see it: its properties, each read when it is first asked for.

One view serves all rules of a topic: its application properties are decoded once, and only those
that some rule mentions. It also counts the steps of an evaluation, so that none can go on for long.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection

from partibus.broker.durations import FOREVER_MS
from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.system_properties import SystemProperty
from partibus.broker.rules.values import TICKS_PER_MS, TimeSpan, value_of
from partibus.wire.codec import decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.message_properties import Head, read_annotations
from partibus.wire.message_scan import TIME_NOT_SET_MS
from partibus.wire.values import Int, Timestamp

# For the rules of one subscription and one message. A node of an expression is a step, a
# character that LIKE looks at too: a tenth of a second at most.
STEPS_MAX = 500_000
# For one message and all subscriptions of its topic together, after which each gets only the
# least: enough for every filter that does not search long texts.
STEPS_TOTAL_MAX = 2_000_000
STEPS_LEAST = 2_000

# .NET's largest time and duration.
TIME_MAX_MS = 253_402_300_799_999
DURATION_MAX_TICKS = (1 << 63) - 1


class MessageView:
    """The properties of one message."""

    __slots__ = (
        "_annotations", "_read", "_steps_max", "_steps_total", "_unreadable", "annotation_count",
        "annotations", "enqueued_ms", "head", "new_id", "sequence_number", "steps", "system",
        "ttl_ms", "user",
    )  # fmt: skip

    def __init__(
        self,
        bare: bytes,
        annotations: bytes = b"",
        annotation_count: int = 0,
        *,
        ttl_ms: int = 0,
        enqueued_ms: int = 0,
        sequence_number: int = 0,
        new_id: Callable[[], bytes] = lambda: bytes(16),
    ) -> None:
        """`new_id` gives sixteen random bytes for NEWID(); `ttl_ms` is 0 for "for ever"."""
        self.head = Head(bare)
        self.annotations = annotations
        self.annotation_count = annotation_count
        self.ttl_ms = ttl_ms
        self.enqueued_ms = enqueued_ms
        self.sequence_number = sequence_number
        self.new_id = new_id
        self.steps = 0
        self._steps_total = 0
        self._steps_max = STEPS_MAX
        # Application properties by property_key; those that `read` was asked for.
        self.user: dict[str, object] = {}
        # System properties by name; those that were asked for, or set by an action.
        self.system: dict[str, object] = {}
        self._read: Collection[str] | None = ()
        self._unreadable = ""
        self._annotations: dict[str, object] | None = None

    def read(self, wanted: Collection[str] | None) -> None:
        """Decode the application properties of these keys; all of them for None."""
        if wanted is not None and (not wanted or wanted == self._read):
            return
        self._read = wanted
        try:
            decoded = self.head.named(wanted)
        except DecodeError as error:
            self._unreadable = f"the application properties are malformed: {error}"
        else:
            self.user = {key: value_of(value) for key, value in decoded.items()}

    def system_value(self, wanted: SystemProperty) -> object:
        """The value of a system property; None where the message has none."""
        name = wanted.name
        if name not in self.system:
            self.system[name] = self._system_value(wanted)
        return self.system[name]

    def spend(self, steps: int) -> None:
        """Count steps of an evaluation."""
        if self._unreadable:
            raise EvaluationError(self._unreadable)
        self.steps += steps
        if self.steps > self._steps_max:
            raise EvaluationError(
                f"the rules take more than {self._steps_max} steps for this message"
            )

    def begin(self) -> None:
        """Count anew, for the rules of another subscription."""
        self._steps_total += self.steps
        self.steps = 0
        if self._steps_total > STEPS_TOTAL_MAX:
            self._steps_max = STEPS_LEAST

    def fresh_id(self) -> uuid.UUID:
        """A uuid that nobody had before."""
        return uuid.UUID(bytes=self.new_id(), version=4)

    def revision(self) -> MessageView:
        """A view that an action may change, of the same message."""
        # A new one shares the bytes; slots are copied by hand because this one must not change.
        copy = MessageView.__new__(MessageView)
        for slot in MessageView.__slots__:
            setattr(copy, slot, getattr(self, slot))
        copy.user = dict(self.user)
        copy.system = dict(self.system)
        return copy

    def _system_value(self, wanted: SystemProperty) -> object:
        if wanted.field >= 0:
            return self._field(wanted.field)
        if wanted.annotation:
            if self._annotations is None:
                self._annotations = read_annotations(self.annotations, self.annotation_count)
            value = self._annotations.get(wanted.annotation)
            return None if value == TIME_NOT_SET_MS else _text_or(value)
        return _KNOWN[wanted.name](self)

    def _field(self, index: int) -> object:
        try:
            encoded = self.head.field(index)
            value = decode_all(encoded) if encoded else None
        except DecodeError as error:
            raise EvaluationError(f"the properties are malformed: {error}") from error
        if value is None:
            return None
        # Ids may be strings, uuids, numbers or bytes; they are compared as text.
        return _text_or(value) if isinstance(value, str | bytes) else str(value)


def _text_or(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value) if isinstance(value, str) else value


def _expires_at(view: MessageView) -> Timestamp:
    ends = view.enqueued_ms + view.ttl_ms
    return Timestamp(min(ends, TIME_MAX_MS) if view.ttl_ms else TIME_MAX_MS)


def _time_to_live(view: MessageView) -> TimeSpan:
    if not view.ttl_ms or view.ttl_ms >= FOREVER_MS:
        return TimeSpan(DURATION_MAX_TICKS)
    return TimeSpan(view.ttl_ms * TICKS_PER_MS)


_KNOWN: dict[str, Callable[[MessageView], object]] = {
    "TimeToLive": _time_to_live,
    "ExpiresAtUtc": _expires_at,
    "EnqueuedTimeUtc": lambda view: Timestamp(view.enqueued_ms),
    "SequenceNumber": lambda view: view.sequence_number,
    "EnqueuedSequenceNumber": lambda view: view.sequence_number,
    # Rules see a message before anybody has received it.
    "DeliveryCount": lambda view: Int(0),
    "State": lambda view: Int(0),
    "DeadLetterSource": lambda view: None,
    "ForcePersistence": lambda view: False,
}
