"""A store in one SQLite file.

Durable (WAL, synchronous=FULL), checked (a checksum on every page), owned by one process, and
readable by others while it is written. The tables are in schema.py, the statements in
statements.py, and opening.py opens it; this file commits, and turns the failures of the disk into
StoreError.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, cast

import apsw

from partibus.broker.records import (
    POSITION_BITS,
    POSITION_MAX,
    Changes,
    Counters,
    Digest,
    Entry,
    FragmentKey,
    FragmentSummary,
    Head,
    Moment,
    SubQueue,
)
from partibus.store import (
    StoreDamaged,
    StoreError,
    history,
    reading,
    schema,
    statements,
    writing,
)
from partibus.store.cursors import Cursors
from partibus.store.locks import OwnerLock
from partibus.store.opening import open_file
from partibus.store.readers import ReaderPlace, list_readers
from partibus.store.writing import SEQUENCE_BITS

# What the extended code of an error says when a page is not what was written.
_DAMAGED = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS)


class SqliteStore:
    """Fragments in one file. `identity` names the store for good; another's file is refused."""

    def __init__(self, path: Path, identity: str = "", *, make: bool = True) -> None:
        self.path = path
        self._errors = _Errors(path)
        self._lock = OwnerLock(path.with_name(f"{path.name}.lock"), str(path))
        try:
            with self._errors:
                self._connection = open_file(path, identity, make)
                self._cursor = self._connection.cursor()
            # What is added to a position to get the sequence number, by fragment.
            self._sequence_bases: dict[int, int] = {}
            # Fragments whose sequence numbers do not follow their positions.
            self._dead: set[int] = set()
            for summary in self.fragments():
                self._know(summary.number, summary.key)
            with self._errors:
                # The buckets of the duplicate history that have a table.
                self._buckets = history.buckets(self._cursor)
                self._readers = Cursors(self._cursor)
        except BaseException:
            self._lock.release()
            raise

    def fragments(self) -> list[FragmentSummary]:
        """All fragments in this store, from their counter rows alone."""
        with self._errors:
            found = self._cursor.execute(statements.SELECT_FRAGMENTS).fetchall()
        rows: list[tuple[int, ...]] = cast(Any, found)
        counters = 1 + len(FragmentKey._fields)
        return [
            FragmentSummary(row[0], FragmentKey(*row[1:counters]), Counters(*row[counters:]))
            for row in rows
        ]

    def commit(self, batch: list[Changes]) -> None:
        """Make all of these changes durable, together. On StoreError none of them happened.

        With one exception that SQLite leaves: where the sync itself failed and the process ends
        before another commit, the next start may find the changes in the log, whole.
        """
        with self._errors:
            self._cursor.execute(statements.BEGIN)
            try:
                if self._readers:
                    self._readers.keep(batch)
                writing.write(self._cursor, batch)
                self._cursor.execute(statements.COMMIT)
            except BaseException:
                self._roll_back()
                raise
            if self._readers:
                self._readers.kept()
        for changes in batch:
            if changes.created:
                self._know(changes.number, changes.key)
            if changes.sighted:
                self._buckets.update(sighting.bucket for sighting in changes.sighted)

    def _know(self, number: int, key: FragmentKey) -> None:
        self._sequence_bases[number] = key.partition << SEQUENCE_BITS
        if key.subqueue != SubQueue.ACTIVE:
            self._dead.add(number)

    def scan(self, number: int, after: int, count: int, size: int) -> list[Entry]:
        """Active entries of a fragment with position > after, in order of position."""
        if count <= 0 or number not in self._sequence_bases:
            return []
        with self._errors:
            rows = reading.scan_rows(self._cursor, number, after, count, size)
            return reading.entries(self._cursor, number, rows, self._sequence_bases[number])

    def find(self, number: int, positions: list[int]) -> list[Entry]:
        """The entries at these positions, in any state, in order of position."""
        if not positions or number not in self._sequence_bases:
            return []
        with self._errors:
            rows = reading.find_rows(self._cursor, number, positions)
            return reading.entries(self._cursor, number, rows, self._sequence_bases[number])

    def browse(
        self, number: int, sequence: int, count: int, size: int, session: str | None = None
    ) -> list[Entry]:
        """Entries with this sequence number or a higher one, in that order, but for reserved."""
        base = self._sequence_bases.get(number)
        if count <= 0 or base is None:
            return []
        with self._errors:
            if number in self._dead:
                rows = reading.browse_dead_rows(
                    self._cursor, number, sequence, count, size, session
                )
            else:
                position = min(max(sequence - base, 0), POSITION_MAX)
                rows = reading.browse_rows(self._cursor, number, position, count, size, session)
            return reading.entries(self._cursor, number, rows, base)

    def find_sequences(self, number: int, sequences: list[int]) -> list[Entry]:
        """The entries with these sequence numbers, in any state; others are left out."""
        base = self._sequence_bases.get(number)
        if not sequences or base is None:
            return []
        if number not in self._dead:
            positions = [each - base for each in sequences]
            return self.find(number, [each for each in positions if 0 < each <= POSITION_MAX])
        with self._errors:
            rows = reading.find_dead_rows(self._cursor, number, sequences)
            return reading.entries(self._cursor, number, rows, base)

    def due(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When scheduled entries become active: after one moment, up to a time."""
        with self._errors:
            return reading.moments(self._cursor, statements.DUE, after, until_ms, count)

    def expiring(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When entries expire, in all fragments and states: after one moment, up to a time."""
        with self._errors:
            return reading.moments(self._cursor, statements.EXPIRING, after, until_ms, count)

    def sighted(self, digests: list[Digest], since_ms: int) -> dict[Digest, int]:
        """Which of these were sighted after a time, and when."""
        with self._errors:
            return history.find(self._cursor, digests, since_ms, self._buckets)

    def forget(self, now_ms: int) -> bool:
        """Drop one bucket of sightings that no window reaches any more; True if there was one."""
        old = next((each for each in self._buckets if each.forgotten_ms <= now_ms), None)
        if old is None:
            return False
        with self._errors:
            history.drop(self._cursor, old)
        self._buckets.discard(old)
        return True

    def heads(self, number: int, after: int, count: int) -> tuple[list[Head], int]:
        """The sessions of the next active entries, and the last place looked at (0: the end)."""
        with self._errors:
            return reading.heads(self._cursor, number, after, count)

    def scan_session(
        self, number: int, session: str, after: int, count: int, size: int
    ) -> list[Entry]:
        """Active entries of a session with position > after, in order of position."""
        if count <= 0 or number not in self._sequence_bases:
            return []
        with self._errors:
            rows = reading.session_rows(self._cursor, number, session, after, count, size)
            return reading.entries(self._cursor, number, rows, self._sequence_bases[number])

    def session_state(self, number: int, session: str) -> bytes | None:
        """What a session keeps; None where it keeps nothing."""
        with self._errors:
            state = self._cursor.execute(statements.SELECT_STATE, (number, session)).get
        assert state is None or isinstance(state, bytes)
        return state

    def sessions(self, number: int, after: str | None, count: int, since_ms: int) -> list[str]:
        """Names of sessions, in order, from `after` on."""
        with self._errors:
            return reading.session_names(self._cursor, number, after, count, since_ms)

    def destinations(self, number: int, positions: list[int]) -> dict[int, FragmentKey]:
        """Where entries of a transfer queue go, by their positions."""
        with self._errors:
            return reading.destinations(self._cursor, number, positions)

    def marks(self, number: int) -> dict[FragmentKey, int]:
        """Up to which position a fragment has taken messages from each transfer queue."""
        with self._errors:
            found = self._cursor.execute(statements.SELECT_MARKS, (number,)).fetchall()
        rows: list[tuple[int, ...]] = cast(Any, found)
        return {FragmentKey(*row[:-1]): row[-1] for row in rows}

    def produced(self, number: int, writer: str) -> tuple[int, int] | None:
        """The last batch of a bulk writer, and how many messages of it are published."""
        with self._errors:
            found = self._cursor.execute(statements.SELECT_PRODUCED, (number, writer)).fetchall()
        return cast(tuple[int, int], found[0]) if found else None

    def move_cursor(self, number: int, reader: str, position: int | None) -> bool:
        """Note where a named reader is, or that it is no more; False where there are too many."""
        with self._errors:
            return self._readers.move(number, reader, position)

    def cursors(self, number: int) -> dict[str, int]:
        """Up to where the named readers of a fragment have read; -1: they lost their place."""
        return self._readers.of(number)

    def readers(self) -> list[ReaderPlace]:
        """All bulk readers of this store's fragments."""
        with self._errors:
            return list_readers(self._cursor, self._readers)

    def sweep(self, number: int, count: int) -> bool:
        """Remove some of what was kept for readers that have passed; True while there is more."""
        with self._errors:
            return self._readers.sweep(number, count)

    def drop(self, number: int, count: int) -> bool:
        """Remove up to `count` entries of a fragment nobody needs; True once all of it is gone."""
        base = number << POSITION_BITS
        with self._errors:
            self._cursor.execute(statements.BEGIN)
            try:
                whole = (base, base + POSITION_MAX)
                end = self._cursor.execute(statements.DROP_END, (*whole, count)).get
                if end is not None:
                    self._cursor.execute(statements.COUNT_DOWN_RUN, (base, end))
                    self._cursor.execute(statements.DELETE_RUN, (base, end))
                    self._cursor.execute(statements.DELETE_RUN_BODIES, (base, end))
                    for statement in statements.DELETE_UNSHARED:
                        self._cursor.execute(statement)
                gone = not self._cursor.execute(statements.IS_ANY_LEFT, whole).get
                if gone:
                    for statement in statements.DROP_REST:
                        self._cursor.execute(statement, (number,))
                self._cursor.execute(statements.COMMIT)
            except BaseException:
                self._roll_back()
                raise
        if gone:
            self._sequence_bases.pop(number, None)
            self._dead.discard(number)
            self._readers.forget(number)
        return gone

    def trim(self) -> bool:
        """Give free pages back to the file system, a bounded step; True while there are more.

        For idle moments: it writes, and the commits behind it wait for it.
        """
        with self._errors:
            free = self._connection.pragma("freelist_count")
            assert isinstance(free, int)
            if free <= schema.FREE_PAGES_KEPT:
                return False
            pages = min(free - schema.FREE_PAGES_KEPT, schema.TRIM_PAGES_MAX)
            self._cursor.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            more = free - pages > schema.FREE_PAGES_KEPT
            if not more:
                # The file becomes shorter when the log is folded into it.
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return more

    def check(self) -> None:
        """Read the whole file; StoreDamaged if any page or any order in it is wrong."""
        with self._errors:
            findings = self._cursor.execute("PRAGMA integrity_check(1)").fetchall()
        if findings != [("ok",)]:
            raise StoreDamaged(f"{self.path} is damaged: {findings[0][0]}")

    def close(self) -> None:
        """Give the store up. Everything committed stays."""
        try:
            with self._errors:
                self._connection.close()
        finally:
            self._lock.release()

    def _roll_back(self) -> None:
        # SQLite has done so by itself after some failures.
        if self._connection.in_transaction:
            self._cursor.execute(statements.ROLLBACK)


class _Errors:
    """The one place where failures of SQLite get their names."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, apsw.Error):
            return
        if isinstance(error, apsw.ConstraintError):
            # Not the world but we: a position taken twice, a fragment made twice.
            raise AssertionError(f"{self._path}: {error}") from error  # noqa: TRY004
        if getattr(error, "extendedresult", 0) in _DAMAGED:
            raise StoreDamaged(f"{self._path} is damaged: a page checksum is wrong") from error
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            raise StoreDamaged(f"{self._path} is damaged: {error}") from error
        raise StoreError(f"{self._path}: {error}") from error
