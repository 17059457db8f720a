"""Durations are read as clients spell them and written as the vendor does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.durations import DAY_MS, FOREVER_MS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT5S", 5_000),
        ("PT1M", 60_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.567S", 93_784_567),
        ("P14D", 14 * DAY_MS),
        ("PT0.5S", 500),
        ("P1M", 30 * DAY_MS),
        ("P1Y", 365 * DAY_MS),
        ("PT90S", 90_000),
    ],
)
def test_a_duration_is_read_in_milliseconds(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S", "P10675200D"]
)
def test_every_spelling_of_the_largest_duration_is_for_ever(text: str) -> None:
    assert parse_duration(text) == FOREVER_MS


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1M", "PT1", "-PT1M", "PT1M ", "P1W", "PT1.S", "P1DT", "PT\u0661S"]
)
def test_what_is_not_a_duration_is_not_read(text: str) -> None:
    assert parse_duration(text) is None


def test_for_ever_is_written_as_the_vendor_writes_it() -> None:
    assert format_duration(FOREVER_MS) == "P10675199DT2H48M5.4775807S"


@given(st.integers(0, 10_675_198 * DAY_MS))
def test_what_is_written_is_read_back(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms
