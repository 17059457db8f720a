"""What topics, subscriptions and rules may say. Read and checked; not yet served.

A configuration file that names topics is checked as a whole, so that nothing in it is dropped
without a word and the same file works once topics are served. No messages pass here.
"""

from __future__ import annotations

from collections.abc import Mapping

from partibus.broker.descriptions import (
    DUPLICATE_WINDOW_MS_MAX,
    IDLE_MS_MIN,
    LOCK_MS_MAX,
    LOCK_MS_MIN,
    STATUSES,
    TTL_MS_MIN,
    USER_METADATA_MAX,
    forwarding_target,
)
from partibus.broker.durations import SECOND_MS
from partibus.broker.profiles import Profile
from partibus.broker.properties import (
    InvalidDescription,
    Plain,
    Table,
    choice,
    duration,
    flag,
    kilobytes,
    read_properties,
    text,
    unknown_property,
    whole,
)

FILTER_TEXT_MAX = 1024

TOPIC_PROPERTIES: Table = (
    duration("DefaultMessageTimeToLive", "default_ttl_ms", TTL_MS_MIN),
    whole("MaxSizeInMegabytes", "max_size_mb"),
    flag("RequiresDuplicateDetection", "requires_duplicate_detection", fixed=True),
    duration(
        "DuplicateDetectionHistoryTimeWindow",
        "duplicate_window_ms",
        SECOND_MS,
        DUPLICATE_WINDOW_MS_MAX,
    ),
    flag("EnableBatchedOperations", "enable_batched_operations"),
    choice("Status", "status", STATUSES),
    flag("SupportOrdering", "support_ordering"),
    duration("AutoDeleteOnIdle", "auto_delete_on_idle_ms", IDLE_MS_MIN),
    flag("EnablePartitioning", "enable_partitioning", fixed=True),
    flag("EnableExpress", "enable_express"),
    text("UserMetadata", "user_metadata", USER_METADATA_MAX),
    kilobytes("MaxMessageSizeInKilobytes", "max_message_bytes", 102_400),
)

SUBSCRIPTION_PROPERTIES: Table = (
    duration("LockDuration", "lock_ms", LOCK_MS_MIN, LOCK_MS_MAX),
    flag("RequiresSession", "requires_session", fixed=True),
    duration("DefaultMessageTimeToLive", "default_ttl_ms", TTL_MS_MIN),
    flag("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration"),
    flag("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_errors"),
    whole("MaxDeliveryCount", "max_delivery_count"),
    flag("EnableBatchedOperations", "enable_batched_operations"),
    choice("Status", "status", STATUSES),
    forwarding_target("ForwardTo", "forward_to"),
    forwarding_target("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to"),
    duration("AutoDeleteOnIdle", "auto_delete_on_idle_ms", IDLE_MS_MIN),
    text("UserMetadata", "user_metadata", USER_METADATA_MAX),
)

_CORRELATION_FIELDS = (
    "ContentType", "CorrelationId", "Label", "MessageId", "ReplyTo", "ReplyToSessionId",
    "SessionId", "To",
)  # fmt: skip
_CORRELATION: Table = tuple(text(each, each, FILTER_TEXT_MAX) for each in _CORRELATION_FIELDS)
_SQL: Table = (text("SqlExpression", "expression", FILTER_TEXT_MAX),)
_FILTER_TYPES = ("Correlation", "Sql", "True", "False")


def check_topic(properties: Mapping[str, Plain], profile: Profile) -> None:
    """Refuse a topic that could not be made."""
    if not profile.has_advanced_features:
        raise InvalidDescription("Topics", "a topic", f"none in the profile {profile.name}")
    read_properties(properties, TOPIC_PROPERTIES)


def check_subscription(properties: Mapping[str, Plain]) -> None:
    """Refuse a subscription that could not be made."""
    read_properties(properties, SUBSCRIPTION_PROPERTIES)


def check_rule(properties: Mapping[str, Plain]) -> None:
    """Refuse a rule whose filter or action is not one."""
    known = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
    for name in properties:
        if name not in known:
            raise unknown_property(name, properties[name], known)
    kind = properties.get("FilterType", "True")
    if kind not in _FILTER_TYPES:
        raise InvalidDescription("FilterType", kind, ", ".join(_FILTER_TYPES))
    correlation = dict(_mapping("CorrelationFilter", properties))
    _mapping("Properties", correlation)
    correlation.pop("Properties", None)
    read_properties(correlation, _CORRELATION)
    read_properties(_mapping("SqlFilter", properties), _SQL)
    read_properties(_mapping("Action", properties), _SQL)


def _mapping(name: str, properties: Mapping[str, Plain]) -> Mapping[str, Plain]:
    value = properties.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidDescription(name, value, "an object {...}")
    return value
