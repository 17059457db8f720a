"""What topics and subscriptions are: their settings, by the names that clients use.

A subscription has a path below its topic's (names) and lies where its topic lies: as many
fragments, each in the same store as the topic's. Rules are in rule_descriptions; no messages
pass here.
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
    Description,
    forwarding_target,
    read_description,
)
from partibus.broker.durations import SECOND_MS
from partibus.broker.names import check_entity_name, check_subscription_name, subscription_path
from partibus.broker.profiles import Profile
from partibus.broker.properties import (
    InvalidDescription,
    Plain,
    Table,
    choice,
    duration,
    flag,
    kilobytes,
    text,
    whole,
)

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


class TopicDescription(Description):
    """The settings of a topic."""

    __slots__ = ()
    KIND = "topic"
    PROPERTIES = TOPIC_PROPERTIES


class SubscriptionDescription(Description):
    """The settings of a subscription. How large its messages may be, its topic says."""

    __slots__ = ()
    KIND = "subscription"
    PROPERTIES = SUBSCRIPTION_PROPERTIES

    @property
    def allows_send(self) -> bool:
        """A subscription collects messages whatever its status; nobody sends to it."""
        return True

    @property
    def shares_contents(self) -> bool:
        """It holds copies of what was sent to its topic."""
        return True


def read_topic(name: str, properties: Mapping[str, Plain], profile: Profile) -> TopicDescription:
    """A new topic of this name, with defaults for what is not said."""
    if not profile.has_advanced_features:
        raise InvalidDescription("Topics", "a topic", f"none in the profile {profile.name}")
    return read_description(TopicDescription, check_entity_name(name), properties, profile)


def read_subscription(
    topic: str, name: str, properties: Mapping[str, Plain], profile: Profile
) -> SubscriptionDescription:
    """A new subscription of a topic, with defaults for what is not said."""
    path = subscription_path(topic, check_subscription_name(name))
    return read_description(SubscriptionDescription, path, properties, profile)
