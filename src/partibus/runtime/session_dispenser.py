"""Hands the sessions of an entity's fragments on this node to those who wait for one.

Whoever waits is offered the session whose available message is the oldest; an offer locks nothing
and stands for a moment, in which nobody else is offered the same. Who has claimed a session gets
its messages, in order, as far as its credit goes. Which session that is, and what a lock means,
is the fragment's business.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import (
    FragmentUnavailable,
    Refusal,
    SessionCannotBeLocked,
    SessionLockLost,
)
from partibus.broker.records import Entry, Head
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.sessions import SESSION_BYTES_MAX, SESSION_MESSAGES_MAX, Session
from partibus.runtime.clock import Clock
from partibus.runtime.dispenser import RUN_MAX, Dispenser, Origin, Subscriber, as_delivered
from partibus.runtime.driver import Driver
from partibus.runtime.requests import DONE, Reply, refused

# How long a session that was offered to one receiver is kept from the others.
OFFER_MS = 1000
# Messages looked at to find sessions, one step.
HEADS_READ = 4096

Answer = Callable[[Reply], None]


class SessionSubscriber(Subscriber):
    """A receiver that waits for a session, was offered one, or has one."""

    __slots__ = ("driver", "fragment", "offered", "over", "seeks", "session", "waits")

    def __init__(self, number: int, origin: Origin) -> None:
        super().__init__(number, origin)
        # The question that is to be answered by an offer, and whether it can wait.
        self.seeks: Answer | None = None
        self.waits = False
        self.offered: tuple[SessionFragment, str] | None = None
        self.driver: Driver | None = None
        self.fragment: SessionFragment | None = None
        self.session: Session | None = None
        # To be told when the session is over.
        self.over: Answer | None = None

    def end(self, reply: Reply) -> None:
        """The session is over, or there is none to be waited for any more."""
        self.session = None
        for answer in (self.seeks, self.over):
            if answer is not None:
                answer(reply)
        self.seeks = self.over = None
        drained, self.drained = self.drained, None
        if drained is not None:
            drained(self.delivered)


class SessionDispenser:
    """Sessions with something to deliver on one side, receivers on the other."""

    def __init__(
        self, clock: Clock, entropy: Callable[[int], bytes], empty: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._empty = empty
        self._drivers: dict[SessionFragment, Driver] = {}
        self._subscribers: set[SessionSubscriber] = set()
        # In order of arrival. A dict as an ordered set.
        self._seekers: dict[SessionSubscriber, None] = {}
        self._reading: set[SessionFragment] = set()
        self._serving = False

    # Receivers ------------------------------------------------------------------------------

    def seek(self, subscriber: SessionSubscriber, waits: bool, answer: Answer) -> None:
        """The receiver takes any session."""
        self._subscribers.add(subscriber)
        subscriber.seeks, subscriber.waits = answer, waits
        self._seekers[subscriber] = None
        self.pump()

    def accept(
        self,
        subscriber: SessionSubscriber,
        driver: Driver,
        fragment: SessionFragment,
        session_id: str,
        is_next: bool,
        answer: Answer,
    ) -> None:
        """The receiver claims a session; answered when it has the lock, or cannot have it.

        Where it is refused, the receiver is to leave.
        """
        session = fragment.accept(session_id, subscriber, self._clock.now_ms())
        self._subscribers.add(subscriber)
        self._drivers[fragment] = driver
        if subscriber.offered is not None:
            offering, offered = subscriber.offered
            subscriber.offered = None
            offering.sessions.put_back(offered)
        subscriber.driver, subscriber.fragment, subscriber.session = driver, fragment, session
        driver.watch(fragment)

        def decide() -> None:
            if subscriber.session is not session:
                answer(refused(SessionLockLost(f"The session '{session_id}' was given up.")))
            elif is_next and not session.ready and not session.returning:
                # What was offered is gone meanwhile; the receiver looks for another.
                answer(refused(SessionCannotBeLocked(f"'{session_id}' has no messages.")))
            else:
                answer(Reply(number=session.until_ms, names=[session_id]))

        if is_next and session.wants_more:
            self._read_messages(
                driver,
                fragment,
                session,
                SESSION_MESSAGES_MAX,
                decide,
                lambda refusal: answer(refused(refusal)),
            )
        else:
            decide()

    def leave(self, subscriber: Subscriber) -> None:
        """A receiver is gone, or gives up what it has; its session is free at once."""
        assert isinstance(subscriber, SessionSubscriber)
        self._subscribers.discard(subscriber)
        self._seekers.pop(subscriber, None)
        if subscriber.offered is not None:
            fragment, session_id = subscriber.offered
            subscriber.offered = None
            fragment.sessions.put_back(session_id)
        session, fragment_of = subscriber.session, subscriber.fragment
        if session is not None and fragment_of is not None and session.holder is subscriber:
            fragment_of.release(session, self._clock.now_ms())
            self._settle_rest(subscriber.driver, fragment_of)
        subscriber.end(DONE)
        if self._subscribers:
            self.pump()
        else:
            self._empty()

    def credit(self, subscriber: Subscriber, limit: int) -> None:
        """The receiver takes messages up to this total."""
        assert isinstance(subscriber, SessionSubscriber)
        subscriber.limit = limit
        self._serve(subscriber)

    def drain(self, subscriber: Subscriber, drained: Callable[[int], None]) -> None:
        """Give what is there, then answer with the total given."""
        assert isinstance(subscriber, SessionSubscriber)
        subscriber.drained = drained
        if subscriber.session is None:
            subscriber.end(DONE)
        else:
            self._serve(subscriber)

    # Fragments ------------------------------------------------------------------------------

    def shown(self, driver: Driver, fragment: object) -> None:
        """The fragment may have messages, or sessions to be had, or has taken some away."""
        assert isinstance(fragment, SessionFragment)
        self._drivers[fragment] = driver
        for holder in fragment.take_dispossessed():
            assert isinstance(holder, SessionSubscriber)
            self._end(holder, SessionLockLost("The lock on the session has expired."))
        stirred = list(fragment.sessions.stirred)
        if not fragment.locks.full:
            fragment.sessions.stirred.clear()
            for session_id in stirred:
                session = fragment.sessions.by_id.get(session_id)
                if session is not None and isinstance(session.holder, SessionSubscriber):
                    self._serve(session.holder)
        self.pump()

    def lost(self, driver: Driver) -> None:
        """The driver's fragments are gone, and all locks with them."""
        self._withdraw(lambda fragment: self._drivers[fragment] is driver)
        for subscriber in [each for each in self._subscribers if each.driver is driver]:
            self._end(subscriber, SessionLockLost("The store that holds the session failed."))

    def withdraw(self, entity: int, partition: int) -> None:
        """A fragment is taken out of service: its sessions end, as if its store had failed."""

        def is_gone(fragment: SessionFragment) -> bool:
            return fragment.key.entity == entity and fragment.key.partition == partition

        for subscriber in list(self._subscribers):
            session, fragment = subscriber.session, subscriber.fragment
            if session is not None and fragment is not None and is_gone(fragment):
                fragment.release(session, self._clock.now_ms())
                self._settle_rest(subscriber.driver, fragment)
                self._end(subscriber, FragmentUnavailable("The session's fragment is down."))
        self._withdraw(is_gone)

    def _withdraw(self, is_gone: Callable[[SessionFragment], bool]) -> None:
        gone = [fragment for fragment in self._drivers if is_gone(fragment)]
        for fragment in gone:
            del self._drivers[fragment]
            self._reading.discard(fragment)
        self.pump()

    def _end(self, subscriber: SessionSubscriber, refusal: Refusal) -> None:
        subscriber.end(refused(refusal))

    # The meeting ----------------------------------------------------------------------------

    def pump(self) -> None:
        """Offer sessions to those who seek one, the longest waiting first."""
        while self._seekers:
            best: tuple[Head, SessionFragment] | None = None
            for fragment, driver in self._drivers.items():
                head = fragment.sessions.first
                if head is None:
                    self._read_heads(driver, fragment)
                elif best is None or head.enqueued_ms < best[0].enqueued_ms:
                    best = head, fragment
            if best is None:
                break
            self._offer(next(iter(self._seekers)), best[1])
        if not self._reading:
            for subscriber in [each for each in self._seekers if not each.waits]:
                self._answer_seeker(subscriber, DONE)

    def _offer(self, subscriber: SessionSubscriber, fragment: SessionFragment) -> None:
        head = fragment.sessions.offer()
        offered = subscriber.offered = fragment, head.session

        def withdraw() -> None:
            if subscriber.offered is offered:
                subscriber.offered = None
                fragment.sessions.put_back(head.session)
                self.pump()

        self._clock.call_at(self._clock.now_ms() + OFFER_MS, withdraw)
        self._answer_seeker(subscriber, Reply(number=head.enqueued_ms, names=[head.session]))

    def _answer_seeker(self, subscriber: SessionSubscriber, reply: Reply) -> None:
        self._seekers.pop(subscriber, None)
        answer, subscriber.seeks = subscriber.seeks, None
        if answer is not None:
            answer(reply)

    def _read_heads(self, driver: Driver, fragment: SessionFragment) -> None:
        sessions = fragment.sessions
        if fragment in self._reading or not sessions.is_exhausted:
            return
        self._reading.add(fragment)
        after = sessions.gap_from

        def read(found: tuple[list[Head], int] | None, refusal: Refusal | None) -> None:
            self._reading.discard(fragment)
            if found is None:
                self._drivers.pop(fragment, None)
            else:
                heads, last = found
                sessions.heads_read(heads, after, last, complete=last == 0)
            self.pump()

        driver.read(lambda files: files.heads(fragment.number, after, HEADS_READ), read)

    def _serve(self, subscriber: SessionSubscriber) -> None:
        """Deliver as far as credit and messages go."""
        driver, fragment, session = subscriber.driver, subscriber.fragment, subscriber.session
        if driver is None or fragment is None or session is None or session.is_loading:
            return
        while (wanted := min(subscriber.limit - subscriber.delivered, RUN_MAX)) > 0:
            now_ms = self._clock.now_ms()
            if session.until_ms <= now_ms:
                return
            if driver.congested or fragment.locks.full:
                # Shown again when that is over.
                fragment.sessions.stirred[session.id] = None
                return
            entries = fragment.take_of(session, wanted, now_ms, self._entropy)
            self._settle_rest(driver, fragment)
            if not entries:
                break
            subscriber.delivered += len(entries)
            subscriber.origin.push(subscriber.number, as_delivered(fragment, entries))
            if subscriber.session is not session:
                return
        if subscriber.limit > subscriber.delivered and session.wants_more:
            count = min(subscriber.limit - subscriber.delivered, SESSION_MESSAGES_MAX)
            self._read_messages(driver, fragment, session, count, lambda: self._serve(subscriber))
            return
        if subscriber.drained is not None and not session.returning:
            subscriber.limit = subscriber.delivered
            drained, subscriber.drained = subscriber.drained, None
            drained(subscriber.delivered)

    def _settle_rest(self, driver: Driver | None, fragment: SessionFragment) -> None:
        """Some messages may have been found to be over."""
        if fragment.dirty and driver is not None and driver.has(fragment):
            driver.touch(fragment)

    def _read_messages(
        self,
        driver: Driver,
        fragment: SessionFragment,
        session: Session,
        count: int,
        then: Callable[[], None],
        failed: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        session.is_loading = True
        number, session_id, after = fragment.number, session.id, session.read_to

        def read(entries: list[Entry] | None, refusal: Refusal | None) -> None:
            if entries is None:
                assert refusal is not None
                failed(refusal)
                return
            size = sum(entry.size for entry in entries)
            complete = len(entries) < count and size < SESSION_BYTES_MAX
            fragment.messages_read(session, entries, complete, self._clock.now_ms())
            self._settle_rest(driver, fragment)
            then()

        driver.read(
            lambda files: files.scan_session(number, session_id, after, count, SESSION_BYTES_MAX),
            read,
        )


AnyDispenser = Dispenser | SessionDispenser
