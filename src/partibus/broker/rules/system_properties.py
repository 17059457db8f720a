"""The properties of the system that rules may read, and those that actions may change.

Each comes from one place: a field of the properties section, an annotation, or what the broker
knows itself. Names are compared without regard to case.
"""

from __future__ import annotations

from dataclasses import dataclass

from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.values import TimeSpan
from partibus.wire import message_properties as fields
from partibus.wire.message_properties import property_key
from partibus.wire.values import Symbol, Timestamp


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A property of the system: where it comes from, and what may be set there."""

    name: str
    # A place in the properties section, or -1.
    field: int = -1
    annotation: str = ""
    # The type that a value must have to be set; None: read only.
    settable: type | None = None
    # What is encoded: a content type is a symbol.
    encoded_as: type | None = None
    is_key: bool = False
    removable: bool = True


_ALL = (
    SystemProperty("ContentType", fields.CONTENT_TYPE, settable=str, encoded_as=Symbol),
    SystemProperty("CorrelationId", fields.CORRELATION_ID, settable=str),
    SystemProperty("Label", fields.SUBJECT, settable=str),
    SystemProperty("MessageId", fields.MESSAGE_ID, settable=str, is_key=True, removable=False),
    SystemProperty("ReplyTo", fields.REPLY_TO, settable=str),
    SystemProperty("ReplyToSessionId", fields.REPLY_TO_GROUP_ID, settable=str, is_key=True),
    SystemProperty("SessionId", fields.GROUP_ID, settable=str, is_key=True),
    SystemProperty("To", fields.TO, settable=str),
    SystemProperty("PartitionKey", annotation="x-opt-partition-key", settable=str, is_key=True),
    SystemProperty(
        "ViaPartitionKey", annotation="x-opt-via-partition-key", settable=str, is_key=True
    ),
    SystemProperty(
        "ScheduledEnqueueTimeUtc", annotation="x-opt-scheduled-enqueue-time", settable=Timestamp
    ),
    SystemProperty("TimeToLive", settable=TimeSpan),
    # Kept by nobody: every message is persistent here.
    SystemProperty("ForcePersistence", settable=bool),
    SystemProperty("EnqueuedTimeUtc"),
    SystemProperty("ExpiresAtUtc"),
    SystemProperty("SequenceNumber"),
    SystemProperty("EnqueuedSequenceNumber"),
    SystemProperty("DeliveryCount"),
    SystemProperty("DeadLetterSource"),
    SystemProperty("State"),
)
_BY_KEY = {property_key(each.name): each for each in _ALL}
# What Label is called in newer clients.
_BY_KEY["subject"] = _BY_KEY["label"]


def system_property(name: str) -> SystemProperty:
    """The property of this name. EvaluationError where there is none."""
    found = _BY_KEY.get(property_key(name))
    if found is None:
        raise EvaluationError(
            f"there is no system property '{name}'; there are "
            + ", ".join(each.name for each in _ALL)
        )
    return found


def settable_property(name: str) -> SystemProperty:
    """The property of this name, if actions may change it. EvaluationError where they may not."""
    found = system_property(name)
    if found.settable is None:
        raise EvaluationError(f"the system property '{found.name}' is read only")
    return found
