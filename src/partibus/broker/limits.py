"""Limits that a namespace sets otherwise than its profile (P9).

Read from configuration files by their public names. What the limits are for is in profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from partibus.broker.profiles import Profile
from partibus.broker.properties import INT32_MAX, InvalidDescription, unknown_property

# By their names in configuration files.
LIMITS = {
    "Entities": "entities_max",
    "PartitionedEntities": "partitioned_max",
    "SubscriptionsPerTopic": "subscriptions_max",
    "SqlFiltersPerTopic": "sql_filters_max",
    "CorrelationFiltersPerTopic": "correlation_filters_max",
    "DeletedMessagesPerRequest": "delete_messages_max",
    "MessageSizeInKilobytes": "message_kb_max",
    "SizesInMegabytes": "sizes_mb",
}
# Who names no size gets this one, so it must be among those there are.
SIZE_MB_DEFAULT = 1024
ANY_SIZE = (SIZE_MB_DEFAULT,)
# The largest message that the hop and the stores are made for.
MESSAGE_KB_MAX = 102_400


def read_limits(given: Mapping[str, object]) -> dict[str, object]:
    """Fields and values of limits by their public names; 0 is none, no sizes are any."""
    fields: dict[str, object] = {}
    for name, value in given.items():
        field = LIMITS.get(name)
        if field is None:
            raise unknown_property(name, value, tuple(LIMITS))
        if field == "sizes_mb":
            numbers = isinstance(value, list) and all(_is_whole(each, 1) for each in value)
            fits = numbers and isinstance(value, list) and SIZE_MB_DEFAULT in (value or ANY_SIZE)
            allowed = f"a list of whole numbers, {SIZE_MB_DEFAULT} among them; empty: any"
        elif field == "message_kb_max":
            fits, allowed = _is_whole(value, 1, MESSAGE_KB_MAX), f"1 to {MESSAGE_KB_MAX}"
        elif field == "delete_messages_max":
            fits, allowed = _is_whole(value, 1), f"1 to {INT32_MAX}"
        else:
            fits, allowed = _is_whole(value, 0), f"0 to {INT32_MAX}; 0 is no limit"
        if not fits:
            raise InvalidDescription(name, value, allowed)
        fields[field] = value
    return fields


def _is_whole(value: object, least: int, most: int = INT32_MAX) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def with_limits(profile: Profile, given: Mapping[str, object]) -> Profile:
    """The profile with these limits instead of its own."""
    fields = read_limits(given)
    sizes = fields.get("sizes_mb")
    if isinstance(sizes, list):
        fields["sizes_mb"] = tuple(sizes)
    most = fields.get("message_kb_max")
    if isinstance(most, int):
        fields["message_kb_min"] = min(profile.message_kb_min, most)
        fields["message_kb_default"] = min(profile.message_kb_default, most)
    return replace(profile, **fields)  # type: ignore[arg-type]
