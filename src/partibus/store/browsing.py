"""A store's file as another process reads it while its owner writes: by fragment and position.

Only what is durable is seen. Read transactions are short, because the log of the file cannot
start over while somebody reads its old part; nothing is written, locked or removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw

from partibus.broker.records import (
    COUNTER_FIELDS,
    POSITION_BITS,
    POSITION_MAX,
    Counters,
    FragmentKey,
    FragmentSummary,
    State,
)
from partibus.store import StoreError, schema
from partibus.store.opening import CHECKSUM_VFS, load_checksums

# Statements are few; files are many.
STATEMENTS_CACHED_MAX = 16
CACHE_KIB = 1024
# Rows of one read transaction: some ten milliseconds, far from the 200 that are allowed.
ROWS_MAX = 2048
BYTES_MAX = 4 * 1024 * 1024

_FRAGMENT = (
    f"SELECT number, {', '.join(COUNTER_FIELDS)} FROM fragment"  # noqa: S608 - names of ours
    " WHERE entity = ? AND incarnation = ? AND partition = ? AND subqueue = ?"
)
_SHOWN = f"state <> {int(State.SCHEDULED)}"
_FIRST = (
    "SELECT position, enqueued_ms FROM message WHERE position BETWEEN ? AND ?"  # noqa: S608
    f" AND {_SHOWN} ORDER BY position LIMIT 1"
)
# Alike in both tables but for the contents, which lie elsewhere for messages that are there.
_COLUMNS = (
    "position, kept_length, enqueued_ms, deliveries, state, expires_ms, sequence, session, origin,"
    " source, content"
)
_RANGE = "WHERE position > ? AND position <= ?"
_ROWS = (
    f"SELECT {_COLUMNS}, body, offset, length FROM message {_RANGE}"  # noqa: S608
    f" AND {_SHOWN} ORDER BY position LIMIT ?"
)
_FIRST_KEPT = "SELECT min(position) FROM kept WHERE position BETWEEN ? AND ?"
_KEPT = f"SELECT {_COLUMNS} FROM kept {_RANGE} ORDER BY position LIMIT ?"  # noqa: S608
_CURSORS = "SELECT reader, position FROM cursor WHERE number = ? ORDER BY reader"
_KEPT_SIZE = "SELECT ifnull(sum(length(content)), 0) FROM kept WHERE position BETWEEN ? AND ?"
_CURSOR = "SELECT position FROM cursor WHERE number = ? AND reader = ?"
_NOTE = "SELECT state FROM session_state WHERE number = ? AND session = ?"
_RESERVED = (
    f"SELECT {_COLUMNS}, body, offset, length FROM message"  # noqa: S608
    f" WHERE position IN (SELECT value FROM carray(?)) AND state = {int(State.RESERVED)}"
    " ORDER BY position"
)
# Where the contents stand in a row, and the bundle, offset and length behind them.
_CONTENT, _BODY = 10, 11
_BODIES = "SELECT id, content FROM body WHERE id BETWEEN ? AND ?"
_SHARED = "SELECT id, content FROM body WHERE id IN (SELECT value FROM carray(?))"


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages as their file has them, column by column, because that is how they go on.

    `content` is the kept annotations and the bare message of each.
    """

    position: Sequence[int]
    kept_length: Sequence[int]
    enqueued_ms: Sequence[int]
    deliveries: Sequence[int]
    state: Sequence[int]
    expires_ms: Sequence[int | None]
    sequence: Sequence[int | None]
    session: Sequence[str | None]
    origin: Sequence[int | None]
    source: Sequence[str | None]
    content: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.position)


NO_ROWS = Rows(*([()] * 11))


class StoreFile:
    """One store's file, open for reading. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        load_checksums()
        with self._errors():
            self._connection = apsw.Connection(
                str(path),
                vfs=CHECKSUM_VFS,
                flags=apsw.SQLITE_OPEN_READONLY,
                statementcachesize=STATEMENTS_CACHED_MAX,
            )
            self._connection.set_busy_timeout(schema.BUSY_MS_MAX)
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}").fetchall()
            if self._connection.pragma("user_version") != schema.FORMAT_VERSION:
                raise StoreError(f"{path} has another format than this partibus reads")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise StoreError(f"{self._path.name}: {error}") from error

    def close(self) -> None:
        """Read no more."""
        self._connection.close()

    def fragment(self, key: FragmentKey) -> FragmentSummary | None:
        """A fragment's counters; None where nothing ever came to it."""
        with self._errors():
            rows = self._connection.execute(_FRAGMENT, key).fetchall()
        if not rows:
            return None
        row = cast(tuple[int, ...], rows[0])
        return FragmentSummary(row[0], key, Counters(*row[1:]))

    def first(self, number: int, position: int = 0) -> tuple[int, int] | None:
        """Position and time of the first message from a position on; None where there is none."""
        base = number << POSITION_BITS
        with self._errors():
            found = self._connection.execute(_FIRST, (base + position, base + POSITION_MAX))
            rows = found.fetchall()
        if not rows:
            return None
        key, enqueued_ms = cast(tuple[int, int], rows[0])
        return key & POSITION_MAX, enqueued_ms

    def before(self, number: int, last: int, at_ms: int) -> int:
        """The position behind which all messages came at this time or later.

        Messages stand in the order of arrival, so it is found by halving.
        """
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2 + 1
            found = self.first(number, middle)
            if found is None or found[1] >= at_ms:
                high = middle - 1
            else:
                low = found[0]
        return min(low, last)

    def first_kept(self, number: int) -> int | None:
        """The position of the first message that is kept for readers only."""
        base = number << POSITION_BITS
        with self._errors():
            found = self._connection.execute(_FIRST_KEPT, (base, base + POSITION_MAX)).get
        return None if found is None else cast(int, found) & POSITION_MAX

    def cursor(self, number: int, reader: str) -> int | None:
        """Up to where a named reader has read; None: it is not known, -1: it lost its place."""
        with self._errors():
            return cast(int | None, self._connection.execute(_CURSOR, (number, reader)).get)

    def readers(self, number: int) -> tuple[dict[str, int], int]:
        """The places of all named readers, and how many bytes are kept for them."""
        base = number << POSITION_BITS
        with self._errors():
            places = self._connection.execute(_CURSORS, (number,)).fetchall()
            size = self._connection.execute(_KEPT_SIZE, (base, base + POSITION_MAX)).get
        return dict(cast(Any, places)), cast(int, size)

    def rows(self, number: int, after: int, upto: int, *, kept: bool = False) -> Rows:
        """The next messages with after < position <= upto; none: there are no more.

        With `kept`, also those that are there for named readers only.
        """
        base = number << POSITION_BITS
        bounds = (base + after, base + min(upto, POSITION_MAX), ROWS_MAX)
        cursor = self._connection.cursor()
        with self._errors():
            cursor.execute("BEGIN")
            try:
                found: Any = _within(cursor.execute(_ROWS, bounds).fetchall())
                bodies: Any = dict(_bodies(cursor, found))
                more: Any = cursor.execute(_KEPT, bounds).fetchall() if kept else ()
            finally:
                cursor.execute("COMMIT")
        rows = _with_contents(found, bodies)
        return _columns(_merged(rows, more) if more else rows)

    def note(self, number: int, name: str) -> bytes | None:
        """What is kept with a fragment under a name."""
        with self._errors():
            return cast(bytes | None, self._connection.execute(_NOTE, (number, name)).get)

    def reserved(self, number: int, positions: Sequence[int]) -> Rows:
        """The first of these messages, in order, of those that are reserved for a reader."""
        base = number << POSITION_BITS
        wanted = array("q", [base + position for position in positions[:ROWS_MAX]])
        cursor = self._connection.cursor()
        with self._errors():
            cursor.execute("BEGIN")
            try:
                rows: Any = cursor.execute(_RESERVED, (apsw.carray(wanted),)).fetchall()
                found = _within(rows)
                needed = array("q", sorted({row[_BODY] for row in found}))
                held: Any = cursor.execute(_SHARED, (apsw.carray(needed),)).fetchall()
            finally:
                cursor.execute("COMMIT")
        return _columns(_with_contents(found, dict(held)))


def _columns(rows: list[Any]) -> Rows:
    if not rows:
        return NO_ROWS
    keys, *others = zip(*rows, strict=True)
    return Rows([key & POSITION_MAX for key in keys], *others)


def _merged(rows: list[Any], kept: list[Any]) -> list[Any]:
    """The first of both, in order: only as far as both are known."""
    ends = [part[-1][0] for part in (rows, kept) if len(part) == ROWS_MAX]
    if rows and len(rows) < ROWS_MAX and not _is_whole(rows):
        ends.append(rows[-1][0])
    found = sorted([*rows, *kept], key=lambda row: row[0])
    return [row for row in found if row[0] <= min(ends)] if ends else found


def _is_whole(rows: list[Any]) -> bool:
    """Whether these are all that were found, and not cut for their size."""
    return sum(len(row[_CONTENT]) for row in rows) < BYTES_MAX


def _within(found: list[Any]) -> list[Any]:
    """The first rows, up to the one with which their contents reach the limit."""
    size = 0
    for at, row in enumerate(found):
        size += row[-1]
        if size >= BYTES_MAX:
            return found[: at + 1]
    return found


def _bodies(cursor: apsw.Cursor, found: Any) -> Any:
    """Bundles are in the order of their messages: a range of them is read as one.

    Those below zero are a topic's, of which a subscription may need only some.
    """
    if not found:
        return ()
    if found[0][_BODY] < 0:
        wanted = array("q", sorted({row[_BODY] for row in found}))
        return cursor.execute(_SHARED, (apsw.carray(wanted),)).fetchall()
    return cursor.execute(_BODIES, (found[0][_BODY], found[-1][_BODY])).fetchall()


def _with_contents(found: list[Any], bodies: dict[int, bytes]) -> list[Any]:
    """Each row with its contents in place of where they lie."""
    return [(*row[:_CONTENT], _content(row, bodies)) for row in found]


def _content(row: Any, bodies: dict[int, bytes]) -> bytes:
    own, body, offset, length = row[_CONTENT:]
    if own is None:
        return bodies[body][offset : offset + length]
    # What was changed is a content of its own, before what is left of the bundle's.
    changed: bytes = own + bodies[body][offset : offset + length - len(own)]
    return changed
