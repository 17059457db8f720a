"""Limits that a namespace sets otherwise than its profile (P9)."""

from __future__ import annotations

import pytest

from partibus.broker.limits import LIMITS, read_limits, with_limits
from partibus.broker.profiles import PROFILES
from partibus.broker.properties import InvalidDescription

STANDARD = PROFILES["standard"]


def test_P9_every_limit_can_be_set_otherwise() -> None:
    given = {name: 7 for name in LIMITS if name != "SizesInMegabytes"}
    changed = with_limits(STANDARD, given | {"SizesInMegabytes": [1024, 9]})
    for name, field in LIMITS.items():
        expected = (1024, 9) if name == "SizesInMegabytes" else 7
        assert getattr(changed, field) == expected
    assert (changed.message_kb_min, changed.message_kb_default) == (7, 7)
    assert with_limits(STANDARD, {}) == STANDARD
    assert with_limits(STANDARD, {"SizesInMegabytes": []}).sizes_mb == ()


@pytest.mark.parametrize(
    "given",
    [
        {"Entitys": 1}, {"Entities": -1}, {"Entities": "many"}, {"Entities": True},
        {"MessageSizeInKilobytes": 0}, {"MessageSizeInKilobytes": 200_000},
        {"DeletedMessagesPerRequest": 0}, {"SizesInMegabytes": 1024},
        {"SizesInMegabytes": [0]}, {"SizesInMegabytes": [2048]}, {"SizesInMegabytes": [[1024]]},
    ],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused_by_name(given: dict[str, object]) -> None:
    (name,) = given
    with pytest.raises(InvalidDescription, match=name):
        read_limits(given)
