from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.records import Changes, Counters, Entry, FragmentKey, State
from partibus.store import StoreError
from partibus.store.browsing import ROWS_MAX, StoreFile
from partibus.store.sqlite import SqliteStore

KEY = FragmentKey(7, 1, 3, 0)


def commit(store: SqliteStore, first: int, entries: list[Entry], *, created: bool = False) -> None:
    changes = Changes(1, KEY, created)
    changes.added = entries
    changes.counters = Counters(next_position=first + len(entries), active=len(entries))
    store.commit([changes])


def entry(position: int, at_ms: int = 1000, state: State = State.ACTIVE) -> Entry:
    return Entry(position, position, b"b%d" % position, b"", 0, at_ms, state=state)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "store.sqlite")


def test_S1_a_reader_sees_what_is_durable_while_the_owner_goes_on(store: SqliteStore) -> None:
    commit(store, 1, [entry(n) for n in range(1, 6)], created=True)
    reader = StoreFile(store.path)
    summary = reader.fragment(KEY)
    assert summary is not None
    assert summary.counters.next_position == 6
    assert reader.first(1) == (1, 1000)

    commit(store, 6, [entry(6)])

    assert list(reader.rows(1, 2, 100).position) == [3, 4, 5, 6]
    assert list(reader.rows(1, 2, 4).content) == [b"b3", b"b4"]
    assert len(reader.rows(1, 6, 100)) == 0
    reader.close()
    store.close()


def test_S1_scheduled_messages_are_not_there_yet(store: SqliteStore) -> None:
    commit(store, 1, [entry(1, state=State.SCHEDULED), entry(2)], created=True)
    reader = StoreFile(store.path)
    assert reader.first(1) == (2, 1000)
    assert list(reader.rows(1, 0, 10).position) == [2]


def test_S1_many_messages_come_in_bounded_steps(store: SqliteStore) -> None:
    count = ROWS_MAX + 10
    commit(store, 1, [entry(n) for n in range(1, count + 1)], created=True)
    reader = StoreFile(store.path)
    first = reader.rows(1, 0, count)
    assert len(first) == ROWS_MAX
    assert len(reader.rows(1, first.position[-1], count)) == 10


def test_S2_a_time_is_found_among_messages_with_gaps(store: SqliteStore) -> None:
    commit(store, 1, [entry(n, at_ms=n * 10) for n in range(1, 200, 3)], created=True)
    reader = StoreFile(store.path)
    positions = list(range(1, 200, 3))
    for at_ms in (0, 10, 11, 500, 1000, 1981, 5000):
        expected = max((n for n in positions if n * 10 < at_ms), default=0)
        assert reader.before(1, 199, at_ms) in range(expected, expected + 3)


def test_S1_a_fragment_that_nothing_came_to_is_none(store: SqliteStore) -> None:
    assert StoreFile(store.path).fragment(KEY) is None


def test_S1_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.sqlite"):
        StoreFile(tmp_path / "none.sqlite")
