"""The part of a fragment with sessions that is held in memory.

In memory are the sessions that somebody holds, or that wait for a commit, each with the next few
of its messages; and the oldest sessions that could be handed out, by name only. All others are on
disk behind a gap, as in a plain fragment, and are found by reading on from where the gap begins:
a million sessions cost the same memory as a thousand, and an accept reads no more for them.
Who may hold a session is decided in session_fragment.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from partibus.broker.records import Entry, Head
from partibus.broker.window import ENTRY_OVERHEAD_BYTES, Window

# Sessions that could be handed out, by name, per fragment.
AVAILABLE_SESSIONS_MAX = 2048
# Messages of one session that wait in memory.
SESSION_MESSAGES_MAX = 64
SESSION_BYTES_MAX = 256 * 1024


class Session:
    """One session in memory: who holds it, what was delivered, and what comes next."""

    __slots__ = (
        "behind",
        "changes",
        "holder",
        "id",
        "is_loading",
        "is_watched",
        "outstanding",
        "read_to",
        "ready",
        "ready_bytes",
        "returning",
        "since_ms",
        "state_size",
        "until_ms",
    )

    def __init__(self, id: str, read_to: int, behind: bool, since_ms: int = 0) -> None:
        self.id = id
        # Whoever has the lock, and until when; None: nobody.
        self.holder: object = None
        self.until_ms = 0
        # Whether its end stands among the fragment's deadlines.
        self.is_watched = False
        # Available messages up to `read_to` are here; where `behind`, there may be more on disk.
        self.ready: list[tuple[int, Entry]] = []
        self.ready_bytes = 0
        self.read_to = read_to
        self.behind = behind
        self.is_loading = False
        # The age of what was seen last; stands for what is on disk.
        self.since_ms = since_ms
        # Delivered and not settled, by position.
        self.outstanding: dict[int, Entry] = {}
        # Positions of messages that come back when their failed delivery is durable.
        self.returning: set[int] = set()
        # Changes that are not durable yet: until then the disk tells an old story.
        self.changes = 0
        # The bytes of its state; None: not known yet.
        self.state_size: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the disk knows all there is to know."""
        return (
            self.holder is None
            and not self.changes
            and not self.outstanding
            and not self.returning
            and not self.is_loading
        )

    @property
    def wants_more(self) -> bool:
        """Whether what comes next must be read from disk."""
        return self.behind and not self.ready and not self.is_loading

    @property
    def head(self) -> Head | None:
        """Its oldest available message, as far as memory knows."""
        if self.ready:
            position, entry = self.ready[0]
            return Head(position, self.id, entry.enqueued_ms)
        return Head(self.read_to + 1, self.id, self.since_ms) if self.behind else None

    def push(self, entry: Entry) -> int:
        """An available message; returns the memory it takes."""
        heappush(self.ready, (entry.position, entry))
        size = len(entry.bare) + ENTRY_OVERHEAD_BYTES
        self.ready_bytes += size
        return size

    def pop(self) -> Entry | None:
        """The message to be delivered next. One that is coming back goes before all others."""
        if not self.ready or self.returning:
            return None
        entry = heappop(self.ready)[1]
        self.ready_bytes -= len(entry.bare) + ENTRY_OVERHEAD_BYTES
        return entry

    def has_room(self) -> bool:
        """Whether more may wait in memory."""
        return len(self.ready) < SESSION_MESSAGES_MAX and self.ready_bytes < SESSION_BYTES_MAX


class Sessions(Window):
    """What is in memory of a fragment's sessions, in the place of a plain fragment's head.

    A session without a holder that has an available message at or before `gap_from` is in `by_id`
    or among the available ones; what lies behind is on disk only.
    """

    __slots__ = ("_available", "_heads", "_offered", "by_id", "stirred")

    def __init__(self, gap_to: int) -> None:
        super().__init__(gap_to)
        self.by_id: dict[str, Session] = {}
        # Held sessions that have something new to deliver. A dict as an ordered set.
        self.stirred: dict[str, None] = {}
        # In order of age; those being offered to somebody stand apart.
        self._available: list[Head] = []
        self._offered: dict[str, Head] = {}
        self._heads: dict[str, Head] = {}

    def __len__(self) -> int:
        return len(self.stirred) + len(self._available)

    @property
    def wants_more(self) -> bool:
        """Whoever waits for a session asks for more; nobody reads ahead."""
        return False

    # Sessions to be had -----------------------------------------------------------------------

    @property
    def first(self) -> Head | None:
        """The session whose available message is the oldest."""
        return self._available[0] if self._available else None

    @property
    def is_exhausted(self) -> bool:
        """Whether there may be sessions to be had, but only the disk knows them."""
        return not self._available and self.has_gap

    def offer(self) -> Head:
        """Take the first one out until it is accepted or put back."""
        head = self._available.pop(0)
        self._offered[head.session] = head
        return head

    def put_back(self, session: str) -> None:
        """It was offered and not accepted."""
        head = self._offered.pop(session, None)
        if head is not None:
            insort(self._available, head)

    def open(self, session_id: str) -> Session:
        """Bring a session to memory that is not there."""
        head = self._heads.pop(session_id, None)
        if head is None:
            # What it has, if anything, stands behind the gap.
            session = Session(session_id, self.gap_from, self.has_gap)
        else:
            if self._offered.pop(session_id, None) is None:
                del self._available[bisect_left(self._available, head)]
            session = Session(session_id, head.position - 1, True, head.enqueued_ms)
        self.by_id[session_id] = session
        return session

    def let_go(self, session: Session) -> bool:
        """Leave a session to the disk if it is there; True if somebody else may have it now."""
        if not session.is_idle or self.by_id.get(session.id) is not session:
            return False
        del self.by_id[session.id]
        self.stirred.pop(session.id, None)
        self.bytes -= session.ready_bytes
        head = session.head
        if head is not None:
            self._put(head)
        return head is not None

    def _put(self, head: Head) -> None:
        if head.session in self._heads or (self.has_gap and head.position > self.gap_from):
            return
        self._heads[head.session] = head
        insort(self._available, head)
        if len(self._heads) > AVAILABLE_SESSIONS_MAX and self._available:
            last = self._available.pop()
            del self._heads[last.session]
            self.gap_from = last.position - 1

    def heads_read(self, heads: list[Head], after: int, last: int, complete: bool) -> None:
        """Sessions read after the gap's beginning, up to a position, in order."""
        if after != self.gap_from:
            # The gap has grown meanwhile: it is read anew from where it begins now.
            return
        for head in heads:
            if head.session in self.by_id or head.session in self._heads:
                continue
            if len(self._heads) >= AVAILABLE_SESSIONS_MAX:
                self.gap_from = head.position - 1
                return
            self._heads[head.session] = head
            insort(self._available, head)
        self.gap_from = self.gap_to if complete else last

    # Messages ---------------------------------------------------------------------------------

    def arrived(self, entries: list[Entry]) -> None:
        """Newly committed messages: for sessions in memory, or a reason to name a session."""
        last = entries[-1].position
        had_gap = self.has_gap
        gap_from = last
        for entry in entries:
            session_id = entry.session
            if session_id is None:
                continue
            session = self.by_id.get(session_id)
            if session is not None:
                self._arrived_in(session, entry)
            elif had_gap or gap_from < last or session_id in self._heads:
                continue
            elif len(self._heads) >= AVAILABLE_SESSIONS_MAX:
                gap_from = entry.position - 1
            else:
                head = Head(entry.position, session_id, entry.enqueued_ms)
                self._heads[session_id] = head
                insort(self._available, head)
        if not had_gap:
            self.gap_from = gap_from
        self.gap_to = last

    def _arrived_in(self, session: Session, entry: Entry) -> None:
        if session.behind or not session.has_room():
            session.behind = True
        else:
            session.read_to = entry.position
            session.since_ms = entry.enqueued_ms
            self.bytes += session.push(entry)
        if session.holder is not None:
            self.stirred[session.id] = None

    def give_back(self, entry: Entry) -> None:
        """A message taken earlier is available again."""
        assert entry.session is not None
        session = self.by_id.get(entry.session)
        if session is None:
            self._put(Head(entry.position, entry.session, entry.enqueued_ms))
            return
        session.returning.discard(entry.position)
        if entry.position > session.read_to:
            # It was not taken through this session; it is read when its turn comes.
            session.behind = True
        else:
            self.bytes += session.push(entry)
        if session.holder is not None:
            self.stirred[session.id] = None

    def messages_read(
        self, session: Session, entries: list[Entry], last: int, complete: bool
    ) -> None:
        """The next messages of a session were read, up to a position; or all (`complete`)."""
        session.is_loading = False
        session.behind = not complete
        session.read_to = max(session.read_to, last)
        for entry in entries:
            session.since_ms = entry.enqueued_ms
            self.bytes += session.push(entry)
        if session.holder is not None:
            self.stirred[session.id] = None

    def take(self, session: Session, count: int) -> list[Entry]:
        """The next messages of a session, in order."""
        taken: list[Entry] = []
        before = session.ready_bytes
        while len(taken) < count and (entry := session.pop()) is not None:
            taken.append(entry)
        self.bytes -= before - session.ready_bytes
        return taken

    def pop(self) -> Entry | None:
        """Messages are had by their session only."""
        return None

    def loaded(self, entries: list[Entry], complete: bool, last: int = 0) -> None:
        """Messages are read by their session only."""

    def is_on_disk_only(self, entry: Entry) -> bool:
        """Whether an active message is not in memory, with its session or without."""
        session = self.by_id.get(entry.session or "")
        return session is None or entry.position > session.read_to

    def take_expired(self, now_ms: int) -> list[Entry]:
        """The messages here whose time to live is over; they are gone from here."""
        gone: list[Entry] = []
        for session in self.by_id.values():
            over = [entry for _, entry in session.ready if 0 < entry.expires_ms <= now_ms]
            if over:
                before = session.ready_bytes
                kept = [pair for pair in session.ready if not 0 < pair[1].expires_ms <= now_ms]
                heapify(kept)
                session.ready = kept
                session.ready_bytes = sum(len(e.bare) + ENTRY_OVERHEAD_BYTES for _, e in kept)
                self.bytes -= before - session.ready_bytes
                gone += over
        return gone

    def evict(self) -> None:
        """Leave the names of sessions to the disk: nobody is asking for them."""
        if self._available:
            self.gap_from = self._available[0].position - 1
            for head in self._available:
                del self._heads[head.session]
            self._available.clear()
