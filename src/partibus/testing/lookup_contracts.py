"""What every store promises to those who look for messages: by number, by session, by time.

check_lookups() holds a store to it by examples; the state machine in contracts.py covers the
reads by time, too. Which of the found messages may be had is not the store's business.
"""

from __future__ import annotations

from partibus.broker.records import Changes, Entry, FragmentKey, Moment, State, SubQueue
from partibus.store import Store
from partibus.testing.contracts import PLENTY, MakeStore, fields, made_changes, made_entry

_PARTITION = 5
_HIGH = _PARTITION << 48
_NOW_MS = 1_700_000_000_000
_ALWAYS = Moment(0, 0, 0)
_LATER = 1 << 50


def check_lookups(make_store: MakeStore) -> None:
    """Hold a store to the promises; each call of `make_store` opens a new place."""
    for promise in (
        an_empty_store_finds_nothing,
        browsing_shows_every_state_in_order_within_its_limits,
        browsing_keeps_to_a_session,
        what_is_reserved_is_found_by_its_position_only,
        a_scheduled_entry_may_come_late_with_a_number_that_was_kept_for_it,
        dead_letters_are_browsed_and_found_by_their_old_numbers,
        what_is_due_is_found_over_all_fragments,
        what_expires_is_found_in_parts,
    ):
        store = make_store()
        promise(store)
        store.close()


def an_empty_store_finds_nothing(store: Store) -> None:
    assert store.browse(3, 0, 10, PLENTY) == []
    assert store.find_sequences(3, [1, 2]) == []
    assert store.due(_ALWAYS, _LATER, 10) == []
    assert store.expiring(_ALWAYS, _LATER, 10) == []


def browsing_shows_every_state_in_order_within_its_limits(store: Store) -> None:
    changes = made_changes(4, created=True, partition=_PARTITION)
    changes.added = [made_entry(p, _PARTITION, bytes(100)) for p in range(1, 101)]
    changes.added[1].state = State.DEFERRED
    changes.added[2].state, changes.added[2].due_ms = State.SCHEDULED, _NOW_MS
    store.commit([changes])

    def numbers(sequence: int, count: int, size: int = PLENTY) -> list[int]:
        return [entry.sequence - _HIGH for entry in store.browse(4, sequence, count, size)]

    assert numbers(0, 4) == numbers(_HIGH, 4) == numbers(_HIGH + 1, 4) == [1, 2, 3, 4]
    assert numbers(_HIGH + 99, 10) == [99, 100]
    assert numbers(_HIGH + 101, 10) == numbers((_PARTITION + 1) << 48, 10) == []
    assert numbers(0, 0) == []
    assert numbers(0, 10, 250) == numbers(0, 10, 300) == [1, 2, 3]
    assert numbers(0, 10, 0) == [1]
    found = store.browse(4, 0, 3, PLENTY)
    assert [fields(entry) for entry in found] == [fields(entry) for entry in changes.added[:3]]
    found = store.find_sequences(4, [_HIGH + 3, _HIGH + 1, _HIGH + 101, 1, 0])
    assert [entry.position for entry in found] == [1, 3]


def what_is_reserved_is_found_by_its_position_only(store: Store) -> None:
    for number, subqueue in ((4, SubQueue.ACTIVE), (5, SubQueue.DEAD_LETTER)):
        changes = made_changes(number, created=True, partition=_PARTITION)
        changes.key = FragmentKey(1, 1, _PARTITION, subqueue)
        changes.added = [made_entry(p, _PARTITION) for p in range(1, 4)]
        for entry in changes.added:
            entry.session = "s"
        store.commit([changes])
        reserved = made_changes(number, created=False, partition=_PARTITION)
        reserved.key = changes.key
        changes.added[1].state = State.RESERVED
        reserved.updated = [changes.added[1]]
        store.commit([reserved])
        for session in (None, "s"):
            found = store.browse(number, 0, 10, PLENTY, session)
            assert [entry.position for entry in found] == [1, 3]
        assert [entry.position for entry in store.scan(number, 0, 10, PLENTY)] == [1, 3]
        assert [entry.state for entry in store.find(number, [2])] == [State.RESERVED]


def browsing_keeps_to_a_session(store: Store) -> None:
    changes = made_changes(4, created=True, partition=_PARTITION)
    changes.added = [made_entry(p, _PARTITION) for p in range(1, 31)]
    for entry in changes.added:
        entry.session = None if entry.position % 3 == 0 else "ab"[entry.position % 3 - 1]
    beside = made_changes(5, created=True, partition=_PARTITION)
    beside.added = [made_entry(1, _PARTITION)]
    beside.added[0].session = "a"
    store.commit([changes, beside])
    found = store.browse(4, _HIGH + 4, 3, PLENTY, "a")
    assert [entry.position for entry in found] == [4, 7, 10]
    assert [entry.session for entry in found] == ["a"] * 3
    assert store.browse(4, 0, 3, PLENTY, "c") == []
    assert [entry.position for entry in store.browse(5, 0, 3, PLENTY, "a")] == [1]


def a_scheduled_entry_may_come_late_with_a_number_that_was_kept_for_it(store: Store) -> None:
    first = made_changes(4, created=True, partition=_PARTITION)
    first.added = [made_entry(p, _PARTITION) for p in (1, 2, 5, 6)]
    store.commit([first])
    second = made_changes(4, created=False, partition=_PARTITION)
    second.added = [made_entry(p, _PARTITION) for p in (7, 4, 3)]
    for entry in second.added[1:]:
        entry.state, entry.due_ms = State.SCHEDULED, _NOW_MS
    store.commit([second])
    shown = [entry.sequence - _HIGH for entry in store.browse(4, 0, 10, PLENTY)]
    assert shown == [1, 2, 3, 4, 5, 6, 7]
    assert [entry.position for entry in store.scan(4, 0, 10, PLENTY)] == [1, 2, 5, 6, 7]
    found = store.find_sequences(4, [_HIGH + 3])
    assert [fields(entry) for entry in found] == [fields(second.added[2])]
    assert [moment.position for moment in store.due(_ALWAYS, _LATER, 10)] == [3, 4]
    third = made_changes(4, created=False, partition=_PARTITION)
    third.removed = [2, 3, 5]
    store.commit([third])
    left = store.browse(4, 0, 10, PLENTY)
    assert [entry.sequence - _HIGH for entry in left] == [1, 4, 6, 7]
    assert fields(left[1]) == fields(second.added[1])


def dead_letters_are_browsed_and_found_by_their_old_numbers(store: Store) -> None:
    key = FragmentKey(1, 1, _PARTITION, SubQueue.DEAD_LETTER)
    changes = Changes(6, key, True)
    # The second has the number that its place would give it.
    changes.added = [
        Entry(place, _HIGH + number, b"%d" % number, b"", 0, _NOW_MS)
        for place, number in enumerate((7, 2, 9, 1, 30), 1)
    ]
    changes.added[2].session = "a"
    changes.added[0].session = "a"
    store.commit([changes])

    def numbers(entries: list[Entry]) -> list[int]:
        return [entry.sequence - _HIGH for entry in entries]

    assert numbers(store.browse(6, 0, 10, PLENTY)) == [1, 2, 7, 9, 30]
    assert numbers(store.browse(6, _HIGH + 3, 2, PLENTY)) == [7, 9]
    assert numbers(store.browse(6, _HIGH + 2, 9, 2)) == [2, 7]
    assert numbers(store.browse(6, 0, 9, PLENTY, "a")) == [7, 9]
    found = store.find_sequences(6, [_HIGH + 30, _HIGH + 2, _HIGH + 3])
    assert [(entry.position, entry.bare) for entry in found] == [(2, b"2"), (5, b"30")]


def what_is_due_is_found_over_all_fragments(store: Store) -> None:
    batch = []
    for number in (1, 2):
        changes = made_changes(number, created=True)
        changes.added = [made_entry(p) for p in range(1, 6)]
        for entry in changes.added[1:]:
            entry.state = State.SCHEDULED
            entry.due_ms = _NOW_MS + 10 * entry.position + number
        batch.append(changes)
    store.commit(batch)
    assert store.due(_ALWAYS, _NOW_MS, 10) == []
    assert store.due(_ALWAYS, _NOW_MS + 22, 10) == [
        Moment(_NOW_MS + 21, 1, 2),
        Moment(_NOW_MS + 22, 2, 2),
    ]
    assert [moment.at_ms - _NOW_MS for moment in store.due(_ALWAYS, _LATER, 3)] == [21, 22, 31]
    after = Moment(_NOW_MS + 22, 2, 2)
    assert [moment.at_ms - _NOW_MS for moment in store.due(after, _LATER, 2)] == [31, 32]
    gone = made_changes(1, created=False)
    gone.removed = [2, 3, 4, 5]
    store.commit([gone])
    assert [moment.number for moment in store.due(_ALWAYS, _LATER, 10)] == [2] * 4


def what_expires_is_found_in_parts(store: Store) -> None:
    changes = made_changes(1, created=True)
    changes.added = [made_entry(p) for p in range(1, 21)]
    for entry in changes.added[:10]:
        # Several at the same moment.
        entry.expires_ms = _NOW_MS + entry.position // 4
    store.commit([changes])
    assert store.expiring(_ALWAYS, _NOW_MS - 1, 10) == []
    first = store.expiring(_ALWAYS, _NOW_MS + 1, 2)
    assert first == [Moment(_NOW_MS, 1, 1), Moment(_NOW_MS, 1, 2)]
    rest = store.expiring(first[-1], _NOW_MS + 1, 10)
    assert [moment.position for moment in rest] == [3, 4, 5, 6, 7]
    assert store.expiring(rest[-1], _NOW_MS + 1, 10) == []
