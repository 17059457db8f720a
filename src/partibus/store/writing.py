"""Turns the changes of one commit into few statements.

Rows of all fragments are gathered first and written together, contents in bundles. Whether the
statements hold is decided by whoever calls COMMIT; this module neither begins nor ends anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import apsw

from partibus.broker.blocks import Block
from partibus.broker.records import (
    COUNTER_FIELDS,
    POSITION_BITS,
    Changes,
    Copy,
    Entry,
    SubQueue,
)
from partibus.store import history, statements
from partibus.store.schema import BUNDLE_BYTES_MAX, BUNDLE_MESSAGES_MAX
from partibus.store.statements import ROWS_PER_STATEMENT, Rows

# The bits below the partition id in a sequence number.
SEQUENCE_BITS = 48

# Runs of consecutive positions are deleted as ranges, two statements each; what is left over
# when there are more runs than this, or in runs that are shorter, goes as one list.
RUNS_MAX = 4
RUN_LENGTH_MIN = 16

# What a column holds here.
Value = int | str | bytes | None


def write(cursor: apsw.Cursor, batch: list[Changes]) -> None:
    """Execute everything that the changes say, in the order added, updated, removed."""
    gathered = _gather(batch)
    gathered.write(cursor)
    for changes in batch:
        if changes.states or changes.produced:
            write_kept(cursor, changes)
        if changes.marks or changes.key.subqueue == SubQueue.TRANSFER:
            write_transfers(cursor, changes)
    if gathered.removed:
        remove(cursor, gathered.removed)
    if gathered.copies_removed:
        remove_copies(cursor, gathered.copies_removed)
    write_counters(cursor, batch)
    if any(changes.sighted for changes in batch):
        history.write(cursor, batch)


def _gather(batch: list[Changes]) -> _Gathered:
    gathered = _Gathered()
    for changes in batch:
        # Copies in other fragments must know where the content lies.
        if changes.published:
            gathered.publish(changes)
    for changes in batch:
        base = changes.number << POSITION_BITS
        if changes.added:
            (gathered.add_copies if changes.shares else gathered.add)(changes)
        for block in changes.blocks:
            gathered.append(base, block)
        for entry in changes.updated:
            gathered.update(base, entry)
        for entry in changes.rewritten:
            gathered.update(base, entry)
            gathered.rewrite(base, entry)
        removed = gathered.copies_removed if changes.shares else gathered.removed
        removed.extend([base + position for position in changes.removed])
    return gathered


class _Gathered:
    """Rows to be written, flat: the values of one row after those of another."""

    __slots__ = (
        "blocks", "bodies", "copies", "copies_removed", "full", "plain", "removed", "rewritten",
        "shares", "updated",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bodies: list[Value] = []
        # Written in bulk, each with the key of its first message.
        self.blocks: list[tuple[int, Block]] = []
        self.plain: list[Value] = []
        self.full: list[Value] = []
        self.copies: list[Value] = []
        self.shares: list[Value] = []
        # By key: what an entry became last is what counts.
        self.updated: dict[int, tuple[Value, ...]] = {}
        self.rewritten: list[tuple[Value, ...]] = []
        # Keys of what goes: with contents of its own, and with contents that others may share.
        self.removed: list[int] = []
        self.copies_removed: list[int] = []

    def append(self, base: int, block: Block) -> None:
        first = base + block.position
        for at, count, content in block.bundles():
            self.bodies += (first + at, count, content)
        self.blocks.append((first, block))

    def add(self, changes: Changes) -> None:
        base = changes.number << POSITION_BITS
        sequence_base = changes.key.partition << SEQUENCE_BITS
        # Dead letters are looked for by number, so theirs is always written.
        follows = changes.key.subqueue == SubQueue.ACTIVE
        plain, full = self.plain, self.full
        pieces: list[bytes] = []
        body = offset = count = 0
        for entry in changes.added:
            key = base + entry.position
            kept_length = len(entry.kept)
            length = kept_length + len(entry.bare)
            if (
                key != body + count
                or count == BUNDLE_MESSAGES_MAX
                or offset + length > BUNDLE_BYTES_MAX
            ):
                if count:
                    self.bodies += (body, count, b"".join(pieces))
                body, offset, count, pieces = key, 0, 0, []
            if kept_length:
                pieces.append(entry.kept)
            pieces.append(entry.bare)
            row = (key, body, offset, length, kept_length, entry.kept_count, entry.enqueued_ms)
            sequence = None if entry.sequence == sequence_base + entry.position else entry.sequence
            if not follows:
                sequence = entry.sequence
            if sequence is None and _is_plain(entry):
                plain += row
            else:
                full += row
                full += _rare(entry, sequence)
            offset += length
            count += 1
        self.bodies += (body, count, b"".join(pieces))

    def publish(self, changes: Changes) -> None:
        """Contents that copies in other fragments point to, each once."""
        base = changes.number << POSITION_BITS
        pieces: list[bytes] = []
        body = offset = count = copies = 0
        for each in changes.published:
            length = len(each.kept) + len(each.bare)
            is_full = count == BUNDLE_MESSAGES_MAX or offset + length > BUNDLE_BYTES_MAX
            if not count or is_full:
                if count:
                    self._share(body, count, copies, pieces)
                body, offset, count, copies, pieces = -(base + each.position), 0, 0, 0, []
            each.body, each.offset = body, offset
            pieces += (each.kept, each.bare)
            offset += length
            count += 1
            copies += len(each.copies)
        self._share(body, count, copies, pieces)

    def _share(self, body: int, count: int, copies: int, pieces: list[bytes]) -> None:
        self.bodies += (body, count, b"".join(pieces))
        self.shares += (body, copies)

    def add_copies(self, changes: Changes) -> None:
        """Rows that point to what was published by the same commit."""
        base = changes.number << POSITION_BITS
        copies = self.copies
        for entry in changes.added:
            assert isinstance(entry, Copy)
            source = entry.publication
            length = len(entry.kept) + len(entry.bare)
            whole = len(source.kept) + len(source.bare)
            changed = length - entry.shared
            content = (entry.kept + entry.bare)[:changed] if changed else None
            copies += (
                base + entry.position,
                source.body,
                source.offset + whole - entry.shared,
                length,
                len(entry.kept),
                entry.kept_count,
                entry.enqueued_ms,
                entry.expires_ms or None,
                entry.session,
                entry.origin,
                entry.hops or None,
                entry.source,
                content,
            )

    def update(self, base: int, entry: Entry) -> None:
        key = base + entry.position
        self.updated[key] = (
            key,
            entry.enqueued_ms,
            entry.deliveries,
            int(entry.state),
            entry.expires_ms or None,
            entry.due_ms or None,
        )

    def rewrite(self, base: int, entry: Entry) -> None:
        content = entry.kept + entry.bare
        key = base + entry.position
        self.rewritten.append((len(entry.kept), entry.kept_count, len(content), content, key))

    def write(self, cursor: apsw.Cursor) -> None:
        _execute_rows(cursor, statements.INSERT_BODIES, self.bodies)
        for first, block in self.blocks:
            times = (block.enqueued_ms, block.expires_ms or None)
            cursor.execute(statements.INSERT_BLOCK, (first, *times, apsw.carray(block.rows)))
        _execute_rows(cursor, statements.INSERT_PLAIN, self.plain)
        _execute_rows(cursor, statements.INSERT_FULL, self.full)
        _execute_rows(cursor, statements.INSERT_COPIES, self.copies)
        _execute_rows(cursor, statements.INSERT_SHARES, self.shares)
        if self.updated:
            before = cursor.connection.total_changes()
            flat = [value for row in self.updated.values() for value in row]
            _execute_rows(cursor, statements.UPDATE_MESSAGES, flat)
            found = cursor.connection.total_changes() - before
            assert found == len(self.updated), "an updated entry does not exist"
        for row in self.rewritten:
            cursor.execute(statements.REWRITE_MESSAGE, row)


def _is_plain(entry: Entry) -> bool:
    """Nothing about the entry needs one of the rare columns."""
    return not (
        entry.expires_ms
        or entry.deliveries
        or entry.state
        or entry.session is not None
        or entry.due_ms
        or entry.origin
        or entry.hops
        or entry.source is not None
    )


def _rare(entry: Entry, sequence: int | None) -> tuple[Value, ...]:
    # Zero is stored as nothing, so that the partial indexes leave it out.
    return (
        entry.deliveries,
        int(entry.state),
        entry.expires_ms or None,
        sequence,
        entry.session,
        entry.due_ms or None,
        entry.origin or None,
        entry.hops or None,
        entry.source,
    )


def write_kept(cursor: apsw.Cursor, changes: Changes) -> None:
    """Keep what sessions keep, and how far bulk writers have come. Rare: one row a statement."""
    for session, (state, at_ms) in changes.states.items():
        if state is None:
            cursor.execute(statements.CLEAR_STATE, (changes.number, session))
        else:
            cursor.execute(statements.SET_STATE, (changes.number, session, state, at_ms))
    for writer, (batch, published) in changes.produced.items():
        cursor.execute(statements.SET_PRODUCED, (changes.number, writer, batch, published))


def write_transfers(cursor: apsw.Cursor, changes: Changes) -> None:
    """Note where leaving messages go, forget those that have left, and what has arrived."""
    base = changes.number << POSITION_BITS
    rows: list[Value] = []
    for position, destination in changes.outbox.items():
        rows += (base + position, *destination)
    _execute_rows(cursor, statements.INSERT_OUTBOX, rows)
    if changes.removed:
        gone = array("q", [base + position for position in changes.removed])
        cursor.execute(statements.DELETE_OUTBOX, (apsw.carray(gone),))
    for source, high in changes.marks.items():
        cursor.execute(statements.SET_MARK, (changes.number, *source, high))


def _execute_rows(cursor: apsw.Cursor, rows: Rows, values: list[Value]) -> None:
    start = 0
    for size in ROWS_PER_STATEMENT:
        step = size * rows.width
        while len(values) - start >= step:
            chunk = values if len(values) == step else values[start : start + step]
            cursor.execute(rows.texts[size], chunk)
            start += step


def write_counters(cursor: apsw.Cursor, batch: list[Changes]) -> None:
    """Make the rows of new fragments, and bring those of the others up to date."""
    created: list[Value] = []
    for changes in batch:
        counters = [getattr(changes.counters, name) for name in COUNTER_FIELDS]
        if changes.created:
            created += (changes.number, *changes.key, *counters)
            continue
        counters.append(changes.number)
        cursor.execute(statements.UPDATE_FRAGMENT, counters)
        assert cursor.connection.changes() == 1, f"fragment {changes.number} does not exist"
    _execute_rows(cursor, statements.INSERT_FRAGMENTS, created)


def remove(cursor: apsw.Cursor, keys: list[int]) -> None:
    """Delete the messages at these keys, and the bundles that are empty then."""
    runs, scattered = _runs_and_rest(keys)
    for run in runs:
        cursor.execute(statements.DELETE_RUN, run)
    if scattered:
        cursor.execute(statements.DELETE_SCATTERED, (apsw.carray(scattered),))
        cursor.execute(statements.DELETE_SCATTERED_BODIES, (apsw.carray(scattered),))
    for run in runs:
        cursor.execute(statements.DELETE_RUN_BODIES, run)


def remove_copies(cursor: apsw.Cursor, keys: list[int]) -> None:
    """Delete the copies at these keys, and the contents that nobody shares any more."""
    runs, scattered = _runs_and_rest(keys)
    for run in runs:
        cursor.execute(statements.COUNT_DOWN_RUN, run)
        cursor.execute(statements.DELETE_RUN, run)
    if scattered:
        cursor.execute(statements.COUNT_DOWN_SCATTERED, (apsw.carray(scattered),))
        cursor.execute(statements.DELETE_SCATTERED, (apsw.carray(scattered),))
    for statement in statements.DELETE_UNSHARED:
        cursor.execute(statement)


def _runs_and_rest(keys: list[int]) -> tuple[list[tuple[int, int]], array[int]]:
    """A few long runs of consecutive keys, and the others as a list."""
    runs = _runs(sorted(keys))
    scattered = array("q")
    if len(runs) > RUNS_MAX:
        for first, last in runs:
            if last - first < RUN_LENGTH_MIN:
                scattered.extend(range(first, last + 1))
        runs = [run for run in runs if run[1] - run[0] >= RUN_LENGTH_MIN]
    return runs, scattered


def _runs(keys: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending keys as (first, last) of each unbroken run."""
    runs: list[tuple[int, int]] = []
    first = last = -1
    for key in keys:
        if key == last + 1 and last >= 0:
            last = key
            continue
        if last >= 0 and key != last:
            runs.append((first, last))
        if key != last:
            first = last = key
    if last >= 0:
        runs.append((first, last))
    return runs
