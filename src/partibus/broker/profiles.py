"""What a namespace allows: the limits of the vendor's tiers, as data.

A profile is chosen for a whole namespace when it is made. It says how many fragments a
partitioned entity has, which sizes and features there are, and how many entities. What one
entity's properties may be beyond that is in descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from partibus.broker.durations import DAY_MS, FOREVER_MS, SECOND_MS

KILOBYTE = 1024
DEFAULT_PROFILE = "standard"

# How many fragments every entity of a premium namespace may have (P7).
PREMIUM_FRAGMENTS = (1, 2, 4)

_STANDARD_SIZES_MB = (1024, 2048, 3072, 4096, 5120)
_PREMIUM_SIZES_MB = (*_STANDARD_SIZES_MB, 10240, 20480, 40960, 81920)


@dataclass(frozen=True, slots=True)
class Profile:
    """The limits of a namespace. A maximum of 0 is none."""

    name: str
    # Fragments of a partitioned entity; 1 where entities cannot be partitioned.
    fragments: int = 16
    # Every entity is partitioned and cannot opt out (premium with more than one fragment).
    always_partitioned: bool = False
    # Empty: any size of at least one megabyte.
    sizes_mb: tuple[int, ...] = _STANDARD_SIZES_MB
    message_kb_default: int = 256
    # Where least and most are equal the size of a message is not a choice.
    message_kb_min: int = 256
    message_kb_max: int = 256
    ttl_ms_max: int = FOREVER_MS
    duplicate_window_ms_min: int = 20 * SECOND_MS
    # Sessions, duplicate detection, forwarding and topics.
    has_advanced_features: bool = True
    partitioned_max: int = 100
    entities_max: int = 10_000
    # Of one topic: its subscriptions, and the filters of all its rules.
    subscriptions_max: int = 2_000
    sql_filters_max: int = 2_000
    correlation_filters_max: int = 100_000
    # Messages that one request may delete.
    delete_messages_max: int = 500


_STANDARD = Profile("standard")

PROFILES = {
    profile.name: profile
    for profile in (
        # The standard tier with the wider ranges of the vendor's emulator.
        replace(
            _STANDARD,
            name="emulator",
            message_kb_min=1,
            message_kb_max=102_400,
            duplicate_window_ms_min=5 * SECOND_MS,
        ),
        replace(_STANDARD, name="basic", ttl_ms_max=14 * DAY_MS, has_advanced_features=False),
        _STANDARD,
        Profile(
            "premium",
            fragments=2,
            always_partitioned=True,
            sizes_mb=_PREMIUM_SIZES_MB,
            message_kb_default=1024,
            message_kb_min=1024,
            message_kb_max=102_400,
            partitioned_max=0,
            entities_max=0,
            delete_messages_max=4_000,
        ),
        Profile(
            "unlimited",
            sizes_mb=(),
            message_kb_default=1024,
            message_kb_min=1,
            message_kb_max=102_400,
            duplicate_window_ms_min=SECOND_MS,
            partitioned_max=0,
            entities_max=0,
            subscriptions_max=0,
            sql_filters_max=0,
            correlation_filters_max=0,
            delete_messages_max=4_000,
        ),
    )
}


def profile_of(name: str, premium_fragments: int | None = None) -> Profile:
    """The profile of this name; a premium namespace may say how many fragments it has."""
    profile = PROFILES[name]
    if premium_fragments is None:
        return profile
    assert name == "premium"
    assert premium_fragments in PREMIUM_FRAGMENTS
    return replace(profile, fragments=premium_fragments, always_partitioned=premium_fragments > 1)
