"""What time and sequence numbers do to the messages of one fragment."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import MessageNotFound, QuotaExceeded
from partibus.broker.fragment import MEGABYTE, Fragment
from partibus.broker.message import Incoming
from partibus.broker.records import Entry, FragmentKey, State, SubQueue
from partibus.broker.settlement import ABANDON, COMPLETE, RELEASE, Outcome, Settlement
from partibus.store.memory import MemoryStore
from partibus.testing.messages import incoming, read

NOW_MS = 1_700_000_000_000
LOCK_MS = 5_000
TTL_MS = 60_000
QUEUE = QueueDescription("q", lock_ms=LOCK_MS, max_delivery_count=3)
KEY = FragmentKey(1, 1, 4, SubQueue.ACTIVE)
HIGH = 4 << 48
DEFER = Settlement(Outcome.DEFER)


def scheduled(body: bytes, due_ms: int, ttl_ms: int = 0) -> Incoming:
    message = incoming(body)
    message.due_ms, message.ttl_ms = due_ms, ttl_ms
    return message


class Stored:
    """A fragment with its dead letters and its store, every commit durable at once."""

    def __init__(self, **properties: object) -> None:
        queue = replace(QUEUE, **properties)  # type: ignore[arg-type]
        self.entropy = Random(3).randbytes
        self.store = MemoryStore()
        self.main = Fragment(KEY, 1, 0, queue, None, lambda: self.dead)
        key = KEY._replace(subqueue=SubQueue.DEAD_LETTER)
        self.dead = Fragment(key, 2, 0, queue, None, lambda: self.dead)
        self.main.dead = self.dead

    def commit(self) -> None:
        for fragment in (self.main, self.dead):
            while fragment.dirty:
                changes = fragment.take_changes()
                self.store.commit([changes])
                fragment.committed(changes)

    def send(self, *messages: Incoming, now_ms: int = NOW_MS) -> None:
        self.main.send(list(messages), now_ms)
        self.commit()

    def take(self, now_ms: int = NOW_MS, count: int = 10) -> list[Entry]:
        taken = self.main.take(count, now_ms, self.entropy)
        self.commit()
        return taken

    def settle(self, entry: Entry, settlement: Settlement, now_ms: int = NOW_MS) -> None:
        assert self.main.settle([entry.token], settlement, now_ms) == []
        self.commit()

    def deferred(self, *numbers: int, now_ms: int = NOW_MS, delete: bool = False) -> list[Entry]:
        sequences = [HIGH | number for number in numbers]
        stored = self.store.find_sequences(1, sequences)
        try:
            return self.main.receive_deferred(
                sequences, stored, now_ms, self.entropy, delete=delete
            )
        finally:
            self.commit()

    def all(self, fragment: Fragment) -> list[Entry]:
        return self.store.browse(fragment.number, 0, 1000, 1 << 40)

    def activate(self, now_ms: int) -> None:
        self.main.activate(self.all(self.main), now_ms)
        self.commit()

    def expire(self, now_ms: int) -> None:
        self.main.expire(self.all(self.main), now_ms)
        self.commit()


def bodies(entries: list[Entry]) -> list[bytes]:
    return [read(entry.bare).body for entry in entries]


# Scheduling -----------------------------------------------------------------------------------


def test_a_scheduled_message_becomes_active_with_a_new_number_and_time() -> None:
    pair = Stored()
    pair.send(scheduled(b"later", NOW_MS + 100), incoming(b"now"), scheduled(b"past", NOW_MS))
    assert (pair.main.counters.active, pair.main.counters.scheduled) == (2, 1)
    assert bodies(pair.take()) == [b"now", b"past"]
    pair.activate(NOW_MS + 99)
    assert pair.take(NOW_MS + 99) == []
    pair.activate(NOW_MS + 130)
    (entry,) = pair.take(NOW_MS + 130)
    assert (entry.sequence, entry.enqueued_ms) == (HIGH | 4, NOW_MS + 130)
    assert (pair.main.counters.active, pair.main.counters.scheduled) == (3, 0)
    assert pair.main.counters.accepted == 3
    assert pair.main.counters.bytes == sum(each.size for each in pair.all(pair.main))


def test_a_message_is_activated_once_however_often_it_is_read() -> None:
    pair = Stored()
    pair.send(scheduled(b"a", NOW_MS + 1))
    old = pair.all(pair.main)
    again = pair.all(pair.main)
    assert pair.main.activate(old, NOW_MS + 1)
    assert not pair.main.activate(again, NOW_MS + 1)
    with pytest.raises(MessageNotFound):
        pair.main.cancel_scheduled([HIGH | 1], again)
    pair.commit()
    assert len(pair.take(NOW_MS + 1)) == 1


def test_cancelling_takes_all_or_none() -> None:
    pair = Stored()
    pair.send(scheduled(b"a", NOW_MS + 1), scheduled(b"b", NOW_MS + 1), incoming(b"c"))
    for numbers in ([1, 3], [1, 9], [2, 1, 3]):
        with pytest.raises(MessageNotFound, match=r"number \d "):
            pair.main.cancel_scheduled([HIGH | n for n in numbers], pair.all(pair.main))
    assert pair.main.counters.scheduled == 2
    pair.main.cancel_scheduled([HIGH | 2], pair.all(pair.main))
    pair.commit()
    assert (pair.main.counters.scheduled, pair.main.counters.discarded) == (1, 1)
    pair.activate(NOW_MS + 1)
    assert bodies(pair.take(NOW_MS + 1)) == [b"c", b"a"]


def test_the_time_to_live_of_a_scheduled_message_begins_when_it_becomes_active() -> None:
    pair = Stored()
    pair.send(scheduled(b"a", NOW_MS + 50_000, ttl_ms=1_000))
    pair.expire(NOW_MS + 60_000)
    pair.activate(NOW_MS + 60_000)
    (entry,) = pair.all(pair.main)
    assert entry.expires_ms == NOW_MS + 61_000
    assert pair.take(NOW_MS + 61_000) == []


# Deferral -------------------------------------------------------------------------------------


def test_a_deferred_message_stays_deferred_whatever_is_done_but_settling_it() -> None:
    pair = Stored()
    pair.send(incoming(b"a"), incoming(b"b"))
    for entry in pair.take():
        pair.settle(entry, DEFER)
    assert (pair.main.counters.active, pair.main.counters.deferred) == (0, 2)
    (entry,) = pair.deferred(1)
    assert entry.deliveries == 1
    with pytest.raises(MessageNotFound):
        pair.deferred(2, 1)
    pair.settle(entry, RELEASE)
    (entry,) = pair.deferred(1)
    assert entry.deliveries == 1
    pair.settle(entry, DEFER)
    assert pair.main.counters.deferred == 2
    (entry,) = pair.deferred(1)
    assert entry.deliveries == 2
    assert pair.main.advance(NOW_MS + LOCK_MS)
    with pytest.raises(MessageNotFound):
        # What became of it is not durable yet.
        pair.main.receive_deferred(
            [HIGH | 1], pair.all(pair.main), NOW_MS, pair.entropy, delete=False
        )
    pair.commit()
    # That was the third delivery that failed.
    assert bodies(pair.all(pair.dead)) == [b"a"]
    assert bodies(pair.deferred(2, delete=True)) == [b"b"]
    assert pair.main.counters.bytes == pair.main.counters.deferred == 0
    assert (pair.main.counters.completed, pair.main.counters.dead_lettered) == (1, 1)


def test_only_deferred_messages_are_had_by_number() -> None:
    pair = Stored()
    pair.send(incoming(b"a"), scheduled(b"b", NOW_MS + 1))
    for number in (1, 2, 3):
        with pytest.raises(MessageNotFound, match=f"number {number} "):
            pair.deferred(number)


def test_a_deferred_message_expires_when_it_is_asked_for() -> None:
    pair = Stored(default_ttl_ms=TTL_MS, dead_letter_on_expiration=True)
    pair.send(incoming(b"a"))
    pair.settle(pair.take()[0], DEFER)
    pair.expire(NOW_MS + TTL_MS)
    assert pair.main.counters.deferred == 1
    with pytest.raises(MessageNotFound):
        pair.deferred(1, now_ms=NOW_MS + TTL_MS)
    assert bodies(pair.all(pair.dead)) == [b"a"]
    assert pair.main.counters.deferred == 0


# Time to live ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dead_letters", [False, True])
def test_what_has_expired_is_never_handed_out(dead_letters: bool) -> None:
    pair = Stored(default_ttl_ms=TTL_MS, dead_letter_on_expiration=dead_letters)
    pair.send(incoming(b"old"))
    pair.send(incoming(b"new"), now_ms=NOW_MS + 10)
    assert bodies(pair.take(NOW_MS + TTL_MS)) == [b"new"]
    counters = pair.main.counters
    assert (counters.expired, counters.dead_lettered) == ((0, 1) if dead_letters else (1, 0))
    if dead_letters:
        (dead,) = pair.all(pair.dead)
        properties = read(dead.bare).properties
        assert properties["DeadLetterReason"] == "TTLExpiredException"
        assert properties["DeadLetterErrorDescription"].endswith("expired and was dead lettered.")
        # It keeps its time, which has no meaning there.
        assert dead.expires_ms == NOW_MS + TTL_MS
        assert len(pair.dead.take(1, NOW_MS + 9 * TTL_MS, pair.entropy)) == 1
        assert not pair.dead.expire([dead], NOW_MS + 9 * TTL_MS)


@pytest.mark.parametrize("settlement", [COMPLETE, ABANDON, RELEASE, None])
def test_a_locked_message_expires_only_when_its_lock_is_over(settlement: Settlement | None) -> None:
    pair = Stored(default_ttl_ms=1000)
    pair.send(incoming(b"a"))
    (entry,) = pair.take()
    later_ms = NOW_MS + LOCK_MS - 1
    pair.expire(later_ms)
    assert pair.main.counters.active == 1
    if settlement is None:
        pair.main.advance(later_ms + 1)
        pair.commit()
    else:
        pair.settle(entry, settlement, later_ms)
    counters = pair.main.counters
    assert (counters.active, counters.completed + counters.expired) == (0, 1)
    assert counters.completed == (settlement is COMPLETE)


def test_the_sweep_takes_what_is_on_disk_and_what_is_in_memory_but_not_what_is_on_its_way() -> None:
    pair = Stored(default_ttl_ms=1000)
    pair.send(*(incoming(b"%d" % n) for n in range(6)))
    first, second = pair.take(count=2)
    pair.main.settle([first.token], COMPLETE, NOW_MS)
    pair.main.window.evict()
    # Three are only on disk; one completion is on its way there, one message is locked.
    stored = pair.all(pair.main)
    late = pair.store.scan(1, pair.main.window.gap_from, 10, 1 << 40)
    assert pair.main.expire(stored, NOW_MS + 1000)
    # What was read before the sweep comes now, and must not be shown.
    pair.main.loaded(late, complete=True)
    assert pair.main.take(9, NOW_MS, pair.entropy) == []
    pair.commit()
    assert pair.main.counters.expired == 4
    assert [each.position for each in pair.all(pair.main)] == [second.position]


# Quotas, and deleting in batches --------------------------------------------------------------


def test_dead_letters_count_towards_the_quota() -> None:
    pair = Stored(max_size_mb=1)
    half = incoming(bytes(MEGABYTE // 2))
    pair.send(half)
    pair.settle(pair.take()[0], Settlement(Outcome.DEAD_LETTER))
    assert pair.main.counters.bytes == 0
    pair.send(incoming(bytes(100_000)))
    with pytest.raises(QuotaExceeded, match=str(MEGABYTE)):
        pair.send(half)
    (dead,) = pair.dead.take(1, NOW_MS, pair.entropy)
    pair.dead.settle([dead.token], COMPLETE, NOW_MS)
    pair.send(half)


def test_scheduled_messages_count_towards_the_quota() -> None:
    pair = Stored(max_size_mb=1)
    pair.send(scheduled(bytes(MEGABYTE // 2), NOW_MS + 1))
    with pytest.raises(QuotaExceeded):
        pair.send(incoming(bytes(MEGABYTE // 2)))


def test_deleting_takes_the_oldest_that_nobody_holds() -> None:
    pair = Stored()
    pair.send(incoming(b"held"), now_ms=NOW_MS)
    pair.take()
    pair.send(incoming(b"a"), incoming(b"b"), scheduled(b"s", NOW_MS + 99), now_ms=NOW_MS + 1)
    pair.send(incoming(b"c"), now_ms=NOW_MS + 2)
    assert pair.main.delete_ready(1, NOW_MS + 9) == 1
    assert pair.main.delete_ready(10, NOW_MS + 1) == 1
    pair.commit()
    assert bodies(pair.all(pair.main)) == [b"held", b"s", b"c"]
    assert bodies(pair.take(NOW_MS + 2)) == [b"c"]
    assert pair.main.counters.discarded == 2
    assert pair.all(pair.main)[1].state == State.SCHEDULED
