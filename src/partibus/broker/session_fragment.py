"""One fragment of an entity with sessions: who holds a session, and what that allows.

The lock is the session's: its messages are delivered in order while it is held, their tokens are
good as long, and all of it ends together. A clean release counts nothing; an end by time counts a
failed delivery for what was outstanding. Locks are in memory only, a session's state is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from partibus.broker.errors import QuotaExceeded, SessionCannotBeLocked, SessionLockLost
from partibus.broker.fragment import MEGABYTE, Fragment
from partibus.broker.fragment_settings import Settings
from partibus.broker.records import Changes, Counters, Entry, FragmentKey, State, SubQueue
from partibus.broker.sessions import Session, Sessions
from partibus.broker.transfers import TransferFragment


def kind_of_fragment(key: FragmentKey, settings: Settings) -> type[Fragment]:
    """What a fragment is; the dead letters of an entity with sessions are a plain queue."""
    if key.subqueue == SubQueue.TRANSFER:
        return TransferFragment
    has_sessions = settings.requires_session and key.subqueue == SubQueue.ACTIVE
    return SessionFragment if has_sessions else Fragment


class SessionFragment(Fragment):
    """The messages and sessions of one entity that live in one store."""

    def __init__(
        self,
        key: FragmentKey,
        number: int,
        store: int,
        settings: Settings,
        counters: Counters | None,
        dead_letters: Callable[[], Fragment],
    ) -> None:
        super().__init__(key, number, store, settings, counters, dead_letters)
        self.window = self.sessions = Sessions(self.window.gap_to)
        # When locks end, or may end: one place for each session that is held.
        self._ends: list[tuple[int, int, Session]] = []
        self._watches = 0
        # Sessions by the positions of their messages that are being committed.
        self._committing: dict[int, Session] = {}
        # Those who lost a session to time and were not told yet.
        self._dispossessed: list[object] = []

    # The lock -----------------------------------------------------------------------------

    def accept(self, session_id: str, holder: object, now_ms: int) -> Session:
        """Lock a session; it need not have messages."""
        session = self.sessions.by_id.get(session_id)
        if session is None:
            session = self.sessions.open(session_id)
        elif session.holder is not None:
            raise SessionCannotBeLocked(
                f"The session '{session_id}' is locked by another receiver; accept it again later."
            )
        session.holder = holder
        session.until_ms = now_ms + self.settings.lock_ms
        self._watch(session)
        if session.ready:
            self.sessions.stirred[session_id] = None
        return session

    def held(self, session_id: str, holder: object, now_ms: int) -> Session:
        """The session, for who has its lock; refused for all others."""
        session = self.sessions.by_id.get(session_id)
        if session is None or session.holder is not holder or session.until_ms <= now_ms:
            raise SessionLockLost(
                f"The lock on the session '{session_id}' is lost: it expired, or was released."
            )
        return session

    def renew_session(self, session: Session, now_ms: int) -> int:
        """Extend the lock; returns its new end."""
        session.until_ms = until_ms = now_ms + self.settings.lock_ms
        for entry in session.outstanding.values():
            entry.locked_until_ms = until_ms
        return until_ms

    def release(self, session: Session, now_ms: int) -> bool:
        """The holder goes: what it did not settle is available, uncounted.

        True if somebody else may have the session now.
        """
        outstanding = list(session.outstanding.values())
        for entry in outstanding:
            self._unlock(entry)
        self._release(outstanding, now_ms)
        session.holder = None
        self.sessions.stirred.pop(session.id, None)
        return self.sessions.let_go(session)

    def take_dispossessed(self) -> list[object]:
        """Those who lost a session to time since this was asked last."""
        lost, self._dispossessed = self._dispossessed, []
        return lost

    def _watch(self, session: Session) -> None:
        if not session.is_watched:
            session.is_watched = True
            self._watches += 1
            heappush(self._ends, (session.until_ms, self._watches, session))

    def next_deadline_ms(self) -> int | None:
        """When the oldest lock ends, or may end."""
        deadline = super().next_deadline_ms()
        if not self._ends:
            return deadline
        end_ms = self._ends[0][0]
        return end_ms if deadline is None else min(end_ms, deadline)

    def advance(self, now_ms: int) -> bool:
        """End locks whose time is over; True if something changed."""
        changed = super().advance(now_ms)
        while self._ends and self._ends[0][0] <= now_ms:
            _, _, session = heappop(self._ends)
            session.is_watched = False
            if session.holder is None:
                continue
            if session.until_ms > now_ms:
                # It was renewed meanwhile.
                self._watch(session)
                continue
            self._end_lock(session, now_ms)
            changed = True
        return changed

    def _end_lock(self, session: Session, now_ms: int) -> None:
        self._dispossessed.append(session.holder)
        session.holder = None
        self.sessions.stirred.pop(session.id, None)
        outstanding = list(session.outstanding.values())
        for entry in outstanding:
            self._unlock(entry)
        if outstanding:
            self.count_failure(outstanding, rewritten=False, now_ms=now_ms)
        self.sessions.let_go(session)

    # Messages -----------------------------------------------------------------------------

    def take_of(
        self, session: Session, count: int, now_ms: int, entropy: Callable[[int], bytes]
    ) -> list[Entry]:
        """Lock the next messages of a session for its holder."""
        taken: list[Entry] = []
        expired: list[Entry] = []
        while len(taken) < count and (found := self.sessions.take(session, count - len(taken))):
            for entry in found:
                (expired if self._is_over(entry, now_ms) else taken).append(entry)
        if expired:
            self._expire(expired)
        if taken:
            self.locks.lock(taken, session.until_ms, entropy)
            session.outstanding.update((entry.position, entry) for entry in taken)
        return taken

    def messages_read(
        self, session: Session, entries: list[Entry], complete: bool, now_ms: int
    ) -> None:
        """The next messages of a session were read from disk."""
        last = entries[-1].position if entries else 0
        free = [entry for entry in entries if self._is_free(entry)]
        over = [entry for entry in free if self._is_over(entry, now_ms)]
        if over:
            free = [entry for entry in free if not self._is_over(entry, now_ms)]
            self._aside.update(entry.position for entry in over)
            self._expire(over)
        self.sessions.messages_read(session, free, last, complete)
        self.sessions.let_go(session)

    def withdraw_stored(self, stored: list[Entry], now_ms: int) -> list[Entry]:
        """Of active messages that the disk has, those that nobody holds, to go elsewhere."""
        free = [each for each in stored if self.window.is_on_disk_only(each)]
        free = [each for each in free if self._is_free(each)]
        self._aside.update(entry.position for entry in free)
        over = [entry for entry in free if self._is_over(entry, now_ms)]
        if over:
            self._expire(over)
        return [entry for entry in free if not self._is_over(entry, now_ms)]

    def receive_deferred(
        self,
        sequences: list[int],
        stored: list[Entry],
        now_ms: int,
        entropy: Callable[[int], bytes],
        *,
        delete: bool,
    ) -> list[Entry]:
        """As in a plain fragment; their sessions must be held, and their locks end with those."""
        named = set(sequences)
        for entry in stored:
            session = self.sessions.by_id.get(entry.session or "")
            if entry.sequence in named and (session is None or session.until_ms <= now_ms):
                raise SessionLockLost(f"The session '{entry.session}' is not held.")
        return super().receive_deferred(sequences, stored, now_ms, entropy, delete=delete)

    def _lock(self, taken: list[Entry], now_ms: int, entropy: Callable[[int], bytes]) -> None:
        for entry in taken:
            session = self.sessions.by_id[entry.session or ""]
            self.locks.lock([entry], session.until_ms, entropy)
            session.outstanding[entry.position] = entry

    def _unlock(self, entry: Entry) -> None:
        super()._unlock(entry)
        session = self.sessions.by_id.get(entry.session or "")
        if session is not None:
            session.outstanding.pop(entry.position, None)

    def _remove(self, entries: list[Entry]) -> None:
        super()._remove(entries)
        self._await_commit(entries)

    def _update(self, entries: list[Entry], rewritten: bool) -> None:
        super()._update(entries, rewritten)
        for entry in self._await_commit(entries):
            if entry.state == State.ACTIVE:
                self._committing[entry.position].returning.add(entry.position)

    def _await_commit(self, entries: list[Entry]) -> list[Entry]:
        """Keep their sessions in memory until the disk knows; returns those whose are there."""
        found = []
        for entry in entries:
            session = self.sessions.by_id.get(entry.session or "")
            if session is not None and entry.position not in self._committing:
                self._committing[entry.position] = session
                session.changes += 1
                found.append(entry)
        return found

    # State --------------------------------------------------------------------------------

    def set_state(self, session: Session, state: bytes | None, now_ms: int) -> None:
        """Keep a state with the session; None: none any more."""
        assert session.state_size is not None, "its size is read before it is changed"
        size = len(state) if state is not None else 0
        grows = size - session.state_size
        quota = self.settings.max_size_mb * MEGABYTE
        held = self.counters.bytes + (self.dead.counters.bytes if self.dead else 0)
        if grows > 0 and held + grows > quota:
            raise QuotaExceeded(
                f"The fragment holds {held} of {quota} bytes; a session state of "
                f"{size} does not fit. Receive messages, or make the entity larger."
            )
        self.counters.bytes += grows
        session.state_size = size
        states = self._stage().states
        if session.id not in states:
            session.changes += 1
        states[session.id] = state, now_ms

    # Commits ------------------------------------------------------------------------------

    def committed(self, changes: Changes) -> bool:
        """These changes are durable: show what they made visible. True if there is any."""
        shown = super().committed(changes)
        durable: dict[Session, None] = {}
        positions = list(changes.removed)
        positions += [entry.position for entry in changes.updated]
        positions += [entry.position for entry in changes.rewritten]
        for position in positions:
            session = self._committing.pop(position, None)
            if session is not None:
                session.changes -= 1
                durable[session] = None
        for session_id in changes.states:
            session = self.sessions.by_id.get(session_id)
            if session is not None:
                session.changes -= 1
                durable[session] = None
        for session in durable:
            shown = self.sessions.let_go(session) or shown
        return shown
