"""A store's file as another process reads it while its owner writes: by fragment and position.

Only what is durable is seen. Read transactions are short, because the log of the file cannot
start over while somebody reads its old part; nothing is written, locked or removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

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
from partibus.store.sqlite import CHECKSUM_VFS, load_checksums

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
_ROWS = (
    "SELECT position, body, offset, length, kept_length, enqueued_ms, deliveries, state,"  # noqa: S608
    " expires_ms, sequence, session, due_ms, origin, source, content FROM message"
    f" WHERE position > ? AND position <= ? AND {_SHOWN} ORDER BY position LIMIT ?"
)
_BODIES = "SELECT id, content FROM body WHERE id BETWEEN ? AND ?"
_SHARED = "SELECT id, content FROM body WHERE id IN (SELECT value FROM carray(?))"


class Row(NamedTuple):
    """A message as its file has it; `content` is the kept annotations and the bare message."""

    position: int
    content: bytes
    kept_length: int
    enqueued_ms: int
    deliveries: int
    state: int
    expires_ms: int | None
    sequence: int | None
    session: str | None
    due_ms: int | None
    origin: int | None
    source: str | None


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

    def rows(self, number: int, after: int, upto: int) -> list[Row]:
        """The next messages with after < position <= upto; none: there are no more."""
        base = number << POSITION_BITS
        cursor = self._connection.cursor()
        with self._errors():
            cursor.execute("BEGIN")
            try:
                found: Any = cursor.execute(
                    _ROWS, (base + after, base + min(upto, POSITION_MAX), ROWS_MAX)
                ).fetchall()
                found = _within(found)
                bodies: Any = dict(_bodies(cursor, found))
            finally:
                cursor.execute("COMMIT")
        return list(_assembled(found, bodies))


def _within(found: Any) -> Any:
    """The first rows, up to the one with which their contents reach the limit."""
    size = 0
    for at, row in enumerate(found):
        size += row[3]
        if size >= BYTES_MAX:
            return found[: at + 1]
    return found


def _bodies(cursor: apsw.Cursor, found: Any) -> Any:
    """Bundles are in the order of their messages: a range of them is read as one.

    Those below zero are a topic's, of which a subscription may need only some.
    """
    if not found:
        return ()
    if found[0][1] < 0:
        wanted = array("q", sorted({row[1] for row in found}))
        return cursor.execute(_SHARED, (apsw.carray(wanted),)).fetchall()
    return cursor.execute(_BODIES, (found[0][1], found[-1][1])).fetchall()


def _assembled(found: Any, bodies: dict[int, bytes]) -> Iterator[Row]:
    for (
        key, body, offset, length, kept_length, enqueued_ms, deliveries, state, expires_ms,
        sequence, session, due_ms, origin, source, content,
    ) in found:  # fmt: skip
        # What was changed is a content of its own, before what is left of the bundle's.
        own = content or b""
        content = own + bodies[body][offset : offset + length - len(own)]
        yield Row(
            key & POSITION_MAX, content, kept_length, enqueued_ms, deliveries, state, expires_ms,
            sequence, session, due_ms, origin, source,
        )  # fmt: skip
