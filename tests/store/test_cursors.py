from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.records import Changes, Counters, Entry, FragmentKey, State
from partibus.store import cursors
from partibus.store.browsing import StoreFile
from partibus.store.sqlite import SqliteStore

KEY = FragmentKey(7, 1, 3, 0)
COUNT = 200


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    opened = SqliteStore(tmp_path / "store.sqlite")
    changes = Changes(1, KEY, True)
    changes.added = [
        Entry(n, n, b"bare %d" % n, b"kept", 1, n * 10, state=State.SCHEDULED if n == 5 else 0)
        for n in range(1, COUNT + 1)
    ]
    changes.counters = Counters(next_position=COUNT + 1, active=COUNT)
    opened.commit([changes])
    return opened


def remove(store: SqliteStore, *positions: int) -> None:
    changes = Changes(1, KEY, False)
    changes.removed = list(positions)
    changes.counters = Counters(next_position=COUNT + 1)
    store.commit([changes])


def shown(store: SqliteStore, *, kept: bool, after: int = 0) -> list[int]:
    reader = StoreFile(store.path)
    rows = reader.rows(1, after, COUNT, kept=kept)
    assert list(rows.content) == [b"keptbare %d" % position for position in rows.position]
    reader.close()
    return list(rows.position)


def test_S2_what_is_completed_stays_for_a_reader_that_has_not_passed(store: SqliteStore) -> None:
    store.move_cursor(1, "spark", 10)
    remove(store, *range(1, COUNT + 1))

    assert shown(store, kept=True) == list(range(11, COUNT + 1))
    # And for nobody else.
    assert shown(store, kept=False) == []
    assert store.browse(1, 0, 10, 10_000) == []
    assert store.scan(1, 0, 10, 10_000) == []
    assert store.find(1, [50]) == []


def test_S2_what_is_kept_and_what_is_there_come_in_order(store: SqliteStore) -> None:
    store.move_cursor(1, "spark", 0)
    remove(store, *range(2, COUNT, 3))
    assert shown(store, kept=True) == [n for n in range(1, COUNT + 1) if n != 5]


def test_S2_scheduled_messages_that_leave_were_never_there(store: SqliteStore) -> None:
    store.move_cursor(1, "spark", 0)
    remove(store, 4, 5)
    assert 5 not in shown(store, kept=True)


def test_S2_what_all_readers_have_passed_goes(store: SqliteStore) -> None:
    store.move_cursor(1, "slow", 20)
    store.move_cursor(1, "fast", 100)
    remove(store, *range(1, COUNT + 1))
    store.move_cursor(1, "slow", 50)
    while store.sweep(1, 7):
        pass
    assert shown(store, kept=True) == list(range(51, COUNT + 1))
    store.move_cursor(1, "slow", None)
    while store.sweep(1, 7):
        pass
    assert shown(store, kept=True) == list(range(101, COUNT + 1))
    # A place is never moved back.
    store.move_cursor(1, "fast", 5)
    assert store.cursors(1) == {"fast": 100}


def test_S2_places_and_kept_messages_outlive_a_restart(store: SqliteStore) -> None:
    store.move_cursor(1, "spark", 190)
    store.close()
    store = SqliteStore(store.path)
    assert store.cursors(1) == {"spark": 190}
    remove(store, *range(1, COUNT + 1))
    assert shown(store, kept=True) == list(range(191, COUNT + 1))


def test_S2_a_reader_that_is_too_far_behind_loses_its_place(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "KEPT_BYTES_MAX", 500)
    store.move_cursor(1, "behind", 1)
    store.move_cursor(1, "ahead", 190)
    remove(store, *range(1, COUNT + 1))
    assert store.cursors(1) == {"behind": cursors.LOST, "ahead": 190}
    assert shown(store, kept=True) == list(range(191, COUNT + 1))
    store.move_cursor(1, "behind", 195)
    assert store.cursors(1)["behind"] == cursors.LOST


def test_S2_a_reader_that_will_lose_its_place_is_warned_of_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cursors, "KEPT_BYTES_MAX", 1000)
    store.move_cursor(1, "behind", 0)
    # Eleven bytes each.
    for first in range(1, 82, 10):
        remove(store, *range(first, first + 10))
    warnings = [each for each in caplog.records if "will lose its place" in each.message]
    assert len(warnings) == 1
    assert "reader='behind'" in warnings[0].message
    assert store.cursors(1) == {"behind": 0}


def test_S2_a_fragment_has_so_many_readers_and_no_more(store: SqliteStore) -> None:
    for number in range(cursors.READERS_MAX):
        assert store.move_cursor(1, f"reader {number}", 0)
    assert not store.move_cursor(1, "one too many", 0)
    assert store.move_cursor(1, "reader 0", 5)


def test_S2_nothing_is_left_of_a_deleted_fragment(store: SqliteStore) -> None:
    store.move_cursor(1, "spark", 0)
    remove(store, 1, 2, 3)
    while not store.drop(1, 1000):
        pass
    assert store.cursors(1) == {}
    assert shown(store, kept=True) == []
