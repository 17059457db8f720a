"""Properties by their public names, read from plain values and written back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from partibus.broker.properties import (
    InvalidDescription,
    choice,
    duration,
    flag,
    kilobytes,
    read_properties,
    text,
    whole,
    write_properties,
)

TABLE = (
    duration("LockDuration", "lock_ms", 5_000, 300_000),
    whole("MaxDeliveryCount", "deliveries", 1, 10),
    flag("RequiresSession", "session"),
    choice("Status", "status", ("Active", "Disabled")),
    text("UserMetadata", "metadata", 3),
    kilobytes("MaxMessageSizeInKilobytes", "bytes", 1024),
)


@dataclass
class Sample:
    lock_ms: int = 60_000
    deliveries: int = 3
    session: bool = True
    status: str = "Active"
    metadata: str = "abc"
    bytes: int = 2048


PLAIN = {
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 3,
    "RequiresSession": True,
    "Status": "Active",
    "UserMetadata": "abc",
    "MaxMessageSizeInKilobytes": 2,
}


def test_what_is_written_is_read_back() -> None:
    assert write_properties(Sample(), TABLE) == PLAIN
    assert Sample(**read_properties(PLAIN, TABLE)) == Sample()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("LockDuration", "PT1S", "PT5S to PT5M"),
        ("LockDuration", 60, "ISO 8601"),
        ("LockDuration", "one minute", "ISO 8601"),
        ("MaxDeliveryCount", 0, "from 1 to 10"),
        ("MaxDeliveryCount", True, "whole number"),
        ("MaxDeliveryCount", "3", "whole number"),
        ("RequiresSession", 1, "true or false"),
        ("Status", "Sleeping", "Active, Disabled"),
        ("UserMetadata", "abcd", "at most 3"),
    ],
)
def test_a_refusal_names_the_property_and_what_is_allowed(
    name: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidDescription) as refused:
        read_properties({name: value}, TABLE)
    assert refused.value.property == name
    assert refused.value.value == value
    assert allowed in refused.value.allowed


def test_an_unknown_property_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidDescription, match="did you mean LockDuration"):
        read_properties({"LockDuraton": "PT1M"}, TABLE)
    with pytest.raises(
        InvalidDescription, match="no such property; there are LockDuration, MaxDeliveryCount"
    ):
        read_properties({"Colour": "blue"}, TABLE)


def test_a_choice_is_known_in_any_case_and_kept_in_its_own() -> None:
    assert read_properties({"Status": "disabled"}, TABLE) == {"status": "Disabled"}
