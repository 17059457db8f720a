"""A store's file as another process reads it while its owner writes: by fragment and position.

Only what is durable is seen. Read transactions are short, because the log of the file cannot
start over while somebody reads its old part; nothing is written, locked or removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
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
ROWS_MAX = 8192
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

    The kept annotations and the bare message of each lie in `octets`, from `begin` on, in order.
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
    octets: bytes
    begin: Sequence[int]
    length: Sequence[int]

    def __len__(self) -> int:
        return len(self.position)

    @property
    def content(self) -> list[bytes]:
        """The kept annotations and the bare message of each."""
        places = zip(self.begin, self.length, strict=True)
        return [self.octets[begin : begin + length] for begin, length in places]


_Column = Sequence[Any]
_NOTHING: _Column = ()


def _rows(columns: Iterable[_Column], octets: bytes, begin: _Column, length: _Column) -> Rows:
    keys, *others = columns
    positions: _Column = [key & POSITION_MAX for key in keys]
    return Rows(*cast(Any, (positions, *others, octets, begin, length)))


NO_ROWS = _rows([_NOTHING] * _CONTENT, b"", _NOTHING, _NOTHING)


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
                found = _Found(cursor.execute(_ROWS, bounds).fetchall())
                bodies = _bodies(cursor, found.bundles)
                more: Any = cursor.execute(_KEPT, bounds).fetchall() if kept else ()
            finally:
                cursor.execute("COMMIT")
        if more:
            return _columns(_merged(found.with_contents(bodies), more))
        return found.rows(bodies)

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
                found = _Found(cursor.execute(_RESERVED, (apsw.carray(wanted),)).fetchall())
                bodies = _bodies(cursor, found.bundles, are_scattered=True)
            finally:
                cursor.execute("COMMIT")
        return found.rows(bodies)


class _Found:
    """What a query found of messages whose contents lie in bundles, up to the limit of bytes."""

    def __init__(self, found: Any) -> None:
        columns: Any = list(zip(*found, strict=True)) if found else [()] * (_BODY + 3)
        length = columns[-1]
        if sum(length) >= BYTES_MAX:
            count = bisect_left(list(accumulate(length)), BYTES_MAX) + 1
            columns = [column[:count] for column in columns]
        *self._columns, self._own, self._body, self._offset, self._length = columns
        # The bundles that are needed, in the order of their messages.
        self.bundles: list[int] = list(dict.fromkeys(self._body))

    def rows(self, bodies: dict[int, bytes]) -> Rows:
        """As columns, with the bundles as they are."""
        if any(own is not None for own in self._own):
            return _columns(self.with_contents(bodies))
        pieces = [bodies[each] for each in self.bundles]
        starts = dict(zip(self.bundles, accumulate(map(len, pieces), initial=0), strict=False))
        begin = [starts[body] + at for body, at in zip(self._body, self._offset, strict=True)]
        if begin != sorted(begin):
            return _columns(self.with_contents(bodies))
        return _rows(self._columns, b"".join(pieces), begin, self._length)

    def with_contents(self, bodies: dict[int, bytes]) -> list[Any]:
        """Row by row, each with its contents in place of where they lie."""
        places = zip(self._own, self._body, self._offset, self._length, strict=True)
        contents = [_content(*place, bodies) for place in places]
        return list(zip(*self._columns, contents, strict=True))


def _columns(rows: list[Any]) -> Rows:
    if not rows:
        return NO_ROWS
    *columns, contents = zip(*rows, strict=True)
    length = list(map(len, contents))
    begin = list(accumulate(length[:-1], initial=0))
    return _rows(columns, b"".join(contents), begin, length)


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


def _bodies(
    cursor: apsw.Cursor, bundles: list[int], *, are_scattered: bool = False
) -> dict[int, bytes]:
    """Bundles are in the order of their messages: a range of them is read as one.

    Those below zero are a topic's, of which a subscription may need only some.
    """
    if not bundles:
        return {}
    found: Any
    if are_scattered or min(bundles) < 0:
        found = cursor.execute(_SHARED, (apsw.carray(array("q", sorted(bundles))),))
    else:
        found = cursor.execute(_BODIES, (min(bundles), max(bundles)))
    return dict(found.fetchall())


def _content(
    own: bytes | None, body: int, offset: int, length: int, bodies: dict[int, bytes]
) -> bytes:
    if own is None:
        return bodies[body][offset : offset + length]
    # What was changed is a content of its own, before what is left of the bundle's.
    return own + bodies[body][offset : offset + length - len(own)]
