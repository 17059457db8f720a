"""Requests about sessions, carried out on the stores that this node owns.

Beside the host's other requests: accept, seek, watch, renew, state and list. A request about a
session that is held names the subscription that holds it; nobody else's word counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from partibus.broker.errors import InvalidOperation, Refusal, SessionLockLost
from partibus.broker.fragment import Fragment
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.sessions import Session
from partibus.runtime.clock import Clock
from partibus.runtime.dispenser import Origin, Subscriber
from partibus.runtime.driver import Driver
from partibus.runtime.requests import (
    DONE,
    AcceptSession,
    GetSessionState,
    ListSessions,
    ReceiveDeferred,
    RenewSession,
    Reply,
    SeekSession,
    SessionRequest,
    SetSessionState,
    WatchSession,
    refused,
)
from partibus.runtime.session_dispenser import AnyDispenser, SessionDispenser, SessionSubscriber
from partibus.store import Store

# Names in one answer; whoever wants more asks again.
NAMES_MAX = 1000

Answer = Callable[[Reply], None]
T = TypeVar("T")


class Brokers(Protocol):
    """What must be known of the host: its fragments, and who receives from them."""

    subscribers: dict[tuple[Origin, int], tuple[AnyDispenser, Subscriber]]

    def target(
        self, request: AcceptSession | ListSessions, partition: int
    ) -> tuple[Driver, Fragment]:
        """The fragment that a request names; refused where it is not to be had."""

    def session_dispenser(self, entity: int, incarnation: int) -> SessionDispenser:
        """Who hands out the sessions of an entity on this node."""


class SessionHost:
    """The host's hand for sessions."""

    def __init__(self, host: Brokers, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def handle(self, request: SessionRequest, origin: Origin, answer: Answer) -> None:
        """Carry out a request; a Refusal raised is the answer."""
        if isinstance(request, AcceptSession):
            self._accept(request, origin, answer)
        elif isinstance(request, SeekSession):
            self._seek(request, origin, answer)
        elif isinstance(request, WatchSession):
            self._holder(request.subscription, origin).over = answer
        elif isinstance(request, RenewSession):
            self._renew(request, origin, answer)
        elif isinstance(request, GetSessionState):
            self._get_state(request, origin, answer)
        elif isinstance(request, SetSessionState):
            self._set_state(request, origin, answer)
        else:
            self._list(request, answer)

    def check(self, origin: Origin, request: ReceiveDeferred) -> None:
        """Refuse who does not hold the session that the request names."""
        _, _, session = self._held(request.subscription, origin)
        if session.id != request.session:
            raise SessionLockLost(f"The session '{request.session}' is not held by this receiver.")

    # Locks ------------------------------------------------------------------------------------

    def _accept(self, request: AcceptSession, origin: Origin, answer: Answer) -> None:
        driver, fragment = self._fragment(request)
        place = origin, request.subscription
        found = self._host.subscribers.get(place)
        subscriber = found[1] if found is not None else None
        if not isinstance(subscriber, SessionSubscriber) or subscriber.session is not None:
            subscriber = self._newcomer(request.subscription, origin)
        dispenser = self._host.session_dispenser(request.entity, request.incarnation)
        self._host.subscribers[place] = dispenser, subscriber

        def decided(reply: Reply) -> None:
            if reply.condition and self._host.subscribers.get(place) == (dispenser, subscriber):
                self._forget(request.subscription, origin)
            answer(reply)

        try:
            dispenser.accept(
                subscriber, driver, fragment, request.session, request.is_next, decided
            )
        except Refusal as refusal:
            decided(refused(refusal))

    def _seek(self, request: SeekSession, origin: Origin, answer: Answer) -> None:
        subscriber = self._newcomer(request.subscription, origin)
        dispenser = self._host.session_dispenser(request.entity, request.incarnation)
        self._host.subscribers[origin, request.subscription] = dispenser, subscriber
        dispenser.seek(subscriber, request.waits, answer)

    def _newcomer(self, subscription: int, origin: Origin) -> SessionSubscriber:
        """A subscriber in the place of what the same receiver waited for before."""
        self._forget(subscription, origin)
        return SessionSubscriber(subscription, origin)

    def _forget(self, subscription: int, origin: Origin) -> None:
        found = self._host.subscribers.pop((origin, subscription), None)
        if found is not None:
            found[0].leave(found[1])

    def _renew(self, request: RenewSession, origin: Origin, answer: Answer) -> None:
        _, fragment, session = self._held(request.subscription, origin)
        answer(Reply(number=fragment.renew_session(session, self._clock.now_ms())))

    # State ------------------------------------------------------------------------------------

    def _get_state(self, request: GetSessionState, origin: Origin, answer: Answer) -> None:
        driver, fragment, session = self._held(request.subscription, origin)
        number, session_id = fragment.number, session.id

        def read(state: bytes | None) -> None:
            answer(Reply(content=state))

        _read(driver, lambda files: files.session_state(number, session_id), answer, read)

    def _set_state(self, request: SetSessionState, origin: Origin, answer: Answer) -> None:
        driver, fragment, session = self._held(request.subscription, origin)
        if session.state_size is not None:
            self._stage_state(driver, fragment, session, request.state, answer)
            return
        number, session_id = fragment.number, session.id

        def read(state: bytes | None) -> None:
            try:
                _, fragment, session = self._held(request.subscription, origin)
                if session.state_size is None:
                    session.state_size = len(state) if state is not None else 0
                self._stage_state(driver, fragment, session, request.state, answer)
            except Refusal as refusal:
                answer(refused(refusal))

        _read(driver, lambda files: files.session_state(number, session_id), answer, read)

    def _stage_state(
        self,
        driver: Driver,
        fragment: SessionFragment,
        session: Session,
        state: bytes | None,
        answer: Answer,
    ) -> None:
        fragment.set_state(session, state, self._clock.now_ms())
        driver.touch(fragment)
        driver.when_durable(lambda refusal: answer(refused(refusal) if refusal else DONE))

    # Lists ------------------------------------------------------------------------------------

    def _list(self, request: ListSessions, answer: Answer) -> None:
        driver, fragment = self._fragment(request)
        number, after, since_ms = fragment.number, request.after, request.since_ms
        count = min(request.count, NAMES_MAX)

        def read(names: list[str]) -> None:
            answer(Reply(names=names))

        _read(driver, lambda files: files.sessions(number, after, count, since_ms), answer, read)

    # Steps of the above -----------------------------------------------------------------------

    def _fragment(self, request: AcceptSession | ListSessions) -> tuple[Driver, SessionFragment]:
        driver, fragment = self._host.target(request, request.partition)
        if not isinstance(fragment, SessionFragment):
            raise InvalidOperation("The entity does not require sessions.")
        return driver, fragment

    def _holder(self, subscription: int, origin: Origin) -> SessionSubscriber:
        found = self._host.subscribers.get((origin, subscription))
        subscriber = found[1] if found is not None else None
        if not isinstance(subscriber, SessionSubscriber) or subscriber.session is None:
            raise SessionLockLost("The lock on the session is lost: it expired, or was released.")
        return subscriber

    def _held(self, subscription: int, origin: Origin) -> tuple[Driver, SessionFragment, Session]:
        subscriber = self._holder(subscription, origin)
        driver, fragment, session = subscriber.driver, subscriber.fragment, subscriber.session
        assert driver is not None
        assert fragment is not None
        assert session is not None
        return driver, fragment, fragment.held(session.id, subscriber, self._clock.now_ms())


def _read(
    driver: Driver, work: Callable[[Store], T], answer: Answer, then: Callable[[T], None]
) -> None:
    def done(result: T, refusal: Refusal | None) -> None:
        if refusal is not None:
            answer(refused(refusal))
        else:
            then(result)

    driver.read(work, done)
