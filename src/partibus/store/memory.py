"""A store in memory, for tests and for namespaces that need not outlive their process.

It keeps copies, as a file would: what the caller does to an entry after a commit is not seen
until it is committed too. Nothing here is durable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice

from partibus.broker.appending import added_entries
from partibus.broker.records import (
    Bucket,
    Changes,
    Counters,
    Digest,
    Entry,
    FragmentKey,
    FragmentSummary,
    Head,
    Moment,
    State,
    SubQueue,
)
from partibus.store import StoreError
from partibus.store.readers import ReaderPlace, places

# The bits below the partition id in a sequence number.
SEQUENCE_BITS = 48
# Positions of removed entries stay in the order list until they are as many as the others.
_STALE_MIN = 64


class _Fragment:
    __slots__ = (
        "base", "counters", "entries", "has_expiring", "has_scheduled", "key", "last", "marks",
        "order", "outbox", "produced", "readers", "stale", "states",
    )  # fmt: skip

    def __init__(self, key: FragmentKey) -> None:
        self.key = key
        self.counters = Counters()
        self.entries: dict[int, Entry] = {}
        # Every position ever added and not yet swept, ascending.
        self.order: list[int] = []
        self.stale = 0
        # Positions are never used again, so each one added is higher than all before, but for
        # scheduled entries whose numbers were reserved.
        self.last = 0
        # The states of sessions, and when they were set.
        self.states: dict[str, tuple[bytes, int]] = {}
        self.produced: dict[str, tuple[int, int]] = {}
        self.readers: dict[str, int] = {}
        # Where entries go (of a transfer queue), and up to where entries came (of any other).
        self.outbox: dict[int, FragmentKey] = {}
        self.marks: dict[FragmentKey, int] = {}
        # What is added to a position to get the sequence number, but for dead letters.
        self.base = key.partition << SEQUENCE_BITS
        # Whether there ever was one: most fragments need not be looked through.
        self.has_scheduled = False
        self.has_expiring = False

    def active(self, after: int) -> Iterator[Entry]:
        """Active entries with position > after, in order."""
        for index in range(bisect_right(self.order, after), len(self.order)):
            entry = self.entries.get(self.order[index])
            if entry is not None and entry.state == State.ACTIVE:
                yield entry

    def keep(self, entry: Entry) -> None:
        self.entries[entry.position] = duplicate(entry)
        self.note(entry)

    def note(self, entry: Entry) -> None:
        self.has_scheduled |= entry.state == State.SCHEDULED
        self.has_expiring |= entry.expires_ms > 0

    def by_sequence(self, sequence: int) -> Iterable[Entry]:
        """Entries with this sequence number or a higher one, in the order of these."""
        if self.key.subqueue != SubQueue.ACTIVE:
            found = [each for each in self.entries.values() if each.sequence >= sequence]
            yield from sorted(found, key=lambda each: each.sequence)
            return
        for index in range(bisect_left(self.order, sequence - self.base), len(self.order)):
            entry = self.entries.get(self.order[index])
            if entry is not None:
                yield entry

    def remove(self, positions: list[int]) -> None:
        for position in positions:
            if self.entries.pop(position, None) is not None:
                self.stale += 1
                self.outbox.pop(position, None)
        if self.stale > _STALE_MIN and self.stale > len(self.entries):
            self.order = sorted(self.entries)
            self.stale = 0


class MemoryStore:
    """Fragments in dictionaries, behind the same interface as a file."""

    def __init__(self) -> None:
        self._fragments: dict[int, _Fragment] = {}
        self._history: dict[Bucket, dict[Digest, int]] = {}
        self._closed = False

    def fragments(self) -> list[FragmentSummary]:
        """All fragments in this store, from their counter rows alone."""
        self._check_open()
        return [
            FragmentSummary(number, fragment.key, fragment.counters.copy())
            for number, fragment in sorted(self._fragments.items())
        ]

    def commit(self, batch: list[Changes]) -> None:
        """Keep all of these changes; an assertion that fails leaves everything as it was."""
        self._check_open()
        self._check(batch)
        for changes in batch:
            if changes.created:
                self._fragments[changes.number] = _Fragment(changes.key)
            fragment = self._fragments[changes.number]
            fragment.counters = changes.counters.copy()
            for entry in added_entries(changes, SEQUENCE_BITS):
                fragment.keep(entry)
                if entry.position > fragment.last:
                    fragment.order.append(entry.position)
                    fragment.last = entry.position
                else:
                    insort(fragment.order, entry.position)
            for entry in changes.updated:
                _change(fragment.entries[entry.position], entry)
                fragment.note(entry)
            for entry in changes.rewritten:
                fragment.keep(entry)
            fragment.outbox.update(changes.outbox)
            fragment.marks.update(changes.marks)
            fragment.produced.update(changes.produced)
            fragment.remove(changes.removed)
            for session, (state, at_ms) in changes.states.items():
                if state is None:
                    fragment.states.pop(session, None)
                else:
                    fragment.states[session] = state, at_ms
            for digest, at_ms, bucket in changes.sighted:
                self._history.setdefault(bucket, {})[digest] = at_ms

    def scan(self, number: int, after: int, count: int, size: int) -> list[Entry]:
        """Active entries with position > after, in order, within `count` and `size`."""
        self._check_open()
        fragment = self._fragments.get(number)
        return _within(fragment.active(after), count, size) if fragment else []

    def heads(self, number: int, after: int, count: int) -> tuple[list[Head], int]:
        """The sessions of the next active entries, and the last place looked at (0: the end)."""
        self._check_open()
        fragment = self._fragments.get(number)
        looked_at = list(islice(fragment.active(after), count)) if fragment else []
        found: dict[str, Head] = {}
        for entry in looked_at:
            if entry.session is not None and entry.session not in found:
                found[entry.session] = Head(entry.position, entry.session, entry.enqueued_ms)
        return list(found.values()), looked_at[-1].position if len(looked_at) == count else 0

    def scan_session(
        self, number: int, session: str, after: int, count: int, size: int
    ) -> list[Entry]:
        """Active entries of a session with position > after, in order."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return []
        of_session = (entry for entry in fragment.active(after) if entry.session == session)
        return _within(of_session, count, size)

    def session_state(self, number: int, session: str) -> bytes | None:
        """What a session keeps; None where it keeps nothing."""
        self._check_open()
        fragment = self._fragments.get(number)
        return fragment.states.get(session, (None, 0))[0] if fragment else None

    def sessions(self, number: int, after: str | None, count: int, since_ms: int) -> list[str]:
        """Names of sessions, in order, from `after` on."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return []
        names = {name for name, (_, at_ms) in fragment.states.items() if at_ms > since_ms}
        if since_ms < 0:
            names |= {entry.session for entry in fragment.active(0) if entry.session is not None}
        # In the order of their bytes, as a file has them.
        ordered = sorted(names, key=str.encode)
        return [n for n in ordered if after is None or n.encode() > after.encode()][:count]

    def find(self, number: int, positions: list[int]) -> list[Entry]:
        """The entries at these positions, in any state, in order of position."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return []
        present = sorted(fragment.entries.keys() & set(positions))
        return [duplicate(fragment.entries[position]) for position in present]

    def browse(
        self, number: int, sequence: int, count: int, size: int, session: str | None = None
    ) -> list[Entry]:
        """Entries with this sequence number or a higher one, in that order, but for reserved."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return []
        found: list[Entry] = []
        gathered = 0
        for entry in fragment.by_sequence(sequence):
            if len(found) >= count or (found and gathered >= size):
                break
            if entry.state != State.RESERVED and session in (None, entry.session):
                found.append(duplicate(entry))
                gathered += entry.size
        return found

    def find_sequences(self, number: int, sequences: list[int]) -> list[Entry]:
        """The entries with these sequence numbers, in any state, in order of position."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return []
        wanted = set(sequences)
        if fragment.key.subqueue == SubQueue.ACTIVE:
            return self.find(number, [each - fragment.base for each in wanted])
        found = [entry for entry in fragment.entries.values() if entry.sequence in wanted]
        return [duplicate(entry) for entry in sorted(found, key=lambda e: e.position)]

    def due(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When scheduled entries become active: after one moment, up to a time."""
        self._check_open()
        found = (
            Moment(entry.due_ms, number, entry.position)
            for number, fragment in self._fragments.items()
            if fragment.has_scheduled
            for entry in fragment.entries.values()
            if entry.state == State.SCHEDULED and 0 < entry.due_ms <= until_ms
        )
        return nsmallest(count, (moment for moment in found if moment > after))

    def expiring(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When entries expire, in all fragments and states: after one moment, up to a time."""
        self._check_open()
        found = (
            Moment(entry.expires_ms, number, entry.position)
            for number, fragment in self._fragments.items()
            if fragment.has_expiring
            for entry in fragment.entries.values()
            if entry.expires_ms and entry.expires_ms <= until_ms
        )
        return nsmallest(count, (moment for moment in found if moment > after))

    def sighted(self, digests: list[Digest], since_ms: int) -> dict[Digest, int]:
        """Which of these were sighted after a time, and when."""
        self._check_open()
        found: dict[Digest, int] = {}
        for sightings in self._history.values():
            for digest in digests:
                at_ms = sightings.get(digest, since_ms)
                if at_ms > since_ms:
                    found[digest] = max(at_ms, found.get(digest, at_ms))
        return found

    def forget(self, now_ms: int) -> bool:
        """Drop one bucket that no window reaches any more; True if there was one."""
        self._check_open()
        old = next((each for each in self._history if each.forgotten_ms <= now_ms), None)
        if old is not None:
            del self._history[old]
        return old is not None

    def destinations(self, number: int, positions: list[int]) -> dict[int, FragmentKey]:
        """Where entries of a transfer queue go, by their positions."""
        self._check_open()
        fragment = self._fragments.get(number)
        outbox = fragment.outbox if fragment else {}
        return {each: outbox[each] for each in positions if each in outbox}

    def marks(self, number: int) -> dict[FragmentKey, int]:
        """Up to which position a fragment has taken messages from each transfer queue."""
        self._check_open()
        fragment = self._fragments.get(number)
        return dict(fragment.marks) if fragment else {}

    def produced(self, number: int, writer: str) -> tuple[int, int] | None:
        """The last batch of a bulk writer, and how many messages of it are published."""
        self._check_open()
        fragment = self._fragments.get(number)
        return fragment.produced.get(writer) if fragment else None

    def move_cursor(self, number: int, reader: str, position: int | None) -> bool:
        """Note where a named reader is. Nothing is kept: only files are read in bulk."""
        self._check_open()
        readers = self._fragments[number].readers
        at = readers.pop(reader, 0)
        if position is not None:
            readers[reader] = max(position, at)
        return True

    def cursors(self, number: int) -> dict[str, int]:
        """Up to where the named readers of a fragment have read."""
        self._check_open()
        fragment = self._fragments.get(number)
        return dict(fragment.readers) if fragment else {}

    def readers(self) -> list[ReaderPlace]:
        """All bulk readers of this store's fragments."""
        known = self._fragments.items()
        return [at for key, each in known for at in places(key, each.readers, each.states)]

    def sweep(self, number: int, count: int) -> bool:
        """Nothing is kept."""
        return False

    def drop(self, number: int, count: int) -> bool:
        """Remove up to `count` entries of a fragment; True once all of it is gone."""
        self._check_open()
        fragment = self._fragments.get(number)
        if fragment is None:
            return True
        fragment.remove(sorted(fragment.entries)[:count])
        if fragment.entries:
            return False
        del self._fragments[number]
        return True

    def trim(self) -> bool:
        """Memory is given back as entries go."""
        return False

    def close(self) -> None:
        """Give the store up."""
        self._closed = True

    def _check(self, batch: list[Changes]) -> None:
        keys = {fragment.key for fragment in self._fragments.values()}
        for changes in batch:
            fragment = self._fragments.get(changes.number)
            assert (fragment is None) == changes.created, f"fragment {changes.number}"
            assert not changes.created or changes.key not in keys, f"fragment {changes.key}"
            keys.add(changes.key)
            present = fragment.entries if fragment else {}
            last = fragment.last if fragment else 0
            for entry in added_entries(changes, SEQUENCE_BITS):
                is_reserved = entry.state == State.SCHEDULED and entry.position not in present
                assert is_reserved or entry.position > last, f"{entry.position} after {last}"
                last = max(last, entry.position)
            added = {entry.position for entry in changes.added}
            changed = changes.updated + changes.rewritten
            assert all(e.position in present or e.position in added for e in changed)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("this store was closed")


def _within(entries: Iterator[Entry], count: int, size: int) -> list[Entry]:
    found: list[Entry] = []
    gathered = 0
    for entry in entries:
        if len(found) >= count or (found and gathered >= size):
            break
        found.append(duplicate(entry))
        gathered += entry.size
    return found


def duplicate(entry: Entry) -> Entry:
    """The entry as a store keeps it: everything but its lock."""
    return Entry(
        entry.position, entry.sequence, entry.bare, entry.kept, entry.kept_count,
        entry.enqueued_ms, entry.expires_ms, entry.deliveries, entry.state, entry.session,
        entry.due_ms, entry.origin, entry.hops, entry.source,
    )  # fmt: skip


def _change(kept: Entry, entry: Entry) -> None:
    kept.enqueued_ms = entry.enqueued_ms
    kept.expires_ms = entry.expires_ms
    kept.deliveries = entry.deliveries
    kept.state = entry.state
    kept.due_ms = entry.due_ms
