"""Numbers that are given out before their messages are there (T5, R6)."""

from __future__ import annotations

from partibus.broker.descriptions import QueueDescription
from partibus.broker.fragment import Fragment
from partibus.broker.records import FragmentKey, State, SubQueue
from partibus.broker.reservations import place, reserve
from partibus.testing.messages import incoming

NOW_MS = 1_000


def fragment() -> Fragment:
    key = FragmentKey(1, 1, 3, SubQueue.ACTIVE)
    made = Fragment(key, 1, 0, QueueDescription("q"), None, lambda: made)
    return made


def test_T5_a_message_comes_to_stand_under_the_number_that_was_kept_for_it() -> None:
    queue = fragment()
    queue.send([incoming(b"1")], NOW_MS)
    first = reserve(queue, 2)
    assert queue.send([incoming(b"4")], NOW_MS) == first + 2
    place(queue, first + 1, incoming(b"3"), NOW_MS)
    place(queue, first, incoming(b"2"), NOW_MS)
    assert queue.send([incoming(b"5")], NOW_MS) == first + 3
    changes = queue.take_changes()
    assert [entry.sequence - (3 << 48) for entry in changes.added] == [1, 4, 3, 2, 5]
    assert changes.counters.next_position == 6
    assert (changes.counters.accepted, changes.counters.scheduled) == (5, 2)


def test_it_is_scheduled_in_any_case_so_that_nobody_receives_it_before_its_elders() -> None:
    queue = fragment()
    position = reserve(queue, 1)
    place(queue, position, incoming(b"due long ago"), NOW_MS)
    changes = queue.take_changes()
    [entry] = changes.added
    assert (entry.state, entry.due_ms, changes.due_ms) == (
        State.SCHEDULED,
        NOW_MS + 1,
        NOW_MS + 1,
    )
    assert not queue.committed(changes)
    assert queue.activate(changes.added, NOW_MS + 1)
    assert queue.committed(queue.take_changes())
    [taken] = queue.take(1, NOW_MS + 1, bytes)
    assert taken.position > position
