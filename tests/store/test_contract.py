"""Every store keeps the promises of the interface."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from partibus.store.memory import MemoryStore
from partibus.store.sqlite import SqliteStore
from partibus.testing.block_contracts import check_blocks
from partibus.testing.contracts import MakeStore, check_store, made_changes
from partibus.testing.copy_contracts import check_copies
from partibus.testing.disk import SimulatedDisk
from partibus.testing.lookup_contracts import check_lookups
from partibus.testing.session_contracts import check_sessions
from partibus.testing.transfer_contracts import KEY, check_transfers


def test_a_store_in_memory_keeps_the_contract() -> None:
    check_store(lambda: MemoryStore, reopens=False)


def test_a_store_in_a_file_keeps_the_contract(places: Callable[[], MakeStore]) -> None:
    check_store(places)


def test_a_store_on_a_simulated_disk_keeps_the_contract() -> None:
    check_store(lambda: SimulatedDisk().open)


def test_stores_find_messages_by_number_session_and_time(places: Callable[[], MakeStore]) -> None:
    check_lookups(MemoryStore)
    check_lookups(lambda: places()())
    check_lookups(lambda: SimulatedDisk().open())


@pytest.fixture
def places(tmp_path: Path) -> Callable[[], MakeStore]:
    numbers = itertools.count()

    def place() -> MakeStore:
        path = tmp_path / f"store-{next(numbers)}.sqlite"
        return lambda: SqliteStore(path, "test")

    return place


def test_S1_a_store_keeps_blocks_as_it_keeps_messages(places: Callable[[], MakeStore]) -> None:
    for store in (MemoryStore(), SimulatedDisk().open(), places()()):
        check_blocks(store)
        store.close()


def test_a_store_keeps_sessions_and_their_states(places: Callable[[], MakeStore]) -> None:
    check_sessions(MemoryStore())
    check_sessions(SimulatedDisk().open())
    store = places()()
    check_sessions(store)
    store.close()


def test_T6_the_state_of_a_session_is_there_when_the_file_is_opened_again(
    places: Callable[[], MakeStore],
) -> None:
    open_store = places()
    store = open_store()
    changes = made_changes(1, created=True)
    changes.states = {"s": (b"kept", 7)}
    store.commit([changes])
    store.close()
    store = open_store()
    assert store.session_state(1, "s") == b"kept"
    assert store.sessions(1, None, 10, 6) == ["s"]
    store.close()


def test_a_store_keeps_where_messages_go_and_up_to_where_they_came(
    places: Callable[[], MakeStore],
) -> None:
    check_transfers(MemoryStore())
    check_transfers(SimulatedDisk().open())
    store = places()()
    check_transfers(store)
    store.close()


def test_F1_marks_are_there_when_the_file_is_opened_again(places: Callable[[], MakeStore]) -> None:
    open_store = places()
    store = open_store()
    changes = made_changes(1, created=True)
    changes.marks = {KEY: 12}
    store.commit([changes])
    store.close()
    store = open_store()
    assert store.marks(1) == {KEY: 12}
    store.close()


def test_S1_a_store_knows_how_far_bulk_writers_have_come(places: Callable[[], MakeStore]) -> None:
    for store in (MemoryStore(), SimulatedDisk().open(), places()()):
        assert store.produced(1, "query") is None
        changes = made_changes(1, created=True)
        changes.produced = {"query": (0, 5), "other": (3, 1)}
        store.commit([changes])
        changes = made_changes(1, created=False)
        changes.produced = {"query": (1, 2)}
        store.commit([changes])
        assert store.produced(1, "query") == (1, 2)
        assert store.produced(1, "other") == (3, 1)
        assert store.produced(2, "query") is None
        assert store.drop(1, 10)
        assert store.produced(1, "query") is None
        store.close()


def test_a_store_keeps_copies_that_share_their_contents(places: Callable[[], MakeStore]) -> None:
    check_copies(MemoryStore())
    check_copies(SimulatedDisk().open())
    store = places()()
    check_copies(store)
    store.close()
