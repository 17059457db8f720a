"""What every store must do for sessions: their heads, their messages, their state, their names."""

from __future__ import annotations

from partibus.broker.records import Changes, Entry, FragmentKey, Head, State
from partibus.store import Store

PLENTY = 1 << 40
NUMBER = 3


def check_sessions(store: Store) -> None:
    """Hold a new store to the contract."""
    assert store.heads(NUMBER, 0, 10) == ([], 0)
    assert store.scan_session(NUMBER, "a", 0, 10, PLENTY) == []
    assert store.session_state(NUMBER, "a") is None
    assert store.sessions(NUMBER, None, 10, -1) == []
    _fill(store)
    _finds_heads_and_messages(store)
    _keeps_states(store)
    _lists_names(store)


def _fill(store: Store) -> None:
    changes = Changes(NUMBER, FragmentKey(1, 1, 2, 0), True)
    sessions = ["b", "a", "b", "c", "", "a", "d", "a"]
    changes.added = [
        Entry(position, 2 << 48 | position, bytes(100), b"", 0, 1000 + position, session=session)
        for position, session in enumerate(sessions, 1)
    ]
    # Deferred: these do not make a session available.
    changes.added[3].state = changes.added[5].state = State.DEFERRED
    # A neighbour whose sessions must not be taken for ours.
    beside = Changes(NUMBER + 1, FragmentKey(1, 1, 3, 0), True)
    beside.added = [Entry(1, 3 << 48 | 1, b"", b"", 0, 0, session="a")]
    store.commit([changes, beside])


def _finds_heads_and_messages(store: Store) -> None:
    heads = [Head(1, "b", 1001), Head(2, "a", 1002), Head(5, "", 1005), Head(7, "d", 1007)]
    assert store.heads(NUMBER, 0, 10) == (heads, 0)
    # The place to go on from is that of the last message looked at.
    assert store.heads(NUMBER, 0, 3) == (heads[:2], 3)
    assert store.heads(NUMBER, 3, 3) == ([heads[2], heads[3], Head(8, "a", 1008)], 8)
    assert store.heads(NUMBER, 8, 3) == ([], 0)

    def positions(session: str, after: int, count: int, size: int) -> list[int]:
        found = store.scan_session(NUMBER, session, after, count, size)
        assert all(entry.session == session for entry in found)
        return [entry.position for entry in found]

    assert positions("a", 0, 10, PLENTY) == [2, 8]
    assert positions("a", 2, 10, PLENTY) == [8]
    assert positions("a", 0, 1, PLENTY) == [2]
    assert positions("a", 0, 10, 100) == [2]
    assert positions("a", 0, 0, PLENTY) == []
    assert positions("c", 0, 10, PLENTY) == []
    assert positions("", 0, 10, PLENTY) == [5]
    assert positions("nobody", 0, 10, PLENTY) == []


def _set(store: Store, **states: tuple[bytes | None, int]) -> None:
    changes = Changes(NUMBER, FragmentKey(1, 1, 2, 0), False)
    changes.states = dict(states)
    store.commit([changes])


def _keeps_states(store: Store) -> None:
    _set(store, a=(b"one", 10), e=(b"", 20))
    assert store.session_state(NUMBER, "a") == b"one"
    assert store.session_state(NUMBER, "e") == b""
    assert store.session_state(NUMBER + 1, "a") is None
    _set(store, a=(b"two", 30), e=(None, 30))
    assert store.session_state(NUMBER, "a") == b"two"
    assert store.session_state(NUMBER, "e") is None


def _lists_names(store: Store) -> None:
    _set(store, f=(b"kept", 40), Z=(b"kept", 50))
    everything = ["", "Z", "a", "b", "d", "f"]
    assert store.sessions(NUMBER, None, 100, -1) == everything
    for size in (1, 2, 3):
        paged: list[str] = []
        after: str | None = None
        while page := store.sessions(NUMBER, after, size, -1):
            assert len(page) <= size
            paged += page
            after = page[-1]
        assert paged == everything
    assert store.sessions(NUMBER, None, 100, 0) == ["Z", "a", "f"]
    assert store.sessions(NUMBER, None, 100, 30) == ["Z", "f"]
    assert store.sessions(NUMBER, "Z", 1, 0) == ["a"]
    assert store.sessions(NUMBER, None, 100, 50) == []
    assert store.drop(NUMBER, 100)
    assert store.session_state(NUMBER, "a") is None
    assert store.sessions(NUMBER, None, 100, -1) == []
