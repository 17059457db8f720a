"""What an entity is: its settings, their defaults and limits, and where its fragments lie.

A description holds what may be said about a queue, a topic or a subscription; an Entity is one
that exists. A description made by read_description or revise_description obeys the limits of its
namespace's profile; one made directly (in tests) obeys none. The kinds beside queues are in
topics; counts, sizes and messages are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from partibus.broker.durations import DAY_MS, FOREVER_MS, MINUTE_MS, SECOND_MS, format_duration
from partibus.broker.names import check_entity_name, entity_of_address, name_key
from partibus.broker.profiles import KILOBYTE, Profile
from partibus.broker.properties import (
    InvalidDescription,
    Plain,
    Property,
    Table,
    choice,
    duration,
    flag,
    kilobytes,
    read_properties,
    text,
    whole,
    write_properties,
)

__all__ = ["Description", "Entity", "InvalidDescription", "QueueDescription", "read_queue"]

LOCK_MS_MIN = 5 * SECOND_MS
LOCK_MS_MAX = 5 * MINUTE_MS
TTL_MS_MIN = SECOND_MS
IDLE_MS_MIN = 5 * MINUTE_MS
DUPLICATE_WINDOW_MS_MAX = 7 * DAY_MS
USER_METADATA_MAX = 1024
SIZE_MB_DEFAULT = 1024

STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")


@dataclass(frozen=True, slots=True)
class Description:
    """The settings of an entity. Durations that mean "never" are FOREVER_MS.

    Which of them an entity of some kind has is in the kind's PROPERTIES; the others stay as they
    are here, so that whoever handles messages need not ask what kind it is.
    """

    KIND: ClassVar[str] = ""
    PROPERTIES: ClassVar[Table] = ()

    name: str
    lock_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    default_ttl_ms: int = FOREVER_MS
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_errors: bool = True
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 10 * MINUTE_MS
    requires_session: bool = False
    enable_partitioning: bool = False
    # The quota of one fragment: what a partitioned entity reports is this times its fragments.
    max_size_mb: int = SIZE_MB_DEFAULT
    max_message_bytes: int = 256 * KILOBYTE
    status: str = "Active"
    auto_delete_on_idle_ms: int = FOREVER_MS
    # Names of entities; empty: none.
    forward_to: str = ""
    forward_dead_letters_to: str = ""
    user_metadata: str = ""
    # Kept and given back; neither changes what the broker does.
    enable_batched_operations: bool = True
    enable_express: bool = False

    @property
    def allows_send(self) -> bool:
        """Whether the status lets messages in."""
        return self.status in ("Active", "ReceiveDisabled")

    @property
    def allows_receive(self) -> bool:
        """Whether the status lets messages out."""
        return self.status in ("Active", "SendDisabled")

    @property
    def shares_contents(self) -> bool:
        """Whether what it holds are copies, whose contents are kept once for all of them."""
        return False


AnyDescription = TypeVar("AnyDescription", bound=Description)


def forwarding_target(name: str, field: str) -> Property:
    """The name of another entity, or nothing; absolute URIs are taken for the entity they name."""

    def read(value: Plain) -> object:
        if not isinstance(value, str):
            return None
        target = entity_of_address(value)
        return check_entity_name(target, name) if target else ""

    return Property(name, field, "the name of a queue or topic, or empty", read, lambda v: v)


# In the order in which descriptions are written (SPEC 7.4).
QUEUE_PROPERTIES: Table = (
    duration("LockDuration", "lock_ms", LOCK_MS_MIN, LOCK_MS_MAX),
    whole("MaxSizeInMegabytes", "max_size_mb"),
    flag("RequiresDuplicateDetection", "requires_duplicate_detection", fixed=True),
    flag("RequiresSession", "requires_session", fixed=True),
    duration("DefaultMessageTimeToLive", "default_ttl_ms", TTL_MS_MIN),
    flag("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration"),
    duration(
        "DuplicateDetectionHistoryTimeWindow",
        "duplicate_window_ms",
        SECOND_MS,
        DUPLICATE_WINDOW_MS_MAX,
    ),
    whole("MaxDeliveryCount", "max_delivery_count"),
    flag("EnableBatchedOperations", "enable_batched_operations"),
    choice("Status", "status", STATUSES),
    duration("AutoDeleteOnIdle", "auto_delete_on_idle_ms", IDLE_MS_MIN),
    flag("EnablePartitioning", "enable_partitioning", fixed=True),
    flag("EnableExpress", "enable_express"),
    forwarding_target("ForwardTo", "forward_to"),
    text("UserMetadata", "user_metadata", USER_METADATA_MAX),
    forwarding_target("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to"),
    kilobytes("MaxMessageSizeInKilobytes", "max_message_bytes", 102_400),
)


class QueueDescription(Description):
    """The settings of a queue."""

    __slots__ = ()
    KIND = "queue"
    PROPERTIES = QUEUE_PROPERTIES


def read_queue(name: str, properties: Mapping[str, Plain], profile: Profile) -> QueueDescription:
    """A new queue of this name, with defaults for what is not said."""
    return read_description(QueueDescription, check_entity_name(name), properties, profile)


def read_description(
    kind: type[AnyDescription], name: str, properties: Mapping[str, Plain], profile: Profile
) -> AnyDescription:
    """A new entity of this kind and name, with defaults for what is not said."""
    defaults: dict[str, object] = {
        "default_ttl_ms": profile.ttl_ms_max,
        "max_message_bytes": profile.message_kb_default * KILOBYTE,
    }
    given = read_properties(properties, kind.PROPERTIES)
    if profile.fragments == 1 or profile.always_partitioned:
        # The namespace has decided; asking for the other has no effect (P7).
        given["enable_partitioning"] = profile.always_partitioned
    description = replace(kind(name), **defaults | given)  # type: ignore[arg-type]
    check_description(description, profile)
    return description


def revise_description(
    current: AnyDescription, properties: Mapping[str, Plain], profile: Profile, fragments: int
) -> AnyDescription:
    """The entity with these properties changed; those not named stay as they are."""
    given = read_properties(properties, current.PROPERTIES)
    if given.get("max_size_mb") == current.max_size_mb * fragments:
        # Clients send back the multiplied size that they were told.
        given["max_size_mb"] = current.max_size_mb
    if profile.fragments == 1:
        given.pop("enable_partitioning", None)
    for each in current.PROPERTIES:
        old = getattr(current, each.field)
        if each.fixed and given.get(each.field, old) != old:
            raise InvalidDescription(
                each.name,
                properties[each.name],
                f"{str(old).lower()}, as it was created; this property cannot change",
            )
    revised = replace(current, **given)  # type: ignore[arg-type]
    check_description(revised, profile, current)
    return revised


def write_description(description: Description) -> dict[str, Plain]:
    """All properties by their public names, as plain values; read_stored reads them back."""
    return write_properties(description, description.PROPERTIES)


def read_stored(
    kind: type[AnyDescription], name: str, properties: Mapping[str, Plain]
) -> AnyDescription:
    """An entity that was accepted before, without asking whether it would be today."""
    given = read_properties(properties, kind.PROPERTIES)
    return replace(kind(name), **given)  # type: ignore[arg-type]


def check_description(
    description: Description, profile: Profile, before: Description | None = None
) -> None:
    """Refuse what the namespace's profile does not allow; what was so `before` may stay so."""
    plain = write_description(description)
    for each in description.PROPERTIES:
        if before is not None and getattr(before, each.field) == getattr(description, each.field):
            continue
        if each.read(plain[each.name]) is None:
            raise InvalidDescription(each.name, plain[each.name], each.allowed)
        allowed = _profile_allows(each.name, description, profile)
        if allowed:
            raise InvalidDescription(each.name, plain[each.name], allowed)


def _profile_allows(name: str, entity: Description, profile: Profile) -> str:
    """What the profile allows instead of this property's value; empty where the value is fine."""
    kb = entity.max_message_bytes // KILOBYTE
    advanced = profile.has_advanced_features
    sizes = profile.sizes_mb
    rules = {
        "MaxSizeInMegabytes": (
            not sizes or entity.max_size_mb in sizes,
            f"one of {', '.join(map(str, sizes))}",
        ),
        "MaxMessageSizeInKilobytes": (
            profile.message_kb_min <= kb <= profile.message_kb_max,
            f"{profile.message_kb_min} to {profile.message_kb_max}",
        ),
        "DefaultMessageTimeToLive": (
            entity.default_ttl_ms <= profile.ttl_ms_max,
            f"at most {format_duration(profile.ttl_ms_max)}",
        ),
        "DuplicateDetectionHistoryTimeWindow": (
            entity.duplicate_window_ms >= profile.duplicate_window_ms_min,
            f"{format_duration(profile.duplicate_window_ms_min)} or longer",
        ),
        "RequiresSession": (advanced or not entity.requires_session, "false"),
        "RequiresDuplicateDetection": (
            advanced or not entity.requires_duplicate_detection,
            "false",
        ),
        "ForwardTo": (advanced or not entity.forward_to, "empty"),
        "ForwardDeadLetteredMessagesTo": (advanced or not entity.forward_dead_letters_to, "empty"),
    }
    fits, allowed = rules.get(name, (True, ""))
    return "" if fits else f"{allowed} (profile {profile.name})"


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that exists: its identity, its settings, and where its fragments lie.

    An id is never used twice. A name that was deleted and made again is another id with the
    next incarnation, so nothing of its former life can be taken for the new one.
    """

    id: int
    incarnation: int
    name: str
    description: Description
    # 1 for a conventional entity; what the profile says for a partitioned one.
    fragments: int
    home: int
    created_ms: int = 0
    updated_ms: int = 0
    # The id of the topic that a subscription belongs to; 0 for queues and topics.
    topic: int = 0

    @property
    def kind(self) -> str:
        """What it is: a queue, a topic or a subscription."""
        return self.description.KIND

    @property
    def top_level(self) -> int:
        """The id of the entity that its transactions belong to: a subscription's is its topic."""
        return self.topic or self.id

    @property
    def key(self) -> str:
        """What the entity is looked up by."""
        return name_key(self.name)

    @property
    def partitioned(self) -> bool:
        """Whether the entity is spread over several fragments."""
        return self.fragments > 1

    @property
    def partitions(self) -> range:
        """The partition ids that clients see: 0 for a conventional entity, else 1 to n."""
        return range(1, self.fragments + 1) if self.fragments > 1 else range(1)

    @property
    def reported_size_mb(self) -> int:
        """The maximum size that management shows: the quotas of all fragments together (P6)."""
        return self.description.max_size_mb * self.fragments

    def store_of(self, partition: int, stores: int) -> int:
        """The store of a partition. Neighbouring fragments lie in different stores."""
        assert partition in self.partitions
        index = partition - 1 if self.fragments > 1 else 0
        return (self.home + index) % stores


def fragments_of(description: Description, profile: Profile) -> int:
    """How many fragments a new entity gets."""
    return profile.fragments if description.enable_partitioning else 1
