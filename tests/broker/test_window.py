"""The head of a fragment: in order, bounded, and without a hole that nobody knows of."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from partibus.broker import window as window_module
from partibus.broker.records import Entry
from partibus.broker.window import (
    ENTRY_OVERHEAD_BYTES,
    WINDOW_BYTES_MAX,
    WINDOW_MESSAGES_LOW,
    WINDOW_MESSAGES_MAX,
    Window,
)


def entries(first: int, count: int, size: int = 1) -> list[Entry]:
    return [Entry(at, at, b"x" * size, b"", 0, 0) for at in range(first, first + count)]


def popped(window: Window) -> list[int]:
    found = []
    while (entry := window.pop()) is not None:
        found.append(entry.position)
    return found


def test_what_arrives_is_taken_in_order() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 3))
    window.arrived(entries(4, 2))
    assert not window.has_gap
    assert popped(window) == [1, 2, 3, 4, 5]
    assert window.bytes == 0


def test_what_is_given_back_stands_before_the_rest() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 4))
    first, second = window.pop(), window.pop()
    assert first is not None
    assert second is not None
    window.give_back(second)
    window.give_back(first)
    assert popped(window) == [1, 2, 3, 4]


def test_a_long_backlog_takes_no_more_memory_than_the_window() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, WINDOW_MESSAGES_MAX + 10))
    window.arrived(entries(WINDOW_MESSAGES_MAX + 11, 5))
    assert len(window) == WINDOW_MESSAGES_MAX
    assert (window.gap_from, window.gap_to) == (WINDOW_MESSAGES_MAX, WINDOW_MESSAGES_MAX + 15)


def test_large_messages_fill_the_window_sooner() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 100, 256 * 1024))
    assert window.bytes <= WINDOW_BYTES_MAX + 256 * 1024 + ENTRY_OVERHEAD_BYTES
    assert window.has_gap


def test_a_message_larger_than_the_window_still_gets_through() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 1, 2 * WINDOW_BYTES_MAX))
    assert popped(window) == [1]


def test_the_next_part_is_asked_for_before_the_window_is_empty() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, WINDOW_MESSAGES_MAX + 10))
    assert not window.wants_more
    while len(window) >= WINDOW_MESSAGES_LOW:
        window.pop()
    assert window.wants_more


def test_a_window_full_of_large_messages_asks_for_no_more() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 100, 256 * 1024))
    assert len(window) < WINDOW_MESSAGES_LOW
    assert not window.wants_more
    while len(window) > 1:
        window.pop()
    assert window.wants_more


def test_what_is_given_back_does_not_stop_the_window_from_filling() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 100, 256 * 1024))
    held = [entry for entry in iter(window.pop, None) if entry is not None]
    for entry in held:
        window.give_back(entry)
    while window.pop() is not None:
        pass
    assert window.wants_more


def test_the_end_of_the_backlog_closes_the_gap() -> None:
    window = Window(gap_to=7)
    assert window.wants_more
    window.loaded(entries(5, 1), complete=True)
    assert not window.has_gap
    window.arrived(entries(8, 1))
    assert popped(window) == [5, 8]


def test_heads_that_nobody_wants_are_left_to_the_disk() -> None:
    window = Window(gap_to=0)
    window.arrived(entries(1, 5))
    first = window.pop()
    assert first is not None
    window.give_back(first)
    window.evict()
    assert len(window) == 1
    assert window.bytes == 1 + ENTRY_OVERHEAD_BYTES
    assert (window.gap_from, window.gap_to) == (1, 5)
    window.loaded(entries(2, 4), complete=True)
    assert popped(window) == [1, 2, 3, 4, 5]


class WindowAgainstModel(RuleBasedStateMachine):
    """The window and the disk together hand out everything, once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(window_module, "WINDOW_MESSAGES_MAX", 6)
        self.patch.setattr(window_module, "WINDOW_MESSAGES_LOW", 3)
        self.patch.setattr(window_module, "WINDOW_BYTES_MAX", 4 * ENTRY_OVERHEAD_BYTES)
        self.patch.setattr(window_module, "WINDOW_BYTES_LOW", 2 * ENTRY_OVERHEAD_BYTES)
        self.window = Window(gap_to=0)
        self.last = 0
        self.disk: dict[int, Entry] = {}
        self.out: dict[int, Entry] = {}

    def teardown(self) -> None:
        self.patch.undo()

    def waiting(self) -> list[int]:
        return sorted(self.disk.keys() - self.out.keys())

    @rule(count=st.integers(1, 9), size=st.sampled_from([1, 300, 3000]))
    def arrive(self, count: int, size: int) -> None:
        new = entries(self.last + 1, count, size)
        self.last += count
        self.disk.update((entry.position, entry) for entry in new)
        self.window.arrived(new)

    @rule()
    def pop(self) -> None:
        entry = self.window.pop()
        waiting = self.waiting()
        if entry is None:
            assert all(position > self.window.gap_from for position in waiting)
            assert not waiting or self.window.has_gap
        else:
            assert entry.position == waiting[0]
            self.out[entry.position] = entry

    @precondition(lambda self: self.out)
    @rule(data=st.data(), gone=st.booleans())
    def end(self, data: st.DataObject, gone: bool) -> None:
        position = data.draw(st.sampled_from(sorted(self.out)))
        entry = self.out.pop(position)
        if gone:
            del self.disk[position]
        else:
            self.window.give_back(entry)

    @precondition(lambda self: self.window.wants_more)
    @rule(count=st.integers(1, 5))
    def load(self, count: int) -> None:
        behind = [at for at in sorted(self.disk) if at > self.window.gap_from]
        part = [self.disk[position] for position in behind[:count]]
        self.window.loaded(part, complete=len(part) < count)

    @rule()
    def evict(self) -> None:
        self.window.evict()

    @invariant()
    def nothing_is_forgotten(self) -> None:
        here = len(self.window)
        behind = [at for at in self.waiting() if at > self.window.gap_from]
        assert len(self.waiting()) == here + (len(behind) if self.window.has_gap else 0)

    @invariant()
    def an_empty_window_asks_for_more(self) -> None:
        assert len(self.window) or not self.window.has_gap or self.window.wants_more


TestWindowAgainstModel = WindowAgainstModel.TestCase
