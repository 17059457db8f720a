from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.pipeline.door import Range
from partibus.pipeline.offsets import (
    DataLoss,
    Fragment,
    Offsets,
    Standing,
    checked,
    limited,
    span,
)

positions = st.dictionaries(st.integers(1, 16), st.integers(0, 1000), min_size=1, max_size=16)


def offsets(at: dict[int, int], incarnation: int = 1) -> Offsets:
    return Offsets(5, incarnation, at)


def standing(*fragments: tuple[int, int, int], incarnation: int = 1) -> Standing:
    return Standing(5, incarnation, tuple(Fragment(*each) for each in fragments), {})


@given(positions)
def test_S2_the_same_offsets_are_the_same_text(at: dict[int, int]) -> None:
    backwards = dict(sorted(at.items(), reverse=True))
    text = json.dumps(offsets(at).plain())
    assert text == json.dumps(offsets(backwards).plain())
    assert json.dumps(Offsets.read(json.loads(text)).plain()) == text


def test_S2_a_new_fragment_is_read_from_its_beginning() -> None:
    ranges = offsets({1: 5}).until(offsets({1: 7, 2: 3}))
    assert ranges == [Range(1, 5, 7), Range(2, 0, 3)]


def test_S2_a_fragment_that_went_away_stays_in_the_offsets() -> None:
    assert checked(offsets({1: 5, 2: 9}), standing((1, 1, 8)), fail=True).positions == {1: 5, 2: 9}


def test_S2_what_was_completed_is_stepped_over() -> None:
    assert checked(offsets({1: 5}), standing((1, 100, 200)), fail=True).positions == {1: 99}


def test_S2_a_queue_that_was_made_again_is_data_loss() -> None:
    again = standing((1, 1, 3), incarnation=2)
    with pytest.raises(DataLoss, match="made again"):
        checked(offsets({1: 50}), again, fail=True)
    assert checked(offsets({1: 50}), again, fail=False).positions == {1: 0}


def test_S2_positions_that_went_back_are_data_loss() -> None:
    with pytest.raises(DataLoss, match="older copy"):
        checked(offsets({1: 50}), standing((1, 1, 40)), fail=True)
    assert checked(offsets({1: 50}), standing((1, 1, 40)), fail=False).positions == {1: 40}


@given(positions, st.integers(1, 5000))
def test_S2_a_limit_is_kept_and_shared_in_proportion(ends: dict[int, int], most: int) -> None:
    start, end = offsets(dict.fromkeys(ends, 0)), offsets(ends)
    found = limited(start, end, most)
    total = sum(ends.values())
    assert span(start, found) == min(total, most)
    for number, upto in ends.items():
        assert 0 <= found.positions[number] <= upto
        if total > most:
            assert abs(found.positions[number] - most * upto / total) < 1


@given(positions, st.integers(1, 50))
def test_S2_limited_batches_reach_the_end(ends: dict[int, int], most: int) -> None:
    at, end = offsets(dict.fromkeys(ends, 0)), offsets(ends)
    for _ in range(sum(ends.values()) // most + 1):
        at = limited(at, end, most)
    assert at.positions == ends
