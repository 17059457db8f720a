"""Contents that several subscriptions share lie in the file once, and go with the last copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from partibus.broker.records import Changes
from partibus.store.browsing import StoreFile
from partibus.store.sqlite import SqliteStore
from partibus.testing.contracts import PLENTY
from partibus.testing.copy_contracts import (
    SUBSCRIPTIONS,
    TOPIC,
    changes_of,
    copied,
    published,
    revised,
)

KILOBYTE = bytes(1024)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "store.sqlite", "test")) as store:
        yield store


def ask(store: SqliteStore, sql: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(f"file:{store.path}?mode=ro", uri=True)) as reader:
        return reader.execute(sql).fetchall()


def publish(store: SqliteStore, first: int, count: int, *, created: bool) -> None:
    """The same messages for all subscriptions, at the same positions everywhere."""
    topic = changes_of(TOPIC, created=created)
    topic.published = [published(each, KILOBYTE) for each in range(first, first + count)]
    subscriptions = [changes_of(number, created=created) for number in SUBSCRIPTIONS]
    for changes in subscriptions:
        for each in topic.published:
            copied(changes, each.position, each)
    store.commit([topic, *subscriptions])


def remove(store: SqliteStore, number: int, positions: list[int]) -> None:
    changes = changes_of(number, created=False)
    changes.removed = positions
    store.commit([changes])


def test_P4_a_message_is_kept_once_and_goes_with_its_last_copy(store: SqliteStore) -> None:
    publish(store, 1, 100, created=True)
    assert ask(store, "SELECT count(*), sum(length(content)) FROM body") == [(2, 100 * 1028)]
    assert ask(store, "SELECT sum(copies) FROM share") == [(300,)]
    for number in SUBSCRIPTIONS[:2]:
        remove(store, number, list(range(1, 101)))
        assert ask(store, "SELECT count(*) FROM body") == [(2,)]
    # Out of order, one by one: the first bundle goes when its last copy does.
    remove(store, SUBSCRIPTIONS[2], [*range(2, 65), 70])
    assert ask(store, "SELECT count(*) FROM body") == [(2,)]
    remove(store, SUBSCRIPTIONS[2], [1])
    assert ask(store, "SELECT copies FROM share") == [(35,)]
    remove(store, SUBSCRIPTIONS[2], [*range(65, 70), *range(71, 101)])
    assert ask(store, "SELECT count(*) FROM body") == [(0,)]
    assert ask(store, "SELECT count(*) FROM share") == [(0,)]


def test_a_subscription_that_is_dropped_gives_up_its_shares(store: SqliteStore) -> None:
    publish(store, 1, 10, created=True)
    publish(store, 11, 10, created=False)
    remove(store, SUBSCRIPTIONS[0], list(range(1, 21)))
    remove(store, SUBSCRIPTIONS[1], list(range(1, 11)))
    assert not store.drop(SUBSCRIPTIONS[2], 10)
    assert ask(store, "SELECT copies FROM share") == [(20,)]
    assert store.drop(SUBSCRIPTIONS[2], 10)
    assert ask(store, "SELECT copies FROM share") == [(10,)]


def test_an_action_costs_what_it_changed(store: SqliteStore) -> None:
    topic = changes_of(TOPIC, created=True)
    large = published(1, bytes(100_000))
    topic.published = [large]
    changes = changes_of(SUBSCRIPTIONS[0], created=True)
    for position in range(1, 11):
        revised(copied(changes, position, large), b"head%d" % position, b"")
    store.commit([topic, changes])
    assert ask(store, "SELECT sum(length(content)) FROM body") == [(100_004,)]
    assert ask(store, "SELECT max(length(content)) FROM message") == [(6,)]


def test_S1_copies_are_read_from_the_file_by_other_processes(store: SqliteStore) -> None:
    topic = changes_of(TOPIC, created=True)
    topic.published = [published(each, b"content %d" % each) for each in (1, 2)]
    changes = changes_of(SUBSCRIPTIONS[0], created=True)
    copied(changes, 1, topic.published[0])
    revised(copied(changes, 2, topic.published[1]), b"CO", b"new")
    store.commit([topic, changes])
    file = StoreFile(store.path)
    found = file.rows(SUBSCRIPTIONS[0], 0, 10)
    file.close()
    assert list(found.content) == [b"keptcontent 1", b"newCOntent 2"]
    assert list(found.kept_length) == [4, 3]


class Sharing(RuleBasedStateMachine):
    """Publications, completions and drops in any order, against sets of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store = SqliteStore(Path(self.folder.name) / "store.sqlite", "test")
        self.next = 1
        # The topic's numbers of what each subscription holds; positions are the same here.
        self.held: dict[int, set[int]] = {}
        self.known: set[int] = set()

    def _changes(self, number: int) -> Changes:
        created = number not in self.known
        self.known.add(number)
        return changes_of(number, created=created)

    @rule(takers=st.lists(st.sets(st.sampled_from(SUBSCRIPTIONS), min_size=1), min_size=1))
    def publish(self, takers: list[set[int]]) -> None:
        batch = {number: self._changes(number) for number in (TOPIC, *SUBSCRIPTIONS)}
        for each in takers:
            publication = published(self.next, b"%d" % self.next)
            batch[TOPIC].published.append(publication)
            for number in each:
                copied(batch[number], self.next, publication)
                self.held.setdefault(number, set()).add(self.next)
            self.next += 1
        self.store.commit(list(batch.values()))

    @rule(number=st.sampled_from(SUBSCRIPTIONS), data=st.data())
    def complete(self, number: int, data: st.DataObject) -> None:
        held = sorted(self.held.get(number, ()))
        if held:
            gone = data.draw(st.sets(st.sampled_from(held), min_size=1))
            remove(self.store, number, list(gone))
            self.held[number] -= gone

    @rule(number=st.sampled_from(SUBSCRIPTIONS))
    def drop(self, number: int) -> None:
        if number in self.known:
            while not self.store.drop(number, 3):
                pass
            self.known.discard(number)
            self.held.pop(number, None)

    @invariant()
    def every_copy_is_whole_and_no_content_is_left_behind(self) -> None:
        for number, held in self.held.items():
            found = self.store.scan(number, 0, 10_000, PLENTY)
            assert [(e.position, e.bare) for e in found] == [(p, b"%d" % p) for p in sorted(held)]
        copies = sum(len(held) for held in self.held.values())
        assert ask(self.store, "SELECT coalesce(sum(copies), 0) FROM share") == [(copies,)]
        unused = "SELECT count(*) FROM body WHERE id NOT IN (SELECT body FROM message)"
        assert ask(self.store, unused) == [(0,)]

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


def test_shared_contents_are_there_as_long_as_their_copies() -> None:
    run_state_machine_as_test(
        Sharing,
        settings=settings(
            max_examples=12,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
