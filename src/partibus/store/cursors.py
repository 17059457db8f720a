"""Named readers of a store's fragments, and what is kept for them beyond its time.

A reader that browses in bulk leaves a cursor: the position up to which it has read. What leaves a
fragment before all of its readers have passed is copied into a table of its own, where only they
see it: it is in no count, no quota and no peek. What is kept of a fragment is bounded; over that
the reader that is furthest behind has lost its place, and is told so.
"""

from __future__ import annotations

import logging
from array import array
from typing import Any, cast

import apsw

from partibus.broker.records import POSITION_BITS, POSITION_MAX, Changes, State
from partibus.store.schema import KEPT_BYTES_MAX

log = logging.getLogger(__name__)

# The place of a reader that has lost it.
LOST = -1
# Readers of one fragment.
READERS_MAX = 64
# Of what may be kept: above that a reader is told of as one that will lose its place.
NEAR_PERCENT = 75

_SELECT_ALL = "SELECT number, reader, position FROM cursor"
_SET = "INSERT OR REPLACE INTO cursor(number, reader, position) VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM cursor WHERE number = ? AND reader = ?"
_KEEP = f"""
    INSERT OR IGNORE INTO kept
    SELECT message.position, kept_length, enqueued_ms, deliveries, state, expires_ms, sequence,
           session, origin, source,
           CASE WHEN message.content IS NULL
                THEN substr(body.content, message.offset + 1, message.length)
                ELSE CAST(message.content || substr(body.content, message.offset + 1,
                          message.length - length(message.content)) AS BLOB) END
    FROM message JOIN body ON body.id = message.body
    WHERE message.position IN (SELECT value FROM carray(?))
      AND state <> {int(State.SCHEDULED)}"""  # noqa: S608 - a number of this program
_SIZE_OF = """
    SELECT ifnull(sum(length(content)), 0) FROM kept
    WHERE position IN (SELECT value FROM carray(?))"""
_SIZE = "SELECT ifnull(sum(length(content)), 0) FROM kept WHERE position BETWEEN ? AND ?"
_SWEEP = """
    DELETE FROM kept WHERE position IN
    (SELECT position FROM kept WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?)"""


class Cursors:
    """The named readers of one store. For the thread that owns the store."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self._readers: dict[int, dict[str, int]] = {}
        rows: list[tuple[int, str, int]] = cast(Any, cursor.execute(_SELECT_ALL).fetchall())
        for number, reader, position in rows:
            self._readers.setdefault(number, {})[reader] = position
        self._bytes = {number: self._size(number) for number in self._readers}
        # What the commit under way keeps, by fragment.
        self._keeping: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._readers)

    def of(self, number: int) -> dict[str, int]:
        """The positions of a fragment's readers."""
        return dict(self._readers.get(number, {}))

    def numbers(self) -> list[int]:
        """The fragments that have readers."""
        return list(self._readers)

    def kept_bytes(self, number: int) -> int:
        """How much is kept of a fragment."""
        return self._bytes.get(number, 0)

    def hindmost(self, number: int) -> str | None:
        """The reader that is furthest behind: what is kept is kept for it."""
        places = {name: at for name, at in self._readers.get(number, {}).items() if at != LOST}
        return min(places, key=lambda name: (places[name], name), default=None)

    def keep(self, batch: list[Changes]) -> None:
        """Inside a transaction, before it removes anything: copy what readers have not passed."""
        self._keeping = {}
        for changes in batch:
            if changes.removed and changes.number in self._readers:
                base = changes.number << POSITION_BITS
                passed = self._passed(changes.number)
                left = [base + each for each in changes.removed if each > passed]
                if left:
                    keys = apsw.carray(array("q", left))
                    self._cursor.execute(_KEEP, (keys,))
                    size = cast(int, self._cursor.execute(_SIZE_OF, (keys,)).get)
                    self._keeping[changes.number] = self._keeping.get(changes.number, 0) + size

    def kept(self) -> None:
        """The transaction held: whoever makes us keep too much loses its place."""
        for number, size in self._keeping.items():
            self._bytes[number] = self._bytes.get(number, 0) + size
            self._warn(number, self._bytes[number] - size)
            while self._bytes[number] > KEPT_BYTES_MAX and self._passed(number) < POSITION_MAX:
                last = self.hindmost(number)
                assert last is not None
                log.error(
                    "reader lost its place fragment=%d reader=%r kept_bytes=%d",
                    number, last, self._bytes[number],
                )  # fmt: skip
                self.move(number, last, LOST)
                while self.sweep(number, 1000):
                    pass
        self._keeping = {}

    def _warn(self, number: int, before: int) -> None:
        """Tell once, on the way up, that a reader will soon lose its place."""
        near = KEPT_BYTES_MAX * NEAR_PERCENT // 100
        if before <= near < self._bytes[number] <= KEPT_BYTES_MAX:
            log.warning(
                "reader is far behind and will lose its place fragment=%d reader=%r "
                "kept_bytes=%d kept_bytes_max=%d",
                number, self.hindmost(number), self._bytes[number], KEPT_BYTES_MAX,
            )  # fmt: skip

    def move(self, number: int, reader: str, position: int | None) -> bool:
        """Note where a reader is, or (None) that it is no more; False where there are too many.

        A place is never moved back: what was passed may be gone.
        """
        readers = self._readers.get(number, {})
        if position is None:
            self._cursor.execute(_REMOVE, (number, reader))
            readers.pop(reader, None)
            if not readers:
                self._readers.pop(number, None)
            return True
        if reader not in readers and len(readers) >= READERS_MAX:
            return False
        at = readers.get(reader, 0)
        if at != LOST and position != LOST:
            position = max(position, at)
        elif at == LOST:
            position = LOST
        self._cursor.execute(_SET, (number, reader, position))
        self._readers.setdefault(number, {})[reader] = position
        self._bytes.setdefault(number, 0)
        return True

    def sweep(self, number: int, count: int) -> bool:
        """Remove some of what all readers have passed; True while there may be more."""
        base = number << POSITION_BITS
        self._cursor.execute(_SWEEP, (base, base + self._passed(number), count))
        swept = self._cursor.connection.changes()
        if swept:
            self._bytes[number] = self._size(number)
        return swept == count

    def forget(self, number: int) -> None:
        """The fragment is gone."""
        self._readers.pop(number, None)
        self._bytes.pop(number, None)

    def _passed(self, number: int) -> int:
        """Up to where all readers have read."""
        places = [at for at in self._readers.get(number, {}).values() if at != LOST]
        return min(places, default=POSITION_MAX)

    def _size(self, number: int) -> int:
        base = number << POSITION_BITS
        return cast(int, self._cursor.execute(_SIZE, (base, base + POSITION_MAX)).get)
