"""The discharge of a transaction: one request to the store that holds it all, and one commit.

Here are both of its ends: the gateway's, which asks and tells a refusal from an outcome that
nobody knows, and the broker's, which checks everything before it changes anything. What may be in
a transaction is decided in broker.transactions.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    FragmentUnavailable,
    InvalidOperation,
    MessageLockLost,
    Refusal,
    SessionLockLost,
    TransactionInDoubt,
)
from partibus.broker.fragment import Fragment
from partibus.broker.locks import TOKEN_PREFIX_BYTES
from partibus.broker.message import Incoming
from partibus.broker.records import FragmentKey
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.settlement import Settlement
from partibus.broker.transactions import Transaction
from partibus.runtime.driver import Driver
from partibus.runtime.forwarding import Forwarder
from partibus.runtime.requests import DONE, Discharge, Reply, Reserved, refused
from partibus.runtime.reserving import Reservations, take_in
from partibus.runtime.settling import LOCK_LOST, SESSION_LOCK_LOST, Group, Stores

# In the number of a refusal: nothing was staged, so nothing can turn out to have happened.
NOTHING_DONE = 1
LOCK_LOST_TEXT = str(LOCK_LOST)

Done = Callable[[Refusal | None], None]
Settling = tuple[Fragment, list[bytes], Settlement]


# The gateway's end ------------------------------------------------------------------------------


def discharge(node: Stores, transaction: Transaction, done: Done) -> None:
    """Commit a transaction; done(None) once it is durable.

    A refusal means that nothing of it happened; TransactionInDoubt, that nobody knows.
    """
    entity, store = transaction.entity, transaction.store
    if transaction.is_empty or entity is None or store is None:
        done(None)
        return
    if store >= node.stores:
        done(LOCK_LOST)
        return
    request = Discharge(
        store,
        entity.id,
        entity.incarnation,
        transaction.partition if transaction.has_messages else None,
        transaction.messages,
        [(settlement, _groups(tokens)) for settlement, tokens in transaction.settlements],
        transaction.transfers,
        [Reserved(each.life, each.first, each.messages) for each in transaction.scheduled],
    )
    is_under_way = False

    def answered(reply: Reply) -> None:
        refusal = reply.refusal
        # A node that cannot be reached says so at once; one that is lost later may have done it.
        is_certain = reply.number == NOTHING_DONE or not is_under_way
        if isinstance(refusal, FragmentUnavailable) and not is_certain:
            refusal = TransactionInDoubt(f"Whether the transaction was committed: {refusal}")
        done(refusal)

    node.owner(store).call(request, answered)
    is_under_way = True


def _groups(tokens: list[bytes]) -> list[Group]:
    by_prefix: dict[bytes, list[bytes]] = {}
    for token in tokens:
        by_prefix.setdefault(token[:TOKEN_PREFIX_BYTES], []).append(token)
    return list(by_prefix.items())


# The broker's end -------------------------------------------------------------------------------


class Discharging:
    """A transaction at its store."""

    def __init__(
        self,
        driver: Driver,
        request: Discharge,
        target: Fragment | None,
        now_ms: Callable[[], int],
        shown: Callable[[Driver, Fragment], None],
        forwarder: Forwarder | None,
        reservations: Reservations,
        entity: Callable[[int], Entity | None],
    ) -> None:
        self._driver = driver
        self._request = request
        # Where its messages go, if it has any.
        self._target = target
        self._now_ms = now_ms
        self._shown = shown
        self._forwarder = forwarder
        self._reservations = reservations
        self._entity = entity

    def run(self, answer: Callable[[Reply], None]) -> None:
        """Do all of it or nothing, and answer when it is durable."""
        request, target = self._request, self._target
        messages = [*request.messages]
        for reserved in request.scheduled:
            messages += reserved.messages

        def durable(refusal: Refusal | None) -> None:
            answer(DONE if refusal is None else refused(refusal))

        if target is not None and target.settings.requires_duplicate_detection:
            self._driver.duplicates.admit(target, messages, self._stage, durable)
            return
        try:
            self._stage(messages)
        except Refusal as refusal:
            answer(nothing_done(refusal))
            return
        self._driver.when_settled(durable)

    def _stage(self, messages: list[Incoming]) -> None:
        now_ms = self._now_ms()
        settlings = self._check(now_ms)
        driver, target = self._driver, self._target
        transfers = self._request.transfers
        if transfers and target is not None and self._forwarder is not None:
            everything = [message for _, sent in transfers for message in sent]
            self._forwarder.check_room(driver, target, everything)
        if messages and target is not None:
            # The one step that may still be refused, for want of room; so it comes first.
            take_in(target, messages, self._request.scheduled, now_ms)
            driver.touch(target)
        for destination, sent in transfers:
            assert target is not None
            assert self._forwarder is not None
            self._forwarder.send_via(driver, target, destination, sent)
        for fragment, tokens, settlement in settlings:
            lost = fragment.settle(tokens, settlement, now_ms)
            assert not lost, "a lock that was held a moment ago"
            if fragment.dirty:
                driver.touch(fragment)
            if len(fragment.window):
                self._shown(driver, fragment)

    def _check(self, now_ms: int) -> list[Settling]:
        """Refuse before anything is changed: lost locks and numbers, fragments that are others."""
        request = self._request
        self._reservations.check(self._driver, request.scheduled)
        partitions = {request.partition} if request.partition is not None else set()
        settlings: list[Settling] = []
        for settlement, groups in request.settlements:
            for prefix, tokens in groups:
                fragment = self._driver.fragment_of(prefix)
                if fragment is None or not self._is_ours(fragment.key):
                    raise MessageLockLost(LOCK_LOST_TEXT)
                fragment.check(settlement)
                if not fragment.holds(tokens, now_ms):
                    if isinstance(fragment, SessionFragment):
                        raise SessionLockLost(str(SESSION_LOCK_LOST))
                    raise MessageLockLost(LOCK_LOST_TEXT)
                partitions.add(fragment.key.partition)
                settlings.append((fragment, tokens, settlement))
        if len(partitions) > 1:
            raise InvalidOperation(
                "A transaction cannot span multiple entities or partitions: the messages of this "
                "one are of several."
            )
        return settlings

    def _is_ours(self, key: FragmentKey) -> bool:
        """Whether a fragment is of the transaction's entity, or both are of one topic."""
        request = self._request
        if key[:2] == (request.entity, request.incarnation):
            return True
        one, own = self._entity(key.entity), self._entity(request.entity)
        if one is None or own is None or own.incarnation != request.incarnation:
            return False
        return one.incarnation == key.incarnation and one.top_level == own.top_level


def nothing_done(refusal: Refusal) -> Reply:
    """The reply to a transaction of which nothing was staged."""
    return Reply(refusal.condition, str(refusal), NOTHING_DONE)
