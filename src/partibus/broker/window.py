"""The part of a fragment that is held in memory: its head.

Entries stand in order of position. What was taken out stands before everything still here, so an
entry that is given back goes before the rest. Behind the head there may be a gap: entries that
are only on disk, read in when the head runs low. A backlog of any length costs the same memory.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from partibus.broker.records import Entry

WINDOW_MESSAGES_MAX = 2048
WINDOW_BYTES_MAX = 2 * 1024 * 1024
# Below this much in memory the next part of the backlog is asked for.
WINDOW_MESSAGES_LOW = 1024
WINDOW_BYTES_LOW = 1024 * 1024
# Entries beside the content: objects, dict and list slots (measured 570 to 630 bytes).
ENTRY_OVERHEAD_BYTES = 600


class Window:
    """Ready entries in memory, and where the part on disk begins."""

    __slots__ = ("_ready", "_returned", "bytes", "gap_from", "gap_to")

    def __init__(self, gap_to: int) -> None:
        self._ready: deque[Entry] = deque()
        self._returned: list[tuple[int, Entry]] = []
        # Memory that the entries here take.
        self.bytes = 0
        # Entries with gap_from < position <= gap_to are on disk only.
        self.gap_from = 0
        self.gap_to = gap_to

    def __len__(self) -> int:
        return len(self._ready) + len(self._returned)

    @property
    def has_gap(self) -> bool:
        """Whether there may be entries on disk that are not in memory."""
        return self.gap_to > self.gap_from

    def is_on_disk_only(self, entry: Entry) -> bool:
        """Whether an active entry was left to the disk."""
        return self.gap_from < entry.position <= self.gap_to

    @property
    def wants_more(self) -> bool:
        """Whether the next part of the backlog should be read in."""
        return (
            self.gap_to > self.gap_from
            and len(self._ready) < WINDOW_MESSAGES_LOW
            # A few large messages fill the window, too: what was read then would find no room.
            and self.bytes < WINDOW_BYTES_LOW
        )

    def arrived(self, entries: list[Entry]) -> None:
        """Newly committed entries; what does not fit is left to the disk."""
        last = entries[-1].position
        if self.gap_to > self.gap_from:
            self.gap_to = last
            return
        self._append(entries)
        held = self._ready[-1].position if self._ready else entries[0].position - 1
        self.gap_from = max(held, self.gap_from)
        self.gap_to = max(last, self.gap_to)

    def left(self, after: int, last: int) -> None:
        """Newly committed entries with after < position <= last were left to the disk."""
        if self.gap_to <= self.gap_from:
            self.gap_from = max(self.gap_from, after)
        self.gap_to = max(self.gap_to, last)

    def loaded(self, entries: list[Entry], complete: bool, last: int = 0) -> None:
        """What was read from the gap's beginning; `complete` where nothing lies behind it.

        `last` is the position up to which was read, where not all that was read is wanted.
        """
        whole = self._append(entries)
        if self._ready:
            self.gap_from = max(self.gap_from, self._ready[-1].position)
        if whole:
            self.gap_from = self.gap_to if complete else max(self.gap_from, last)

    def _append(self, entries: list[Entry]) -> bool:
        ready = self._ready
        size = self.bytes
        count = len(ready)
        for entry in entries:
            if count >= WINDOW_MESSAGES_MAX or (size >= WINDOW_BYTES_MAX and count > 0):
                self.bytes = size
                return False
            ready.append(entry)
            count += 1
            size += len(entry.bare) + ENTRY_OVERHEAD_BYTES
        self.bytes = size
        return True

    def give_back(self, entry: Entry) -> None:
        """An entry taken earlier stands at its old place again."""
        heappush(self._returned, (entry.position, entry))
        self.bytes += len(entry.bare) + ENTRY_OVERHEAD_BYTES

    def pop(self) -> Entry | None:
        """The entry that stands first; None where memory holds none."""
        if self._returned:
            entry = heappop(self._returned)[1]
        elif self._ready:
            entry = self._ready.popleft()
        else:
            return None
        self.bytes -= len(entry.bare) + ENTRY_OVERHEAD_BYTES
        return entry

    def take_expired(self, now_ms: int) -> list[Entry]:
        """The entries here whose time to live is over; they are gone from here."""
        gone = [entry for entry in self._ready if 0 < entry.expires_ms <= now_ms]
        if gone:
            self._ready = deque(e for e in self._ready if not 0 < e.expires_ms <= now_ms)
        over = [pair for pair in self._returned if 0 < pair[1].expires_ms <= now_ms]
        if over:
            self._returned = [p for p in self._returned if not 0 < p[1].expires_ms <= now_ms]
            heapify(self._returned)
            gone += [entry for _, entry in over]
        self.bytes -= sum(len(entry.bare) + ENTRY_OVERHEAD_BYTES for entry in gone)
        return gone

    def evict(self) -> None:
        """Leave the entries that stand in order to the disk: nobody is asking for them."""
        if not self._ready:
            return
        self.gap_from = self._ready[0].position - 1
        self._ready.clear()
        self.bytes = sum(len(e.bare) + ENTRY_OVERHEAD_BYTES for _, e in self._returned)
