from __future__ import annotations

from pathlib import Path

from partibus.broker.consuming import NOTE, Batch, Consumer, write_consumer
from partibus.broker.records import Changes, Counters, Entry, FragmentKey, State
from partibus.store import Store
from partibus.store.memory import MemoryStore
from partibus.store.readers import ReaderPlace
from partibus.store.sqlite import SqliteStore

KEY = FragmentKey(7, 1, 3, 0)


def fill(store: Store) -> None:
    changes = Changes(1, KEY, True)
    changes.added = [
        Entry(n, n, b"bare", b"kept", 1, n * 10, state=State.SCHEDULED if n == 5 else 0)
        for n in range(1, 21)
    ]
    changes.counters = Counters(next_position=21, active=20)
    store.commit([changes])


def note(store: Store, consumer: Consumer) -> None:
    changes = Changes(1, KEY, False)
    changes.states = {NOTE: (write_consumer(consumer), 77)}
    changes.counters = Counters(next_position=21, active=20)
    store.commit([changes])


def test_S2_readers_are_told_with_the_oldest_message_that_waits_for_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    fill(store)
    store.move_cursor(1, "behind", 2)
    store.move_cursor(1, "ahead", 4)
    store.move_cursor(1, "done", 20)
    changes = Changes(1, KEY, False)
    changes.removed = [1, 2, 3, 4]
    changes.counters = Counters(next_position=21)
    store.commit([changes])
    note(store, Consumer("eater", 9, 100, [Batch(3, 30, [(6, 8)])]))

    found = {each.reader: each for each in store.readers()}

    # What is kept counts once: for the one that is furthest behind.
    assert found["behind"] == ReaderPlace(1, "behind", False, 2, 30, kept_bytes=16)
    # The fifth is scheduled, and not there yet.
    assert found["ahead"] == ReaderPlace(1, "ahead", False, 4, 60)
    assert found["done"].oldest_ms == 0
    assert found["eater"] == ReaderPlace(
        1, "eater", True, 100, 60, reserved=3, since_ms=77, epoch=9
    )
    store.close()


def test_S2_a_store_in_memory_tells_of_its_readers_too() -> None:
    store = MemoryStore()
    fill(store)
    store.move_cursor(1, "spark", 4)
    note(store, Consumer("eater", 9, 100, [Batch(3, 30, [(6, 8)])]))
    spark, eater = store.readers()
    assert spark == ReaderPlace(1, "spark", False, 4, 0)
    assert (eater.reader, eater.reserved, eater.since_ms) == ("eater", 3, 77)
