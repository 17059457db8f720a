"""Descriptions of queues, topics and subscriptions in XML, in the order that clients know.

Reading takes any order and prefix, and leaves alone what only we can say. Values keep their
public names (broker.properties), where their ranges are checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from partibus.broker.access import AccessRule
from partibus.broker.descriptions import Description, Entity, QueueDescription, write_description
from partibus.broker.properties import InvalidDescription, Plain
from partibus.broker.rule_descriptions import CorrelationFilter, SqlFilter
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.management.atom.access_xml import write_access_rules
from partibus.management.atom.documents import when
from partibus.management.atom.versions import check_asked, knows
from partibus.management.atom.xml_text import INSTANCE, Element, tag, text
from partibus.runtime.counting import EntityCounts
from partibus.store.catalog import Snapshot

SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"

# Which description an element of the body is.
KINDS: dict[str, type[Description]] = {
    "QueueDescription": QueueDescription,
    "TopicDescription": TopicDescription,
    "SubscriptionDescription": SubscriptionDescription,
}

ORDER: dict[type[Description], tuple[str, ...]] = {
    QueueDescription: (
        "LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession",
        "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount", "EnableBatchedOperations",
        "SizeInBytes", "MessageCount", "IsAnonymousAccessible", "AuthorizationRules", "Status",
        "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails",
        "AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus", "EnableExpress",
        "ForwardTo", "UserMetadata", "ForwardDeadLetteredMessagesTo", "MaxMessageSizeInKilobytes",
    ),
    TopicDescription: (
        "DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow", "EnableBatchedOperations", "SizeInBytes",
        "FilteringMessagesBeforePublishing", "IsAnonymousAccessible", "AuthorizationRules",
        "Status", "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails",
        "SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount", "AutoDeleteOnIdle",
        "EnablePartitioning", "EntityAvailabilityStatus", "EnableSubscriptionPartitioning",
        "EnableExpress", "UserMetadata", "MaxMessageSizeInKilobytes",
    ),
    SubscriptionDescription: (
        "LockDuration", "RequiresSession", "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration", "DeadLetteringOnFilterEvaluationExceptions",
        "MessageCount", "MaxDeliveryCount", "EnableBatchedOperations", "Status", "ForwardTo",
        "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "ForwardDeadLetteredMessagesTo",
        "AutoDeleteOnIdle", "EntityAvailabilityStatus", "UserMetadata", "IsClientAffine",
    ),
}  # fmt: skip

# Left out where they are empty.
_OPTIONAL = ("ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata")
_TARGETS = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


def read_properties(element: Element, kind: type[Description], version: str) -> dict[str, Plain]:
    """What a description says, by public names; values out of range are found later."""
    written = write_description(kind(""))
    properties: dict[str, Plain] = {}
    for name, example in written.items():
        given = element.text_of(name)
        if given is not None:
            properties[name] = _plain(name, given.strip(), example)
            check_asked(version, name, properties[name])
    return properties


def _plain(name: str, given: str, example: Plain) -> Plain:
    """The text as the kind of value that the property has."""
    if isinstance(example, bool):
        if given.lower() not in ("true", "false", "1", "0"):
            raise InvalidDescription(name, given, "true or false")
        return given.lower() in ("true", "1")
    if isinstance(example, int):
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise InvalidDescription(name, given, "a whole number")
        return int(given)
    return given


def write_entity(
    entity: Entity,
    snapshot: Snapshot,
    version: str,
    host: str,
    counts: EntityCounts | None = None,
) -> str:
    """The description of an entity; without what only counting tells where it was not counted."""
    kind = type(entity.description)
    parts = _settings(entity, host)
    parts |= _state(entity, snapshot)
    parts |= _counted(entity, counts or EntityCounts([]))
    if counts is None and entity.topic:
        parts["AccessedAt"] = text("AccessedAt", when(0))
    elif counts is None:
        parts["AccessedAt"] = parts["CountDetails"] = ""
    inner = (parts.get(name, "") for name in ORDER[kind] if knows(version, name))
    return tag(kind.__name__, *inner, xmlns=SERVICE, xmlns_i=INSTANCE)


def _settings(entity: Entity, host: str) -> dict[str, str]:
    """What its owner has chosen."""
    values = write_description(entity.description)
    if "MaxSizeInMegabytes" in values:
        values["MaxSizeInMegabytes"] = entity.reported_size_mb
    for name in _OPTIONAL:
        if not values.get(name):
            values.pop(name, None)
        elif name in _TARGETS:
            values[name] = f"sb://{host}/{values[name]}"
    return {name: text(name, value) for name, value in values.items()}


def _state(entity: Entity, snapshot: Snapshot) -> dict[str, str]:
    """What follows from the catalog."""
    subscriptions = snapshot.subscriptions_of(entity)
    filters = [
        rule.filter
        for subscription in subscriptions
        for rule in snapshot.rules_of_subscription(subscription)
    ]
    rules: Sequence[AccessRule] = snapshot.rules_of(entity)
    values: dict[str, object] = {
        "IsAnonymousAccessible": False,
        "CreatedAt": when(entity.created_ms),
        "UpdatedAt": when(entity.updated_ms),
        "SupportOrdering": not entity.partitioned,
        "FilteringMessagesBeforePublishing": False,
        "EnableSubscriptionPartitioning": False,
        "SubscriptionCount": len(subscriptions),
        "SqlFilterCount": sum(isinstance(each, SqlFilter) for each in filters),
        "CorrelationFilterCount": sum(isinstance(each, CorrelationFilter) for each in filters),
        "IsClientAffine": False,
    }
    parts = {name: text(name, value) for name, value in values.items()}
    parts["AuthorizationRules"] = write_access_rules(rules, entity)
    return parts


def _counted(entity: Entity, counts: EntityCounts) -> dict[str, str]:
    """What the fragments say, added up (M2)."""
    is_topic = entity.kind == "topic"
    details = {
        "ActiveMessageCount": 0 if is_topic else counts.active,
        "DeadLetterMessageCount": counts.dead_letters,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfers,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letters,
    }
    values: dict[str, object] = {
        "SizeInBytes": counts.size,
        "MessageCount": counts.messages,
        "AccessedAt": when(counts.used_ms),
        "EntityAvailabilityStatus": "Available" if counts.is_whole else "Limited",
    }
    parts = {name: text(name, value) for name, value in values.items()}
    inner = (text(f"d2p1:{name}", value) for name, value in details.items())
    parts["CountDetails"] = tag("CountDetails", *inner, xmlns_d2p1=COUNTS)
    return parts
