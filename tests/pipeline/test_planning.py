from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from partibus.pipeline.door import Range
from partibus.pipeline.planning import LARGE, deal, size

ranges = st.lists(st.integers(1, 3 * LARGE), max_size=16).map(
    lambda sizes: [Range(number, 10, 10 + each) for number, each in enumerate(sizes, 1)]
)


@given(ranges, st.integers(1, 8), st.integers(0, 40), st.integers(0, 2 * LARGE))
def test_S1_every_message_is_in_exactly_one_task(
    asked: list[Range], cores: int, least: int, most: int
) -> None:
    found = [piece for group in deal(asked, cores, least, max(most, 1000)) for piece in group]
    for each in asked:
        pieces = sorted(
            (piece for piece in found if piece.fragment == each.fragment), key=lambda p: p.after
        )
        assert pieces[0].after == each.after
        assert pieces[-1].upto == each.upto
        assert all(a.upto == b.after for a, b in itertools.pairwise(pieces))


def test_S1_little_work_makes_as_many_tasks_as_there_are_cores() -> None:
    asked = [Range(number, 0, 100) for number in range(1, 17)]
    assert [len(group) for group in deal(asked, 2)] == [8, 8]


def test_S1_a_large_fragment_has_a_task_of_its_own() -> None:
    asked = [Range(1, 0, LARGE), *(Range(number, 0, 10) for number in range(2, 17))]
    assert len(deal(asked, 2)) == 3


def test_S1_a_user_may_ask_for_more_tasks() -> None:
    assert len(deal([Range(1, 0, 1000)], 2, min_partitions=4)) == 4
    groups = deal([Range(1, 0, 1000)], 2, records_max=300)
    assert [size(group[0]) for group in groups] == [300, 300, 300, 100]


def test_S1_nothing_needs_no_task() -> None:
    assert deal([], 4) == []


def test_S1_a_task_has_as_many_fragments_as_was_asked() -> None:
    ranges = [Range(number, 0, 10) for number in range(1, 9)]
    groups = deal(ranges, 2, fragments_max=3)
    assert [[each.fragment for each in group] for group in groups] == [[1, 2, 3], [4, 5, 6], [7, 8]]
