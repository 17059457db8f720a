"""Who reads a store's fragments in bulk, for operators: where each reader is, and what it costs.

Named readers have a cursor, and messages are kept for the one that is furthest behind; a reader
that consumes has a record of what is reserved for it. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import apsw

from partibus.broker.consuming import NOTE, read_consumer
from partibus.broker.records import POSITION_BITS, POSITION_MAX, State
from partibus.store.cursors import LOST, Cursors

# Readers that one store tells of.
LISTED_MAX = 5_000
# Scheduled messages that are stepped over on the way to the oldest one that is there.
_STEPS_MAX = 64

_CONSUMERS = f"""
    SELECT fragment.number, session_state.state, session_state.updated_ms
    FROM fragment JOIN session_state
      ON session_state.number = fragment.number AND session_state.session = '{NOTE}'
    ORDER BY fragment.number LIMIT {LISTED_MAX}"""  # noqa: S608 - a name of this program
_KEPT_AFTER = "SELECT enqueued_ms FROM kept WHERE position > ? AND position <= ? LIMIT 1"
_AFTER = f"""
    SELECT enqueued_ms, state FROM message WHERE position > ? AND position <= ?
    ORDER BY position LIMIT {_STEPS_MAX}"""  # noqa: S608 - a number of this program


class ReaderPlace(NamedTuple):
    """One reader of one fragment."""

    number: int
    reader: str
    consumes: bool
    # Up to which position it has read, or LOST; of one that consumes: with how many it is done.
    place: int
    # When the oldest message arrived that it has not passed; 0 where there is none.
    oldest_ms: int
    # What is kept beyond completion on account of this reader: the one furthest behind.
    kept_bytes: int = 0
    # What is reserved for a reader that consumes, since when, and its epoch.
    reserved: int = 0
    since_ms: int = 0
    epoch: int = 0


def list_readers(cursor: apsw.Cursor, cursors: Cursors) -> list[ReaderPlace]:
    """All readers of a store's fragments. For the thread that owns the store."""
    found: list[ReaderPlace] = []
    for number in cursors.numbers():
        places = cursors.of(number)
        behind = cursors.hindmost(number)
        for reader, place in places.items():
            kept = cursors.kept_bytes(number) if reader == behind else 0
            oldest_ms = 0 if place == LOST else _oldest_ms(cursor, number, place)
            found.append(ReaderPlace(number, reader, False, place, oldest_ms, kept))
        if len(found) >= LISTED_MAX:
            break
    rows: Any = cursor.execute(_CONSUMERS).fetchall()
    for number, content, updated_ms in rows:
        found.append(_consumer(number, content, updated_ms))
        batches = read_consumer(content).batches
        if batches:
            first = batches[0].runs[0][0]
            found[-1] = found[-1]._replace(oldest_ms=_oldest_ms(cursor, number, first - 1))
    return found[:LISTED_MAX]


def places(
    number: int, readers: Mapping[str, int], notes: Mapping[str, tuple[bytes, int]]
) -> list[ReaderPlace]:
    """The readers of a fragment that is kept in memory, where nothing is kept beyond its time."""
    found = [ReaderPlace(number, name, False, at, 0) for name, at in readers.items()]
    if NOTE in notes:
        found.append(_consumer(number, *notes[NOTE]))
    return found


def _consumer(number: int, content: bytes, updated_ms: int) -> ReaderPlace:
    """What the record of a reader that consumes says."""
    consumer = read_consumer(content)
    return ReaderPlace(
        number, consumer.reader, True, consumer.done, 0,
        reserved=consumer.reserved, since_ms=updated_ms, epoch=consumer.epoch,
    )  # fmt: skip


def _oldest_ms(cursor: apsw.Cursor, number: int, place: int) -> int:
    base = number << POSITION_BITS
    bounds = base + place, base + POSITION_MAX
    times = []
    kept = cursor.execute(_KEPT_AFTER, bounds).get
    if kept is not None:
        times.append(cast(int, kept))
    rows: Any = cursor.execute(_AFTER, bounds).fetchall()
    times += [enqueued_ms for enqueued_ms, state in rows if state != State.SCHEDULED][:1]
    return min(times, default=0)
