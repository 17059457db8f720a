"""The plain values between the rules and the files."""

from __future__ import annotations

import inspect

from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.records import (
    COUNTER_FIELDS,
    FRAGMENT_NUMBER_MAX,
    POSITION_BITS,
    POSITION_MAX,
    Counters,
    Entry,
)


def test_every_counter_is_written_and_compared() -> None:
    assert set(COUNTER_FIELDS) == set(Counters.__slots__)
    assert list(inspect.signature(Counters).parameters) == list(COUNTER_FIELDS)
    for name in COUNTER_FIELDS:
        changed = Counters()
        setattr(changed, name, 77)
        assert changed != Counters()
        assert changed.copy() == changed


def test_a_copy_of_counters_does_not_change_with_the_original() -> None:
    counters = Counters(accepted=1)
    copy = counters.copy()
    counters.accepted = 2
    assert copy.accepted == 1


def test_fragment_number_and_position_fit_one_key_of_a_file() -> None:
    assert (FRAGMENT_NUMBER_MAX << POSITION_BITS) + POSITION_MAX == (1 << 63) - 1
    # A position also fits under the partition id of a sequence number (R6).
    assert POSITION_BITS <= PARTITION_SHIFT


def test_an_entry_counts_with_its_content() -> None:
    assert Entry(1, 1, b"12345", b"678", 1, 0).size == 8
