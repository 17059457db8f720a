"""What one fragment promises: order, locks, deliveries, dead letters, exact counts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.durations import FOREVER_MS
from partibus.broker.errors import InvalidArgument, InvalidOperation, QuotaExceeded
from partibus.broker.fragment import MEGABYTE, PARTITION_SHIFT, Fragment
from partibus.broker.message import Incoming
from partibus.broker.records import Counters, Entry, FragmentKey, State, SubQueue
from partibus.broker.settlement import ABANDON, COMPLETE, RELEASE, Outcome, Settlement
from partibus.store.memory import MemoryStore
from partibus.testing.messages import incoming, read
from partibus.wire.codec import encode

LOCK_MS = 5_000
NOW_MS = 1_700_000_000_000
QUEUE = QueueDescription("q", lock_ms=LOCK_MS, max_delivery_count=3)
KEY = FragmentKey(1, 1, 4, SubQueue.ACTIVE)
# A map whose last key has no value: malformed, though its length is right.
ODD_MAP = b"\xc1\x04\x01\xa1\x01a"


class Pair:
    """A fragment with its dead letters, every commit durable at once."""

    def __init__(self, queue: QueueDescription = QUEUE, partition: int = 4) -> None:
        key = KEY._replace(partition=partition)
        self.entropy = Random(3).randbytes
        self.main = Fragment(key, 1, 0, queue, None, lambda: self.dead)
        dead = key._replace(subqueue=SubQueue.DEAD_LETTER)
        self.dead = Fragment(dead, 2, 0, queue, None, lambda: self.dead)

    def commit(self) -> None:
        for fragment in (self.main, self.dead):
            while fragment.dirty:
                fragment.committed(fragment.take_changes())

    def send(self, *bodies: bytes, now_ms: int = NOW_MS) -> None:
        self.main.send([incoming(body) for body in bodies], now_ms)
        self.commit()

    def take(self, count: int = 10, now_ms: int = NOW_MS) -> list[Entry]:
        return self.main.take(count, now_ms, self.entropy)

    def bodies(self, now_ms: int = NOW_MS) -> list[bytes]:
        return [read(entry.bare).body for entry in self.take(now_ms=now_ms)]

    def settle(self, entry: Entry, settlement: Settlement, now_ms: int = NOW_MS) -> list[bytes]:
        lost = self.main.settle([entry.token], settlement, now_ms)
        self.commit()
        return lost


def test_nothing_is_seen_before_it_is_durable() -> None:
    pair = Pair()
    pair.main.send([incoming(b"a")], NOW_MS)
    changes = pair.main.take_changes()
    assert pair.take() == []
    assert pair.main.committed(changes)
    assert pair.bodies() == [b"a"]


@pytest.mark.parametrize("partition", [0, 1, 16])
def test_R6_sequence_numbers_carry_the_partition_above_a_counter_without_gaps(
    partition: int,
) -> None:
    pair = Pair(partition=partition)
    pair.send(b"a", b"b")
    pair.send(b"c")
    numbers = [entry.sequence for entry in pair.take()]
    assert numbers == [(partition << PARTITION_SHIFT) + at for at in (1, 2, 3)]


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    pair = Pair(replace(QUEUE, max_size_mb=1))
    half = bytes(MEGABYTE // 2)
    with pytest.raises(QuotaExceeded):
        pair.main.send([incoming(half), incoming(half)], NOW_MS)
    assert not pair.main.dirty
    assert pair.main.counters == Counters()
    pair.send(half)
    pair.settle(pair.take()[0], COMPLETE)
    pair.send(half)


@pytest.mark.parametrize(
    ("own_ms", "default_ms", "expected"),
    [(0, FOREVER_MS, 0), (500, FOREVER_MS, 500), (0, 900, 900), (500, 900, 500), (2000, 900, 900)],
)
def test_the_time_to_live_is_the_senders_within_the_queues(
    own_ms: int, default_ms: int, expected: int
) -> None:
    pair = Pair(replace(QUEUE, default_ttl_ms=default_ms))
    message = incoming(b"a")
    message.ttl_ms = own_ms
    pair.main.send([message], NOW_MS)
    pair.commit()
    assert pair.take()[0].expires_ms == (NOW_MS + expected if expected else 0)


def test_a_lock_token_names_its_store_and_fragment_and_is_new_each_time() -> None:
    pair = Pair()
    pair.send(b"a")
    first = pair.take()[0]
    token = first.token
    assert token.startswith(pair.main.token_prefix)
    assert len(token) == 16
    pair.settle(first, RELEASE)
    assert pair.take()[0].token != token


def test_K6_what_comes_back_stands_at_its_old_place() -> None:
    pair = Pair()
    pair.send(b"a", b"b", b"c")
    first, second = pair.take(2)
    pair.settle(second, ABANDON)
    pair.settle(first, ABANDON)
    assert pair.bodies() == [b"a", b"b", b"c"]


def test_released_is_not_counted_and_abandoned_is() -> None:
    pair = Pair()
    pair.send(b"a")
    pair.settle(pair.take()[0], RELEASE)
    assert not pair.main.dirty
    entry = pair.take()[0]
    assert entry.deliveries == 0
    pair.settle(entry, ABANDON)
    assert pair.take()[0].deliveries == 1


def test_a_settlement_with_an_old_token_is_refused_even_if_the_message_is_locked_again() -> None:
    pair = Pair()
    pair.send(b"a")
    entry = pair.take()[0]
    old = entry.token
    pair.settle(entry, ABANDON)
    pair.take()
    assert pair.main.settle([old], COMPLETE, NOW_MS) == [old]
    assert pair.main.counters.completed == 0


def test_a_lock_that_is_over_cannot_settle_though_nobody_has_noticed_yet() -> None:
    pair = Pair()
    pair.send(b"a")
    entry = pair.take()[0]
    assert pair.settle(entry, COMPLETE, NOW_MS + LOCK_MS) == [entry.token]


def test_a_message_is_delivered_exactly_max_delivery_count_times() -> None:
    pair = Pair()
    pair.send(b"a", b"b")
    for attempt in range(3):
        # Abandoned and forgotten deliveries count alike.
        entry, other = pair.take(now_ms=NOW_MS + attempt * LOCK_MS)
        assert entry.deliveries == other.deliveries == attempt
        pair.settle(entry, ABANDON, NOW_MS + attempt * LOCK_MS)
        assert pair.main.advance(NOW_MS + (attempt + 1) * LOCK_MS)
        pair.commit()
    assert pair.take(now_ms=NOW_MS + 3 * LOCK_MS) == []
    dead = pair.dead.take(9, NOW_MS, pair.entropy)
    assert [read(entry.bare).properties for entry in dead] == [
        {
            "DeadLetterReason": "MaxDeliveryCountExceeded",
            "DeadLetterErrorDescription": (
                "Message could not be consumed after 3 delivery attempts."
            ),
        }
    ] * 2
    assert pair.main.counters.dead_lettered == pair.dead.counters.accepted == 2


def test_a_dead_letter_keeps_its_number_its_time_and_its_content() -> None:
    pair = Pair()
    pair.send(b"a", b"b")
    entry = pair.take(2)[1]
    settlement = Settlement(Outcome.DEAD_LETTER, "why", "because", encode({"mine": 1}))
    pair.settle(entry, settlement, NOW_MS + 5)
    (dead,) = pair.dead.take(9, NOW_MS, pair.entropy)
    assert dead.sequence == entry.sequence
    assert dead.position == 1
    assert dead.enqueued_ms == NOW_MS
    seen = read(dead.bare)
    assert seen.body == b"b"
    assert seen.properties == {
        "mine": 1,
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }


def test_nothing_is_dead_lettered_from_a_dead_letter_queue() -> None:
    pair = Pair(replace(QUEUE, max_delivery_count=1))
    pair.send(b"a")
    pair.settle(pair.take()[0], ABANDON)
    for attempt in range(3):
        (dead,) = pair.dead.take(9, NOW_MS, pair.entropy)
        assert dead.deliveries == 1 + attempt
        with pytest.raises(InvalidOperation):
            pair.dead.settle([dead.token], Settlement(Outcome.DEAD_LETTER), NOW_MS)
        pair.dead.settle([dead.token], ABANDON, NOW_MS)
        pair.commit()


def test_a_deferred_message_is_kept_but_not_handed_out() -> None:
    pair = Pair()
    pair.send(b"a")
    entry = pair.take()[0]
    pair.settle(entry, Settlement(Outcome.DEFER))
    assert entry.state == State.DEFERRED
    assert pair.take() == []
    assert (pair.main.counters.active, pair.main.counters.deferred) == (0, 1)


def test_a_renewed_lock_ends_later() -> None:
    pair = Pair()
    pair.send(b"a")
    entry = pair.take()[0]
    until_ms, lost = pair.main.renew([entry.token, b"stranger"], NOW_MS + 1000)
    assert (until_ms, lost) == (NOW_MS + 1000 + LOCK_MS, [b"stranger"])
    assert not pair.main.advance(NOW_MS + LOCK_MS)
    assert pair.main.next_deadline_ms() == until_ms
    assert pair.main.advance(until_ms)


def test_properties_that_cannot_be_read_refuse_the_settlement_and_keep_the_lock() -> None:
    pair = Pair()
    pair.send(b"a")
    entry = pair.take()[0]
    for properties in (b"\xc1\x09", ODD_MAP, encode("text"), encode({1: 2})):
        with pytest.raises(InvalidArgument):
            pair.settle(entry, Settlement(Outcome.ABANDON, properties=properties))
    assert pair.settle(entry, COMPLETE) == []


def test_a_message_whose_own_properties_cannot_be_read_still_dies_in_peace() -> None:
    pair = Pair(replace(QUEUE, max_delivery_count=1))
    bare = b"\x00\x53\x74" + ODD_MAP + b"\x00\x53\x75\xa0\x01a"
    pair.main.send([Incoming(bare, b"", 0, 0, 0, None, None, "id")], NOW_MS)
    pair.commit()
    entry = pair.take()[0]
    pair.settle(entry, Settlement(Outcome.ABANDON, properties=encode({"a": 1})))
    assert [dead.bare for dead in pair.dead.take(9, NOW_MS, pair.entropy)] == [bare]


def test_a_shorter_lock_duration_holds_for_the_next_lock() -> None:
    pair = Pair(replace(QUEUE, lock_ms=60_000))
    pair.send(b"a", b"b")
    pair.take(1)
    pair.main.settings = QUEUE
    pair.take(1)
    assert pair.main.next_deadline_ms() == NOW_MS + LOCK_MS
    assert pair.main.advance(NOW_MS + LOCK_MS)
    pair.commit()
    assert pair.bodies(NOW_MS + LOCK_MS) == [b"b"]


def test_what_is_settled_is_not_kept_until_its_lock_would_have_ended() -> None:
    pair = Pair()
    pair.send(b"kept")
    held = pair.take(1)[0]
    for _ in range(200):
        pair.send(*[b"x"] * 64)
        taken = pair.take(64)
        pair.main.settle([entry.token for entry in taken], COMPLETE, NOW_MS)
        pair.commit()
    assert pair.main.locks.awaited < 10_000
    assert pair.settle(held, COMPLETE) == []


def test_a_copy_sent_elsewhere_meanwhile_is_removed_unless_somebody_has_it() -> None:
    pair = Pair()
    pair.send(b"a", b"b", b"c", b"d")
    pair.take(1)
    assert pair.main.discard([1, 3]) == 1
    pair.commit()
    assert pair.bodies() == [b"b", b"d"]
    assert pair.main.counters.discarded == 1


def test_a_copy_that_is_not_durable_yet_is_never_seen() -> None:
    pair = Pair()
    pair.main.send([incoming(b"a"), incoming(b"b")], NOW_MS)
    changes = pair.main.take_changes()
    pair.main.discard([1, 2])
    assert not pair.main.committed(changes)
    removal = pair.main.take_changes()
    assert removal.removed == [1, 2]
    pair.main.committed(removal)
    assert pair.take() == []
    assert pair.main.counters.discarded == 2
    pair.send(b"c")
    assert pair.bodies() == [b"c"]


def test_a_copy_that_only_the_disk_has_is_removed_when_it_is_read() -> None:
    pair = Pair()
    pair.send(b"a", b"b", b"c")
    pair.main.window.evict()
    kept = [Entry(at, at, incoming(b"x").bare, b"", 0, 0) for at in (1, 2, 3)]
    pair.main.discard([3])
    pair.main.loaded(kept, complete=True)
    assert pair.main.take_changes().removed == [3]
    assert [entry.position for entry in pair.take()] == [1, 2]
    assert not pair.main.window.has_gap


def test_an_empty_fragment_needs_no_reading_after_a_restart() -> None:
    counters = Counters(next_position=9, accepted=8, completed=8)
    fragment = Fragment(KEY, 1, 0, QUEUE, counters, lambda: fragment)
    assert not fragment.window.has_gap


def test_properties_that_a_receiver_modified_are_kept_over_a_crash() -> None:
    store = MemoryStore()
    fragment = Fragment(KEY, 1, 0, QUEUE, None, lambda: fragment)
    fragment.send([incoming(b"a")], NOW_MS)
    settlement = Settlement(Outcome.ABANDON, properties=encode({"tried": "once"}))
    for _ in range(2):
        changes = fragment.take_changes()
        store.commit([changes])
        fragment.committed(changes)
        for entry in fragment.take(1, NOW_MS, Random(1).randbytes):
            fragment.settle([entry.token], settlement, NOW_MS)
    (kept,) = store.scan(1, 0, 10, MEGABYTE)
    assert kept.deliveries == 1
    assert read(kept.bare).properties == {"tried": "once"}
    assert kept.size == store.fragments()[0].counters.bytes
