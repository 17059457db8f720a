"""What a store in a file promises beyond the contract: its format, its readers, its space."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from partibus.broker.records import POSITION_BITS, State
from partibus.store import StoreDamaged, StoreError, StoreInUse
from partibus.store.schema import BUNDLE_BYTES_MAX, FREE_PAGES_KEPT, PAGE_SIZE, WAL_BYTES_KEPT
from partibus.store.sqlite import SqliteStore
from partibus.testing.contracts import PLENTY, fields, made_changes, made_entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store-00.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path, "ours/00")) as store:
        yield store


def fill(store: SqliteStore, first: int, count: int, content: bytes, number: int = 1) -> None:
    """Commit entries of one fragment."""
    changes = made_changes(number, created=number not in {s.number for s in store.fragments()})
    changes.added = [made_entry(p, 0, content) for p in range(first, first + count)]
    store.commit([changes])


def remove(store: SqliteStore, positions: list[int], number: int = 1) -> None:
    """Commit the end of entries of one fragment."""
    changes = made_changes(number, created=False)
    changes.removed = positions
    store.commit([changes])


def ask(path: Path, sql: str) -> list[tuple[int, ...]]:
    """What another program reads from the file while it is open here."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return reader.execute(sql).fetchall()


def test_another_process_reads_the_file_while_it_is_written(store: SqliteStore) -> None:
    fill(store, 1, 10, b"content")
    script = (
        "import sqlite3, sys; reader = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True);"
        "reader.execute('BEGIN'); count = 'SELECT count(*) FROM message';"
        "print(reader.execute(count).fetchone()[0], flush=True); sys.stdin.readline();"
        "print(reader.execute(count).fetchone()[0], flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"10\n"
        fill(store, 11, 10, b"content")
        child.stdin.write(b"\n")
        child.stdin.flush()
        # Its read transaction still sees the moment when it began.
        assert child.stdout.readline() == b"10\n"
    assert ask(store.path, "SELECT count(*) FROM message") == [(20,)]


def test_contents_lie_in_bundles_that_go_with_their_last_message(store: SqliteStore) -> None:
    fill(store, 1, 150, b"content")
    base = 1 << POSITION_BITS
    bundles = "SELECT id, count FROM body ORDER BY id"
    assert ask(store.path, bundles) == [(base + 1, 64), (base + 65, 64), (base + 129, 22)]
    remove(store, list(range(1, 64)))
    assert len(ask(store.path, bundles)) == 3
    remove(store, [64, 130, 140, 149, 135, 133, 129, 65])
    assert ask(store.path, bundles) == [(base + 65, 64), (base + 129, 22)]
    remove(store, [p for p in range(66, 151) if p % 2])
    remove(store, [p for p in range(66, 151) if p % 2 == 0])
    assert ask(store.path, bundles) == []


@pytest.mark.parametrize("seed", range(8))
def test_no_bundle_outlives_its_messages_or_goes_before_them(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)
    base, first = 1 << POSITION_BITS, 1
    bundles: dict[int, set[int]] = {}
    for _ in range(30):
        count = chance.choice((1, 1, 3, 40, 64, 65, 130))
        fill(store, first, count, b"content")
        for start in range(first, first + count, 64):
            bundles[start] = set(range(start, min(start + 64, first + count)))
        first += count + chance.choice((0, 0, 1, 63))
    left = sorted(position for covered in bundles.values() for position in covered)
    while left:
        if chance.random() < 0.5:
            start = chance.randrange(len(left))
            gone = left[start : start + chance.choice((1, 5, 64, 200))]
        else:
            gone = chance.sample(left, min(len(left), chance.choice((1, 2, 10, 300))))
        remove(store, gone)
        left = sorted(set(left) - set(gone))
        alive = [start for start, covered in sorted(bundles.items()) if covered & set(left)]
        assert ask(store.path, "SELECT id FROM body ORDER BY id") == [(base + s,) for s in alive]


def test_a_bundle_has_a_size_but_any_message_has_room(store: SqliteStore) -> None:
    fill(store, 1, 5, bytes(BUNDLE_BYTES_MAX // 2))
    fill(store, 6, 1, bytes(3 * BUNDLE_BYTES_MAX))
    assert ask(store.path, "SELECT count FROM body ORDER BY id") == [(2,), (2,), (1,), (1,)]
    assert [len(e.bare) for e in store.find(1, [5, 6])] == [
        BUNDLE_BYTES_MAX // 2,
        3 * BUNDLE_BYTES_MAX,
    ]


def test_plain_messages_are_in_no_index(store: SqliteStore) -> None:
    fill(store, 1, 100, b"content")
    changes = made_changes(1, created=False)
    changes.added = [made_entry(p) for p in range(101, 106)]
    changes.added[0].session = "s"
    changes.added[1].state, changes.added[1].due_ms = State.SCHEDULED, 5
    changes.added[2].state = State.DEFERRED
    changes.added[3].expires_ms = 5
    changes.added[4].sequence = 77
    store.commit([changes])
    names = ("session", "due", "deferred", "expires", "sequence")
    where = ("session IS NOT NULL", "state = 2", "state = 1", "expires_ms IS NOT NULL")
    for name, condition in zip(names, (*where, "sequence IS NOT NULL"), strict=True):
        index = f"message INDEXED BY message_{name}"
        assert ask(store.path, f"SELECT count(*) FROM {index} WHERE {condition}") == [(1,)]


def test_opening_does_not_read_the_backlog(store: SqliteStore, path: Path) -> None:
    for first in range(1, 40_000, 4_000):
        fill(store, first, 4_000, bytes(1_000))
    store.close()
    before = int(Path("/proc/self/io").read_text().split()[1])
    reopened = SqliteStore(path, "ours/00")
    reopened.fragments()
    read = int(Path("/proc/self/io").read_text().split()[1]) - before
    reopened.close()
    assert path.stat().st_size > 40_000_000
    assert read < 100 * PAGE_SIZE


def test_space_of_consumed_messages_is_given_back(store: SqliteStore, path: Path) -> None:
    messages = 40_000
    for first in range(1, messages, 4_000):
        fill(store, first, 4_000, bytes(1_000))
    keep = messages - 100
    remove(store, list(range(1, keep)))
    while store.trim():
        pass
    assert path.stat().st_size < (FREE_PAGES_KEPT + 200) * PAGE_SIZE
    assert len(store.scan(1, 0, 1_000, PLENTY)) == messages - keep + 1
    assert not store.trim()


def test_the_log_stays_bounded(store: SqliteStore, path: Path) -> None:
    for first in range(1, 40_000, 400):
        fill(store, first, 400, bytes(1_000))
    assert path.with_name(f"{path.name}-wal").stat().st_size <= WAL_BYTES_KEPT


def test_a_closed_store_can_be_opened_and_an_open_one_cannot(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreInUse):
        SqliteStore(path)
    store.close()
    SqliteStore(path).close()


def test_a_closed_store_fails_as_a_store(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StoreError):
        store.fragments()
    with pytest.raises(StoreError):
        store.commit([made_changes(1, created=True)])


def test_every_flipped_byte_in_a_page_is_found_and_the_file_named(path: Path) -> None:
    store = SqliteStore(path)
    fill(store, 1, 64, os.urandom(1_000))
    store.close()
    whole = path.read_bytes()
    pages = len(whole) // PAGE_SIZE
    assert pages > 10
    for page in range(pages):
        damaged = bytearray(whole)
        damaged[page * PAGE_SIZE + (300 + page * 977) % PAGE_SIZE] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StoreDamaged, match=str(path)), closing(SqliteStore(path)) as store:
            store.check()
    path.write_bytes(whole)
    with closing(SqliteStore(path)) as store:
        store.check()


def test_a_file_that_another_program_wrote_to_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO meta VALUES ('by', 'hand')")
        other.commit()
    with pytest.raises(StoreDamaged, match="checksum"), closing(SqliteStore(path)) as store:
        store.check()


def test_a_damaged_message_is_not_handed_out(path: Path) -> None:
    store = SqliteStore(path)
    fill(store, 1, 64, b"\xaa" * 1_000)
    store.close()
    content = bytearray(path.read_bytes())
    content[content.index(b"\xaa" * 500) + 250] ^= 1
    path.write_bytes(content)
    with (
        closing(SqliteStore(path)) as store,
        pytest.raises(StoreDamaged, match=r"store-00\.sqlite"),
    ):
        store.scan(1, 0, 64, PLENTY)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\x00" * 8192])
def test_a_file_that_is_no_database_is_refused_by_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"store-00\.sqlite"):
        SqliteStore(path)


def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs(x)")
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="is not a store of partibus"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_by_name(path: Path) -> None:
    SqliteStore(path).close()
    with closing(apsw.Connection(str(path), vfs="cksmvfs")) as connection:
        connection.pragma("user_version", 9)
    with pytest.raises(StoreDamaged, match=r"store-00\.sqlite has format 9; .* reads format 2"):
        SqliteStore(path)


def test_a_missing_file_is_not_made_by_mistake(path: Path) -> None:
    with pytest.raises(StoreDamaged, match=r"store-00\.sqlite is missing"):
        SqliteStore(path, make=False)
    assert not path.exists()


def test_a_full_disk_fails_the_commit_and_nothing_else(store: SqliteStore, path: Path) -> None:
    fill(store, 1, 10, b"before")
    kept = [fields(e) for e in store.scan(1, 0, 100, PLENTY)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = path.with_name(f"{path.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"store-00\.sqlite"):
            fill(store, 11, 100, bytes(1_000))
        assert [fields(e) for e in store.scan(1, 0, 100, PLENTY)] == kept
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    fill(store, 11, 100, b"after")
    assert len(store.scan(1, 0, 1_000, PLENTY)) == 110
    store.close()
    with closing(SqliteStore(path, "ours/00")) as reopened:
        assert len(reopened.scan(1, 0, 1_000, PLENTY)) == 110
