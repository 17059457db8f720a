"""Which fragment a message goes to (K1 to K5)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.errors import InvalidOperation
from partibus.broker.partitioning import KEYLESS_RUN_MAX, Spread, index_of, key_of, key_of_batch
from partibus.testing.messages import incoming

WINDOW = 1024


def test_K1_the_session_is_the_key_else_the_partition_key() -> None:
    assert key_of(incoming(session="s", key="s"), False) == "s"
    assert key_of(incoming(session="s"), True) == "s"
    assert key_of(incoming(key="k"), True) == "k"


def test_K1_the_message_id_is_a_key_only_where_duplicates_are_detected() -> None:
    assert key_of(incoming(message_id="m"), True) == "m"
    assert key_of(incoming(message_id="m"), False) is None


def test_a_batch_of_one_key_goes_to_one_fragment() -> None:
    assert key_of_batch([incoming(session="s"), incoming(key="s")], False) == "s"
    assert key_of_batch([incoming(), incoming()], False) is None


@pytest.mark.parametrize("detects", [False, True])
def test_a_batch_with_distinct_keys_is_refused(detects: bool) -> None:
    for batch in ([incoming(key="a"), incoming(key="b")], [incoming(key="a"), incoming()]):
        with pytest.raises(InvalidOperation, match="Batching brokered messages with distinct"):
            key_of_batch(batch, detects)


def test_a_batch_of_distinct_ids_is_refused_where_duplicates_are_detected() -> None:
    batch = [incoming(message_id="a"), incoming(message_id="b")]
    assert key_of_batch(batch, False) is None
    with pytest.raises(InvalidOperation, match="MessageId"):
        key_of_batch(batch, True)


# The first is xxhash64('ABC') as Spark's manual prints it; the others were computed once. They
# must never change: messages lie on disks by them.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("ABC", 4105715581806190027),
        ("", -7444071767201028348),
        ("session-1", 8919173090395227369),
        ("Zürich", -2199928141300491114),
        ("x" * 128, -1798797007782945305),
    ],
)
def test_K2_the_fragment_of_a_key_never_changes(key: str, hashed: int) -> None:
    for fragments in (1, 2, 4, 16):
        assert index_of(key, fragments) == hashed % fragments


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of less than 32 bytes, by the letter of its specification."""
    mask = (1 << 64) - 1
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & mask

    hashed = (seed + p5 + len(data)) & mask
    while len(data) >= 8:
        lane = rotate(int.from_bytes(data[:8], "little") * p2 & mask, 31) * p1 & mask
        hashed = (rotate(hashed ^ lane, 27) * p1 + p4) & mask
        data = data[8:]
    if len(data) >= 4:
        hashed ^= int.from_bytes(data[:4], "little") * p1 & mask
        hashed = (rotate(hashed, 23) * p2 + p3) & mask
        data = data[4:]
    for octet in data:
        hashed = rotate(hashed ^ octet * p5 & mask, 11) * p1 & mask
    hashed = (hashed ^ hashed >> 33) * p2 & mask
    hashed = (hashed ^ hashed >> 29) * p3 & mask
    return hashed ^ hashed >> 32


@given(st.text(max_size=7), st.integers(1, 16))
def test_K2_the_hash_is_XXH64_with_seed_42_as_a_signed_number(key: str, fragments: int) -> None:
    hashed = xxh64(key.encode(), 42)
    signed = hashed - (1 << 64) if hashed >> 63 else hashed
    assert index_of(key, fragments) == signed % fragments


def test_K5_many_keys_use_all_fragments() -> None:
    used = Counter(index_of(f"key-{number}", 16) for number in range(1600))
    assert len(used) == 16
    assert max(used.values()) < 150


runs = st.integers(1, KEYLESS_RUN_MAX)
# The number of runs during which these fragments are down.
outages = st.tuples(st.integers(1, 200), st.sets(st.integers(0, 15), max_size=15))


@given(st.sampled_from([2, 4, 16]), st.lists(runs, min_size=1, max_size=40))
def test_K5_no_fragment_gets_more_than_half_above_its_share(
    fragments: int, sizes: list[int]
) -> None:
    spread = Spread(fragments)
    placed: list[int] = []
    while len(placed) < 3 * WINDOW:
        for size in sizes:
            index = spread.choose(size, lambda _: True)
            assert index is not None
            placed += [index] * size
    for start in range(0, len(placed) - WINDOW, 64):
        counts = Counter(placed[start : start + WINDOW])
        assert max(counts.values()) <= 1.5 * WINDOW / fragments


@given(st.lists(runs, min_size=1, max_size=20), st.lists(outages, max_size=6))
def test_K5_the_share_holds_while_fragments_go_down_and_come_back(
    sizes: list[int], plan: list[tuple[int, set[int]]]
) -> None:
    spread = Spread(16)
    # Where each message went, and how large the share of an available fragment was then.
    placed: list[tuple[int, float]] = []
    turns = (down for count, down in [*plan, (200, set[int]())] for down in [down] * count)
    for turn, down in enumerate(turns):
        size = sizes[turn % len(sizes)]
        index = spread.choose(size, lambda each, down=down: each not in down)  # type: ignore[misc]
        assert index is not None
        assert index not in down
        placed += [(index, 1 / (16 - len(down)))] * size
    for start in range(0, max(len(placed) - WINDOW, 1), 128):
        window = placed[start : start + WINDOW]
        share = max(sum(share for _, share in window), WINDOW / 16)
        assert max(Counter(index for index, _ in window).values()) <= 1.5 * share


def test_K5_unavailable_fragments_are_stepped_over_and_none_is_no_answer() -> None:
    spread = Spread(4)
    assert {spread.choose(1, lambda index: index == 2) for _ in range(5)} == {2}
    assert spread.choose(1, lambda _: False) is None


def test_K5_a_fragment_that_comes_back_is_not_flooded() -> None:
    spread = Spread(4)
    for _ in range(1000):
        spread.choose(1, lambda index: index != 0)
    after = Counter(spread.choose(1, lambda _: True) for _ in range(40))
    assert max(after.values()) <= 11
