"""What every implementation of an interface must do, as code that any of them can run.

check_store() holds a Store to its promises, by examples and by a Hypothesis state machine
against a plain dict. The same promises for every store: a test that only one of them can pass
belongs to that store's own tests. Durability through real crashes is tested elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from partibus.broker.records import (
    Bucket,
    Changes,
    Digest,
    Entry,
    FragmentKey,
    Moment,
    Sighting,
    State,
)
from partibus.store import Store

# Called again after close(), it opens what was there; a store without a memory is asked once.
MakeStore = Callable[[], Store]

ENTRY_FIELDS = (
    "position",
    "sequence",
    "bare",
    "kept",
    "kept_count",
    "enqueued_ms",
    "expires_ms",
    "deliveries",
    "state",
    "session",
    "due_ms",
    "origin",
    "hops",
    "source",
)
PLENTY = 1 << 40
_NUMBERS = (0, 1, 7, (1 << 19) - 1)
_STEPS_MAX = 40

Fields = tuple[object, ...]


def check_store(
    make_store: Callable[[], MakeStore], *, reopens: bool = True, examples: int = 30
) -> None:
    """Hold a store to the contract. `make_store()` gives a place; calling that opens a store."""
    for promise in (
        an_empty_store_has_nothing,
        what_is_committed_is_found_field_by_field,
        a_commit_covers_many_fragments,
        a_scan_is_in_order_and_within_its_limits,
        changes_apply_as_added_updated_removed,
        a_wrong_batch_changes_nothing,
        a_fragment_is_dropped_in_steps,
        the_store_keeps_copies,
        sightings_are_found_until_their_bucket_is_forgotten,
    ):
        store = make_store()()
        promise(store)
        store.close()

    class Machine(StoreAgainstDict):
        place = staticmethod(make_store)
        can_reopen = reopens

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=_STEPS_MAX,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def fields(entry: Entry) -> Fields:
    """Everything about an entry that a store keeps."""
    return tuple(getattr(entry, name) for name in ENTRY_FIELDS)


def made_entry(position: int, partition: int = 0, content: bytes = b"bare") -> Entry:
    """An ordinary entry at a position."""
    return Entry(position, partition << 48 | position, content, b"", 0, 1_700_000_000_000)


def made_changes(number: int, *, created: bool, partition: int = 0) -> Changes:
    """Changes of a fragment whose key follows from its number."""
    return Changes(number, FragmentKey(number + 1, 1, partition, 0), created)


def an_empty_store_has_nothing(store: Store) -> None:
    assert store.fragments() == []
    assert store.scan(3, 0, 10, PLENTY) == []
    assert store.find(3, [1, 2]) == []
    assert store.drop(3, 10)
    store.commit([])


def what_is_committed_is_found_field_by_field(store: Store) -> None:
    changes = made_changes(7, created=True, partition=16)
    plain = made_entry(1, 16)
    everything = Entry(
        position=2,
        sequence=(3 << 48) + 99,
        bare=b"\x00bare\xff",
        kept=b"\x00kept",
        kept_count=4,
        enqueued_ms=1_700_000_000_001,
        expires_ms=1_700_000_000_002,
        deliveries=3,
        state=State.DEFERRED,
        session='a "quoted" \\ sess\u00efon \U0001f600\n\x00',
        due_ms=1_700_000_000_003,
        origin=(1 << 48) + 5,
        hops=4,
        source="orders/$Transfer",
    )
    bare_minimum = Entry(3, 16 << 48 | 3, b"", b"", 0, 0, session="", source="")
    changes.added = [plain, everything, bare_minimum]
    changes.counters.next_position = 4
    changes.counters.bytes = 1 << 50
    store.commit([changes])
    assert [fields(e) for e in store.find(7, [3, 2, 1])] == [fields(e) for e in changes.added]
    assert store.find(7, [4, 0]) == []
    assert store.find(8, [1]) == []
    [summary] = store.fragments()
    assert (summary.number, summary.key) == (7, changes.key)
    assert summary.counters == changes.counters


def a_commit_covers_many_fragments(store: Store) -> None:
    batch = []
    for number in range(20):
        changes = made_changes(number, created=True, partition=number % 17)
        changes.added = [made_entry(p, number % 17, b"%d" % number) for p in range(1, number + 2)]
        changes.counters.active = number + 1
        batch.append(changes)
    store.commit(batch)
    assert [s.number for s in store.fragments()] == list(range(20))
    assert [s.counters.active for s in store.fragments()] == list(range(1, 21))
    for changes in batch:
        found = store.scan(changes.number, 0, 100, PLENTY)
        assert [fields(e) for e in found] == [fields(e) for e in changes.added]


def a_scan_is_in_order_and_within_its_limits(store: Store) -> None:
    changes = made_changes(1, created=True)
    changes.added = [made_entry(p, 0, bytes(100)) for p in range(1, 201)]
    changes.added[9].state = State.DEFERRED
    changes.added[19].state = State.SCHEDULED
    store.commit([changes])

    def positions(after: int, count: int, size: int) -> list[int]:
        return [e.position for e in store.scan(1, after, count, size)]

    assert positions(0, 5, PLENTY) == [1, 2, 3, 4, 5]
    assert positions(8, 3, PLENTY) == [9, 11, 12]
    assert positions(18, 2, PLENTY) == [19, 21]
    assert positions(0, 1000, 250) == [1, 2, 3]
    assert positions(0, 1000, 300) == [1, 2, 3]
    assert positions(0, 1000, 0) == [1]
    assert positions(0, 0, PLENTY) == []
    assert positions(200, 10, PLENTY) == []
    assert len(positions(0, 1000, PLENTY)) == 198


def changes_apply_as_added_updated_removed(store: Store) -> None:
    first = made_changes(1, created=True)
    first.added = [made_entry(p) for p in range(1, 6)]
    store.commit([first])
    second = made_changes(1, created=False)
    second.added = [made_entry(6), made_entry(7)]
    changed = made_entry(6)
    changed.deliveries, changed.state, changed.expires_ms = 2, State.DEFERRED, 77
    again = made_entry(2)
    again.due_ms, again.enqueued_ms = 55, 66
    second.updated = [changed, again, made_entry(3)]
    second.removed = [7, 3, 1]
    store.commit([second])
    kept = store.find(1, list(range(1, 8)))
    assert [e.position for e in kept] == [2, 4, 5, 6]
    assert fields(kept[0]) == fields(again)
    assert fields(kept[3]) == fields(changed)
    assert [e.position for e in store.scan(1, 0, 10, PLENTY)] == [2, 4, 5]


def a_wrong_batch_changes_nothing(store: Store) -> None:
    good = made_changes(1, created=True)
    good.added = [made_entry(1)]
    store.commit([good])
    beside = made_changes(2, created=True)
    beside.added = [made_entry(1)]
    taken = made_changes(1, created=False)
    taken.added = [made_entry(1)]
    taken.counters.active = 99
    made_twice = made_changes(1, created=True)
    same_key = Changes(3, good.key, True)
    unknown = made_changes(9, created=False)
    absent = made_changes(1, created=False)
    absent.updated = [made_entry(1), made_entry(2)]
    for wrong in (taken, made_twice, same_key, unknown, absent):
        try:
            store.commit([beside, wrong])
        except AssertionError:
            pass
        else:
            raise AssertionError("a wrong batch was committed")
        assert [s.number for s in store.fragments()] == [1]
        assert store.fragments()[0].counters == good.counters
        assert store.find(2, [1]) == []
    store.commit([beside])
    assert len(store.find(2, [1])) == 1


def a_fragment_is_dropped_in_steps(store: Store) -> None:
    for number in (1, 2, 3):
        changes = made_changes(number, created=True)
        changes.added = [made_entry(p) for p in range(1, 101)]
        store.commit([changes])
    assert not store.drop(2, 30)
    assert [e.position for e in store.scan(2, 0, 1, PLENTY)] == [31]
    while not store.drop(2, 30):
        pass
    assert [s.number for s in store.fragments()] == [1, 3]
    assert store.scan(2, 0, 10, PLENTY) == []
    assert len(store.scan(1, 0, 1000, PLENTY)) == len(store.scan(3, 0, 1000, PLENTY)) == 100
    # The number and the positions are free for a new life.
    changes = made_changes(2, created=True)
    changes.added = [made_entry(1, 0, b"new")]
    store.commit([changes])
    assert [e.bare for e in store.scan(2, 0, 10, PLENTY)] == [b"new"]


def the_store_keeps_copies(store: Store) -> None:
    changes = made_changes(1, created=True)
    changes.added = [made_entry(1)]
    store.commit([changes])
    changes.added[0].deliveries = 9
    changes.counters.active = 9
    store.find(1, [1])[0].deliveries = 8
    assert store.find(1, [1])[0].deliveries == 0
    assert store.fragments()[0].counters.active == 0


def sightings_are_found_until_their_bucket_is_forgotten(store: Store) -> None:
    early, late = Bucket(4, 10), Bucket(4, 11)
    one, two, three = Digest(-(1 << 63), 5), Digest((1 << 63) - 1, -5), Digest(0, 0)
    changes = made_changes(1, created=True)
    changes.added = [made_entry(1)]
    changes.sighted = [Sighting(one, 165, early), Sighting(two, 175, early)]
    store.commit([changes])
    changes = made_changes(1, created=False)
    changes.sighted = [Sighting(two, 180, late)]
    store.commit([changes])
    everything = [one, two, three]
    assert store.sighted(everything, 0) == {one: 165, two: 180}
    assert store.sighted(everything, 165) == {two: 180}
    # The other half of a digest counts as well.
    assert store.sighted([Digest(one.high, 6), three], 0) == {}
    wrong = made_changes(9, created=False)
    wrong.sighted = [Sighting(three, 181, late)]
    with contextlib.suppress(AssertionError):
        store.commit([wrong])
    assert store.sighted([three], 0) == {}
    assert not store.forget(early.forgotten_ms - 1)
    assert store.forget(early.forgotten_ms)
    assert not store.forget(early.forgotten_ms)
    assert store.sighted(everything, 0) == {two: 180}
    assert store.forget(late.forgotten_ms)
    assert store.sighted(everything, 0) == {}


_content = st.one_of(st.binary(max_size=20), st.integers(0, 3000).map(bytes))
_text = st.none() | st.text(max_size=5)
_time = st.just(0) | st.integers(1, 1 << 43)


@st.composite
def _looks(draw: st.DrawFn) -> dict[str, object]:
    """Everything about an entry but its position; most are plain."""
    if draw(st.booleans()):
        return {"bare": draw(_content), "kept": b"", "kept_count": 0, "enqueued_ms": draw(_time)}
    return {
        "bare": draw(_content),
        "kept": draw(_content),
        "kept_count": draw(st.integers(0, 9)),
        "enqueued_ms": draw(_time),
        "expires_ms": draw(_time),
        "deliveries": draw(st.integers(0, 10)),
        "state": draw(st.sampled_from(State)),
        "session": draw(_text),
        "due_ms": draw(_time),
        "origin": draw(_time),
        "hops": draw(st.integers(0, 4)),
        "source": draw(_text),
    }


class StoreAgainstDict(RuleBasedStateMachine):
    """A store agrees with a dict of dicts, whatever is committed, read, dropped and reopened."""

    place: Callable[[], MakeStore]
    can_reopen: bool

    @initialize()
    def open(self) -> None:
        self.make = type(self).place()
        self.store = self.make()
        self.model: dict[int, dict[int, Fields]] = {}
        self.next: dict[int, int] = {}
        self.batch: dict[int, Changes] = {}

    def changes(self, number: int) -> Changes:
        if number not in self.batch:
            created = number not in self.model
            self.batch[number] = made_changes(number, created=created, partition=number % 17)
            self.model.setdefault(number, {})
            self.next.setdefault(number, 1)
        return self.batch[number]

    @rule(
        number=st.sampled_from(_NUMBERS),
        looks=st.lists(_looks(), min_size=1, max_size=4),
        times=st.sampled_from((1, 1, 1, 5, 40)),
        skip=st.sampled_from((0, 0, 0, 1, 70)),
        moved=st.booleans(),
    )
    def add(
        self, number: int, looks: list[dict[str, object]], times: int, skip: int, moved: bool
    ) -> None:
        changes = self.changes(number)
        self.next[number] += skip
        for look in looks * times:
            position = self.next[number]
            self.next[number] += 1
            sequence = 12345 + position if moved else (number % 17) << 48 | position
            entry = Entry(position, sequence, **look)  # type: ignore[arg-type]
            changes.added.append(entry)
            self.model[number][position] = fields(entry)

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), times=st.tuples(_time, _time, _time), content=st.none() | st.binary())
    def update(
        self, data: st.DataObject, times: tuple[int, int, int], content: bytes | None
    ) -> None:
        number = data.draw(st.sampled_from([n for n, kept in self.model.items() if kept]))
        positions = data.draw(st.sets(st.sampled_from(sorted(self.model[number]))))
        for position in positions:
            named = dict(zip(ENTRY_FIELDS, self.model[number][position], strict=True))
            entry = Entry(**named)  # type: ignore[arg-type]
            entry.enqueued_ms, entry.expires_ms, entry.due_ms = times
            entry.deliveries += 1
            entry.state = State((entry.state + 1) % 3)
            changes = self.changes(number)
            if content is None:
                changes.updated.append(entry)
            else:
                entry.bare, entry.kept, entry.kept_count = content, content[:1], len(content[:1])
                changes.rewritten.append(entry)
            self.model[number][position] = fields(entry)
        self.commit()

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), run=st.booleans())
    def remove(self, data: st.DataObject, run: bool) -> None:
        number = data.draw(st.sampled_from([n for n, kept in self.model.items() if kept]))
        kept = sorted(self.model[number])
        positions = data.draw(st.sets(st.sampled_from(kept), min_size=1))
        if run:
            positions = {p for p in kept if min(positions) <= p <= max(positions)}
        self.changes(number).removed.extend(positions)
        for position in positions:
            del self.model[number][position]
        self.commit()

    @rule()
    def commit(self) -> None:
        batch = list(self.batch.values())
        for changes in batch:
            changes.counters.next_position = self.next[changes.number]
            changes.counters.active = len(self.model[changes.number])
        self.store.commit(batch)
        self.batch = {}

    @rule(number=st.sampled_from(_NUMBERS), count=st.integers(1, 100))
    def drop(self, number: int, count: int) -> None:
        self.commit()
        kept = self.model.get(number, {})
        gone = self.store.drop(number, count)
        for position in sorted(kept)[:count]:
            del kept[position]
        assert gone == (not kept)
        if gone:
            self.model.pop(number, None)
            self.next.pop(number, None)

    @precondition(lambda self: self.can_reopen)
    @rule()
    def reopen(self) -> None:
        self.commit()
        self.store.close()
        self.store = self.make()

    @rule(number=st.sampled_from(_NUMBERS), after=st.integers(0, 50), count=st.integers(0, 200))
    def scan(self, number: int, after: int, count: int) -> None:
        self.commit()
        size = 5_000
        expected: list[Fields] = []
        gathered = 0
        for position, kept in sorted(self.model.get(number, {}).items()):
            if position > after and kept[ENTRY_FIELDS.index("state")] == State.ACTIVE:
                if len(expected) >= count or (expected and gathered >= size):
                    break
                expected.append(kept)
                bare, annotations = kept[2], kept[3]
                assert isinstance(bare, bytes)
                assert isinstance(annotations, bytes)
                gathered += len(bare) + len(annotations)
        assert [fields(e) for e in self.store.scan(number, after, count, size)] == expected

    @rule(until_ms=st.sampled_from((0, 1 << 20, 1 << 42, 1 << 44)), count=st.integers(1, 20))
    def look_ahead(self, until_ms: int, count: int) -> None:
        self.commit()
        due: list[Moment] = []
        expiring: list[Moment] = []
        for number, kept in self.model.items():
            for position, values in kept.items():
                entry = Entry(**dict(zip(ENTRY_FIELDS, values, strict=True)))  # type: ignore[arg-type]
                if entry.state == State.SCHEDULED and 0 < entry.due_ms <= until_ms:
                    due.append(Moment(entry.due_ms, number, position))
                if 0 < entry.expires_ms <= until_ms:
                    expiring.append(Moment(entry.expires_ms, number, position))
        for look, expected in ((self.store.due, due), (self.store.expiring, expiring)):
            found: list[Moment] = []
            while part := look(found[-1] if found else Moment(0, 0, 0), until_ms, count):
                found += part
            assert found == sorted(expected)

    @invariant()
    def agrees(self) -> None:
        if self.batch:
            return
        summaries = self.store.fragments()
        assert [s.number for s in summaries] == sorted(self.model)
        for summary in summaries:
            kept = self.model[summary.number]
            assert summary.counters.next_position == self.next[summary.number]
            found = self.store.find(summary.number, list(range(self.next[summary.number] + 1)))
            assert [fields(e) for e in found] == [kept[p] for p in sorted(kept)]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
