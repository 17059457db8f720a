"""What the catalog promises to nodes that share it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from partibus.broker.access import ALL_RIGHTS, AccessRule, Right
from partibus.broker.descriptions import InvalidDescription, QueueDescription
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from partibus.store import StoreDamaged, StoreError
from partibus.store.catalog import ACCESS_RULES_MAX, ROOT_RULE, Catalog, NamespaceSettings

SETTINGS = NamespaceSettings("test", stores=16, profile_name="standard", namespace_id="n1")
NOW_MS = 1_700_000_000_000


def make(path: Path, settings: NamespaceSettings = SETTINGS) -> Catalog:
    numbers = itertools.count(1)
    return Catalog.make(path, settings, lambda: f"key-{next(numbers)}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    catalog = make(path)
    yield catalog
    catalog.close()


def test_a_new_namespace_has_one_rule_with_all_rights_and_two_keys(catalog: Catalog) -> None:
    assert catalog.load().rules_of() == (AccessRule(ROOT_RULE, "key-1", "key-2", ALL_RIGHTS),)


def test_opening_again_keeps_keys_settings_and_entities(path: Path) -> None:
    first = make(path)
    first.create_queue(QueueDescription("Orders"), NOW_MS)
    before = first.load()
    first.close()
    again = make(path, dataclasses.replace(SETTINGS, stores=4))
    assert again.load() == before
    again.close()


def test_a_queue_is_found_in_any_case_and_keeps_its_own(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("Orders/EU"), NOW_MS)
    entity = catalog.load().find("orders/eu")
    assert entity is not None
    assert entity.name == "Orders/EU"
    assert (entity.fragments, entity.created_ms, entity.updated_ms) == (1, NOW_MS, NOW_MS)
    with pytest.raises(EntityAlreadyExists):
        catalog.create_queue(QueueDescription("ORDERS/eu"), NOW_MS)


def test_a_partitioned_queue_has_as_many_fragments_as_the_profile_says(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("p", enable_partitioning=True), NOW_MS)
    entity = catalog.load().entities["p"]
    assert entity.fragments == 16
    assert len({entity.store_of(each, 16) for each in entity.partitions}) == 16


def test_conventional_queues_spread_over_the_stores(catalog: Catalog) -> None:
    for number in range(32):
        catalog.create_queue(QueueDescription(f"q{number}"), NOW_MS)
    homes = [entity.store_of(0, 16) for entity in catalog.load().by_id.values()]
    assert sorted(homes) == sorted([*range(16), *range(16)])


def test_every_change_raises_the_version_and_a_refused_one_leaves_no_trace(
    catalog: Catalog,
) -> None:
    version = catalog.load().version
    assert catalog.create_queue(QueueDescription("q"), NOW_MS) == version + 1
    assert catalog.update_queue("q", {"MaxDeliveryCount": 3}, NOW_MS) == version + 2
    with pytest.raises(InvalidDescription):
        catalog.update_queue("q", {"LockDuration": "PT1S", "MaxDeliveryCount": 9}, NOW_MS)
    with pytest.raises(InvalidDescription):
        catalog.create_queue(QueueDescription("x", lock_ms=1), NOW_MS)
    snapshot = catalog.load()
    assert snapshot.version == version + 2
    assert snapshot.entities["q"].description.max_delivery_count == 3
    assert snapshot.find("x") is None


def test_a_name_made_again_is_another_entity(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    old = catalog.load().entities["q"]
    catalog.put_access_rule(AccessRule("r", "a", "b", Right.SEND), "q")
    catalog.delete_queue("Q", NOW_MS)
    snapshot = catalog.load()
    assert (snapshot.find("q"), old.id in snapshot.by_id) == (None, False)
    assert snapshot.deleted == {(old.id, old.incarnation)}
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    new = catalog.load().entities["q"]
    assert (new.id, new.incarnation) == (old.id + 1, old.incarnation + 1)
    assert catalog.load().rules_of(new) == ()


def test_deleted_and_made_again_between_two_looks_is_found_too(
    path: Path, catalog: Catalog
) -> None:
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    other = Catalog.open(path)
    old = other.load().entities["q"]
    catalog.delete_queue("q", NOW_MS)
    catalog.create_queue(QueueDescription("Q"), NOW_MS)
    snapshot = other.load()
    assert snapshot.entities["q"].name == "Q"
    assert snapshot.entities["q"].id != old.id
    assert set(snapshot.by_id) == {snapshot.entities["q"].id}
    other.close()


def test_what_does_not_exist_can_be_neither_changed_nor_deleted(catalog: Catalog) -> None:
    with pytest.raises(EntityNotFound):
        catalog.update_queue("none", {}, NOW_MS)
    with pytest.raises(EntityNotFound):
        catalog.delete_queue("none", NOW_MS)
    with pytest.raises(EntityNotFound):
        catalog.put_access_rule(AccessRule("r", "a", "b", Right.SEND), "none")


def test_another_node_notices_a_change_and_no_change(path: Path, catalog: Catalog) -> None:
    other = Catalog.open(path)
    assert other.changed()
    before = other.load()
    assert not other.changed()
    assert other.load() is before
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    assert other.changed()
    assert other.load().find("q")
    assert not other.changed()
    assert catalog.changed()
    other.close()


def test_access_rules_are_put_replaced_and_removed(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    catalog.put_access_rule(AccessRule("sender", "1", "2", Right.SEND), "q")
    catalog.put_access_rule(AccessRule("sender", "3", "4", Right.SEND | Right.LISTEN), "q")
    snapshot = catalog.load()
    assert snapshot.rules_of(snapshot.entities["q"]) == (
        AccessRule("sender", "3", "4", Right.SEND | Right.LISTEN),
    )
    catalog.delete_access_rule("sender", "q")
    assert catalog.load().rules_of(snapshot.entities["q"]) == ()
    assert len(catalog.load().rules_of()) == 1


def test_there_are_at_most_twelve_access_rules_in_one_place(catalog: Catalog) -> None:
    for number in range(ACCESS_RULES_MAX - 1):
        catalog.put_access_rule(AccessRule(f"r{number}", "a", "b", Right.SEND))
    with pytest.raises(QuotaExceeded):
        catalog.put_access_rule(AccessRule("more", "a", "b", Right.SEND))
    assert len(catalog.load().rules_of()) == ACCESS_RULES_MAX


def test_a_hundred_partitioned_entities_and_no_more(catalog: Catalog) -> None:
    with catalog.together():
        for number in range(100):
            catalog.create_queue(QueueDescription(f"p{number}", enable_partitioning=True), NOW_MS)
    with pytest.raises(QuotaExceeded, match="EnablePartitioning"):
        catalog.create_queue(QueueDescription("p", enable_partitioning=True), NOW_MS)
    catalog.create_queue(QueueDescription("conventional"), NOW_MS)
    assert len(catalog.load().entities) == 101


def test_what_was_seen_of_a_change_that_was_undone_is_forgotten(catalog: Catalog) -> None:
    with pytest.raises(EntityNotFound), catalog.together():  # noqa: PT012
        catalog.create_queue(QueueDescription("undone"), NOW_MS)
        assert catalog.load().find("undone")
        catalog.delete_queue("none", NOW_MS)
    catalog.create_queue(QueueDescription("done"), NOW_MS)
    assert set(catalog.load().entities) == {"done"}


def test_changes_made_together_all_happen_or_none(catalog: Catalog) -> None:
    version = catalog.load().version
    with pytest.raises(EntityAlreadyExists), catalog.together():  # noqa: PT012
        catalog.create_queue(QueueDescription("a"), NOW_MS)
        catalog.create_queue(QueueDescription("A"), NOW_MS)
    assert catalog.load().version == version
    assert not catalog.load().entities


WRITER = """
import sys
from pathlib import Path
from partibus.broker.descriptions import QueueDescription
from partibus.store.catalog import Catalog
catalog = Catalog.open(Path(sys.argv[1]))
sys.stdin.readline()
for number in range(25):
    catalog.create_queue(QueueDescription(f"{sys.argv[2]}-{number}"), 1)
"""


def test_processes_that_write_at_the_same_time_lose_nothing(path: Path, catalog: Catalog) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE)
        for name in "abcd"
    ]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    snapshot = catalog.load()
    assert len(snapshot.entities) == 100
    assert snapshot.version == 101
    assert len(snapshot.by_id) == 100


def test_the_file_is_for_its_owner_only_and_flushed_at_every_commit(
    path: Path, catalog: Catalog
) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = catalog._file._connection
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2
    assert connection.reserve_bytes() == 8


def test_a_damaged_page_is_noticed(path: Path) -> None:
    catalog = make(path)
    catalog.create_queue(QueueDescription("q", user_metadata="m" * 1000), NOW_MS)
    catalog.close()
    content = bytearray(path.read_bytes())
    content[content.index(b"m" * 1000)] ^= 1
    path.write_bytes(content)
    damaged = Catalog.open(path)
    with pytest.raises(StoreDamaged):
        damaged.load()
    damaged.close()


def test_a_missing_file_and_another_programs_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Catalog.open(tmp_path / "none.sqlite")
    foreign = tmp_path / "foreign.sqlite"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    with pytest.raises(StoreDamaged, match="not a catalog"):
        make(foreign)


def test_a_description_is_kept_in_words_a_person_can_read(path: Path, catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    rows = catalog._file.rows("SELECT description FROM entity")
    assert json.loads(rows[0][0])["LockDuration"] == "PT1M"
