"""Turns rows of a store's file back into entries.

The rows of many messages come as one JSON text, because each row stepped one by one would give
the interpreter lock away and wait for it again; each bundle of contents is read once. Nothing is
written here.
"""

from __future__ import annotations

from array import array
from typing import Any, cast

import apsw
import msgspec

from partibus.broker.records import POSITION_BITS, POSITION_MAX, Entry, FragmentKey, Head, Moment
from partibus.store import statements

# Where the columns of statements._as_json() stand.
_POSITION, _BODY, _OFFSET, _LENGTH = 0, 1, 2, 3
_RARE = len(statements.PLAIN_COLUMNS)
_SEQUENCE = _RARE + statements.RARE_COLUMNS.index("sequence")

# A row is the plain columns, then the rare ones where there are any; the bundle is a distance in
# plain rows only. JSON has numbers, text and null; which column holds which is known from the
# schema.
Row = list[Any]

_read_rows = msgspec.json.Decoder(list[Row]).decode
_read_moments = msgspec.json.Decoder(list[tuple[int, int]]).decode


def scan_rows(cursor: apsw.Cursor, number: int, after: int, count: int, size: int) -> list[Row]:
    """Rows of active messages after a position, up to a count and a size."""
    base = number << POSITION_BITS
    rows = _decode(cursor.execute(statements.SCAN, (base + after, base + POSITION_MAX, count)))
    return _within(rows, size)


def _within(rows: list[Row], size: int) -> list[Row]:
    """The first rows, up to the one with which their contents reach this size."""
    gathered = 0
    for index, row in enumerate(rows):
        gathered += row[_LENGTH]
        if gathered >= size:
            return rows[: index + 1]
    return rows


def session_rows(
    cursor: apsw.Cursor, number: int, session: str, after: int, count: int, size: int
) -> list[Row]:
    """Rows of a session's active messages after a position, up to a count and a size."""
    key = (number << POSITION_BITS) + after
    found = cursor.execute(statements.SCAN_SESSION, (number, session, key, count))
    return _within(_decode(found), size)


def heads(cursor: apsw.Cursor, number: int, after: int, count: int) -> tuple[list[Head], int]:
    """The sessions of the next active messages, and the last place looked at (0: the end)."""
    base = number << POSITION_BITS
    bounds = (base + after, base + POSITION_MAX, count)
    text, last, looked_at = cursor.execute(statements.SELECT_HEADS, bounds).fetchall()[0]
    assert isinstance(text, str)
    found = [Head(*row) for row in _read_rows(text) if row[1] is not None]
    found.sort()
    is_end = looked_at is None or cast(int, looked_at) < count
    return found, 0 if is_end else cast(int, last)


def session_names(
    cursor: apsw.Cursor, number: int, after: str | None, count: int, since_ms: int
) -> list[str]:
    """Names of sessions in order, those with messages or a state, or with a new state only."""
    bounds = (number, after or "", count, after is None)
    text = cursor.execute(statements.SELECT_STATES, (*bounds, since_ms)).get
    assert isinstance(text, str)
    with_state = msgspec.json.decode(text, type=list[str])
    if since_ms >= 0:
        return with_state
    names = set(with_state)
    while True:
        text = cursor.execute(statements.SELECT_SESSIONS, bounds).get
        assert isinstance(text, str)
        found = msgspec.json.decode(text, type=list[tuple[str, int]])
        names.update(name for name, is_active in found if is_active)
        if len(found) < count or len(names) - len(with_state) >= count:
            # In the order of their bytes, as the file has them.
            return sorted(names, key=str.encode)[:count]
        bounds = (number, found[-1][0], count, False)


def find_rows(cursor: apsw.Cursor, number: int, positions: list[int]) -> list[Row]:
    """Rows of the messages at these positions."""
    base = number << POSITION_BITS
    keys = array("q", [base + position for position in positions])
    return _decode(cursor.execute(statements.FIND, (apsw.carray(keys),)))


def destinations(cursor: apsw.Cursor, number: int, positions: list[int]) -> dict[int, FragmentKey]:
    """Where the messages at these positions of a transfer queue go."""
    base = number << POSITION_BITS
    keys = array("q", [base + position for position in positions])
    found = cursor.execute(statements.SELECT_OUTBOX, (apsw.carray(keys),)).fetchall()
    rows: list[tuple[int, ...]] = cast(Any, found)
    return {row[0] - base: FragmentKey(*row[1:]) for row in rows}


def browse_rows(
    cursor: apsw.Cursor, number: int, position: int, count: int, size: int, session: str | None
) -> list[Row]:
    """Rows in any state from a position on, up to a count and a size."""
    base = number << POSITION_BITS
    if session is None:
        found = cursor.execute(statements.BROWSE, (base + position, base + POSITION_MAX, count))
    else:
        values = (number, session, base + position, count)
        found = cursor.execute(statements.BROWSE_SESSION, values)
    return _within(_decode(found), size)


def browse_dead_rows(
    cursor: apsw.Cursor, number: int, sequence: int, count: int, size: int, session: str | None
) -> list[Row]:
    """Rows of a dead-letter sub-queue from a sequence number on, in the order of these."""
    if session is None:
        found = cursor.execute(statements.BROWSE_DEAD, (number, sequence, count))
    else:
        found = cursor.execute(statements.BROWSE_DEAD_SESSION, (number, session, sequence, count))
    return _within(sorted(_decode(found), key=_sequence), size)


def find_dead_rows(cursor: apsw.Cursor, number: int, sequences: list[int]) -> list[Row]:
    """Rows of a dead-letter sub-queue with these sequence numbers."""
    wanted = apsw.carray(array("q", sequences))
    return _decode(cursor.execute(statements.FIND_DEAD, (number, wanted)))


def moments(
    cursor: apsw.Cursor, statement: str, after: Moment, until_ms: int, count: int
) -> list[Moment]:
    """What a statement of statements._moments() finds after one moment, up to a time."""
    key = after.number << POSITION_BITS | after.position
    text = cursor.execute(statement, (after.at_ms, key, until_ms, count)).get
    assert isinstance(text, str)
    return [
        Moment(at_ms, key >> POSITION_BITS, key & POSITION_MAX)
        for at_ms, key in _read_moments(text)
    ]


def _sequence(row: Row) -> int:
    sequence: int = row[_SEQUENCE]
    return sequence


def _decode(cursor: apsw.Cursor) -> list[Row]:
    plain, full = cursor.fetchall()[0]
    assert isinstance(plain, str)
    assert isinstance(full, str)
    rows = _read_rows(plain)
    rest = _read_rows(full)
    if rest:
        rows += rest
    # Each list is in order as it was read; sorting says so rather than relying on it.
    rows.sort(key=_position)
    return rows


def _position(row: Row) -> int:
    position: int = row[_POSITION]
    return position


def entries(cursor: apsw.Cursor, number: int, rows: list[Row], sequence_base: int) -> list[Entry]:
    """The entries of these rows, with their contents."""
    base = number << POSITION_BITS
    contents = _contents(cursor, base, rows)
    found: list[Entry] = []
    for row in rows:
        position, body, offset, length, kept_length, kept_count, enqueued_ms = row[:_RARE]
        content = contents[base + position - body if len(row) == _RARE else body]
        start = offset + kept_length
        entry = Entry(
            position,
            sequence_base + position,
            content[start : offset + length],
            content[offset:start] if kept_length else b"",
            kept_count,
            enqueued_ms,
        )
        if len(row) > _RARE:
            _complete(entry, row[_RARE:-1])
            if row[-1]:
                _take_own_content(cursor, base, row, content, entry)
        found.append(entry)
    return found


def _complete(entry: Entry, rare: Row) -> None:
    deliveries, state, expires_ms, sequence, session, due_ms, origin, hops, source = rare
    entry.deliveries = deliveries
    entry.state = state
    entry.expires_ms = expires_ms or 0
    if sequence is not None:
        entry.sequence = sequence
    entry.session = session
    entry.due_ms = due_ms or 0
    entry.origin = origin or 0
    entry.hops = hops or 0
    entry.source = source


def _take_own_content(
    cursor: apsw.Cursor, base: int, row: Row, bundle: bytes, entry: Entry
) -> None:
    """The message was changed: it begins with its own content, and ends with what is left."""
    own = cursor.execute(statements.SELECT_CONTENT, (base + row[_POSITION],)).get
    assert isinstance(own, bytes)
    start, kept_length = row[_OFFSET], row[_OFFSET + 2]
    content = own + bundle[start : start + row[_LENGTH] - len(own)]
    entry.kept, entry.bare = content[:kept_length], content[kept_length:]


def _contents(cursor: apsw.Cursor, base: int, rows: list[Row]) -> dict[int, bytes]:
    bodies = {
        base + row[_POSITION] - row[_BODY] if len(row) == _RARE else row[_BODY] for row in rows
    }
    if len(bodies) == 1:
        found = cursor.execute(statements.SELECT_BODY, tuple(bodies)).fetchall()
    elif bodies:
        keys = array("q", sorted(bodies))
        found = cursor.execute(statements.SELECT_BODIES, (apsw.carray(keys),)).fetchall()
    else:
        found = []
    contents: list[tuple[int, bytes]] = cast(Any, found)
    return dict(contents)
