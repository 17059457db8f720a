"""What every store must do for forwarding: where messages go, and up to where they came."""

from __future__ import annotations

from partibus.broker.records import Changes, Entry, FragmentKey, SubQueue
from partibus.store import Store

NUMBER = 3
KEY = FragmentKey(1, 1, 2, SubQueue.TRANSFER)
HERE = FragmentKey(7, 1, 1, SubQueue.ACTIVE)
THERE = FragmentKey(7, 1, 2, SubQueue.ACTIVE)


def check_transfers(store: Store) -> None:
    """Hold a new store to the contract."""
    assert store.destinations(NUMBER, [1, 2]) == {}
    assert store.marks(NUMBER) == {}
    _keeps_destinations(store)
    _keeps_marks(store)
    assert store.drop(NUMBER, 100)
    assert store.destinations(NUMBER, [1, 2, 3]) == {}
    assert store.drop(NUMBER + 1, 100)
    assert store.marks(NUMBER + 1) == {}


def _keeps_destinations(store: Store) -> None:
    changes = Changes(NUMBER, KEY, True)
    changes.added = [Entry(each, each, b"content", b"", 0, 0) for each in (1, 2, 3)]
    changes.outbox = {1: HERE, 2: THERE, 3: HERE}
    store.commit([changes])
    assert store.destinations(NUMBER, [1, 2, 3, 4]) == {1: HERE, 2: THERE, 3: HERE}
    assert store.destinations(NUMBER, [2]) == {2: THERE}
    assert store.destinations(NUMBER + 1, [1, 2]) == {}
    # What leaves, and what comes and leaves at once, goes nowhere any more.
    changes = Changes(NUMBER, KEY, False)
    changes.added = [Entry(4, 4, b"", b"", 0, 0)]
    changes.outbox = {4: HERE}
    changes.removed = [1, 4]
    store.commit([changes])
    assert store.destinations(NUMBER, [1, 2, 3, 4]) == {2: THERE, 3: HERE}


def _keeps_marks(store: Store) -> None:
    other = KEY._replace(partition=5)
    changes = Changes(NUMBER + 1, HERE, True)
    changes.marks = {KEY: 10, other: 3}
    store.commit([changes])
    changes = Changes(NUMBER + 1, HERE, False)
    changes.marks = {KEY: 12}
    store.commit([changes])
    assert store.marks(NUMBER + 1) == {KEY: 12, other: 3}
    assert store.marks(NUMBER) == {}
