"""The broker side of a node: carries out requests on the stores that this node owns.

A request may come from this node's own gateway or from another node's over the hop; it is the
same here. Routing is not done here: a request for a store we do not own is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from partibus.broker.descriptions import Description, Entity
from partibus.broker.errors import EntityNotFound, FragmentUnavailable, Refusal
from partibus.broker.forwarding import target_of
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming
from partibus.broker.records import FragmentKey, SubQueue
from partibus.broker.topic_fragment import TopicFragment
from partibus.runtime.arrivals import Arrivals
from partibus.runtime.bulk_readers import tell_readers
from partibus.runtime.bulk_requests import ListReaders
from partibus.runtime.census import Census
from partibus.runtime.clock import Clock
from partibus.runtime.consuming import Consumption
from partibus.runtime.cursors import move_cursor
from partibus.runtime.discharging import Discharging, nothing_done
from partibus.runtime.dispenser import Dispenser, Origin, Subscriber
from partibus.runtime.driver import Driver
from partibus.runtime.entropy import Entropy
from partibus.runtime.forwarding import Forwarder
from partibus.runtime.idleness import Uses
from partibus.runtime.lookups import Errand, look_up, nothing_found
from partibus.runtime.measuring import Measured, measure_node, write_measure
from partibus.runtime.publishing import Publications
from partibus.runtime.requests import (
    DONE,
    Bulk,
    Credit,
    Discard,
    Discharge,
    Drain,
    Forward,
    Lookup,
    Measure,
    MoveCursor,
    Publish,
    Rare,
    Renew,
    Reply,
    Request,
    Reserve,
    Send,
    SendVia,
    SessionRequest,
    Settle,
    Subscribe,
    ToFragment,
    Told,
    Unsubscribe,
    refused,
)
from partibus.runtime.reserving import LIFE_BYTES, Reservations
from partibus.runtime.session_dispenser import AnyDispenser, SessionDispenser
from partibus.runtime.session_host import SessionHost
from partibus.runtime.topics import SubscriptionsOf, Topics

Answer = Callable[[Reply], None]
EntityById = Callable[[int], Entity | None]
# An entity in one life, and one of its sub-queues.
Desk = tuple[int, int, int]


class Host:
    """Drivers of the stores this node owns, and dispensers for who receives from them."""

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        entity: EntityById,
        deleted: Callable[[int, int], bool],
        known: Callable[[], Iterable[int]] = tuple,
        subscriptions: SubscriptionsOf = lambda _: (),
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._entity = entity
        self._deleted = deleted
        # The ids of all entities there are.
        self._known = known
        self.drivers: dict[int, Driver] = {}
        # What others on this node count, for operators.
        self.measured = Measured({}, {})
        self._dispensers: dict[Desk, AnyDispenser] = {}
        self.subscribers: dict[tuple[Origin, int], tuple[AnyDispenser, Subscriber]] = {}
        # Sends that may be taken back while they wait for the disk: where, and which positions.
        self._under_way: dict[tuple[Origin, int], tuple[Fragment, range]] = {}
        self._uses = Uses(clock.now_ms())
        # When something was last sent to one of these stores.
        self.sent_ms = 0
        # Fragments that an operator or a test has taken down.
        self.down: set[tuple[int, int]] = set()
        self._publications = Publications(clock)
        self._consumption = Consumption(clock)
        self._sessions = SessionHost(self, clock)
        self._reservations = Reservations(entropy.take(LIFE_BYTES))
        self._arrivals = Arrivals(self, clock)
        # What takes messages from here to other entities; None in a host without a node.
        self.forwarder: Forwarder | None = None
        self._census = Census(self, clock, self._uses)
        self._topics = Topics(subscriptions, entropy.take)

    def settings(self, entity_id: int) -> Description | None:
        """The settings of an entity; None where it does not exist any more."""
        entity = self._entity(entity_id)
        return entity.description if entity else None

    def handle(self, request: Request, origin: Origin, answer: Answer) -> None:
        """Carry out a request and answer it when it is durable. Refusals are answers, too.

        Subscribe and Credit are told, not asked: they have no answer.
        """
        try:
            if isinstance(request, Send):
                self._send(request, origin, answer)
            elif isinstance(request, Settle):
                self._settle(request, answer)
            elif isinstance(request, Credit):
                self._credit(request, origin)
            elif isinstance(request, Subscribe):
                self._subscribe(request, origin)
            elif isinstance(request, Unsubscribe):
                self._unsubscribe(request, origin, answer)
            elif isinstance(request, Drain):
                self._drain(request, origin, answer)
            elif isinstance(request, Renew):
                self._renew(request, answer)
            elif isinstance(request, Discharge):
                self._discharge(request, answer)
            else:
                self._handle_rare(request, origin, answer)
        except Refusal as refusal:
            answer(refused(refusal))

    def _handle_rare(self, request: Rare, origin: Origin, answer: Answer) -> None:
        if isinstance(request, SessionRequest):
            self._sessions.handle(request, origin, answer)
        elif isinstance(request, Lookup):
            self._look_up(request, origin, answer)
        elif isinstance(request, Told):
            self._tell(request, answer)
        elif isinstance(request, Forward):
            self._arrivals.handle(request, answer)
        elif isinstance(request, SendVia) and self.forwarder is not None:
            driver, via = self.target(request, request.partition)
            self.used(request.entity)
            self.forwarder.handle(driver, via, request, answer)
        elif isinstance(request, Bulk):
            self._handle_bulk(request, answer)
        elif isinstance(request, Reserve):
            driver, fragment = self.target(request, request.partition)
            answer(self._reservations.reserve(driver, fragment, request.count))
        elif isinstance(request, Discard):
            self._discard(request, origin, answer)

    def _tell(self, request: Told, answer: Answer) -> None:
        if isinstance(request, Measure):
            found = measure_node(self.drivers, self._entity, self.measured)
            answer(Reply(content=write_measure(found)))
        elif isinstance(request, ListReaders):
            tell_readers(self._driver(request.store), self._entity, request, answer)
        else:
            answer(self._census.answer(request))

    def _handle_bulk(self, request: Bulk, answer: Answer) -> None:
        if isinstance(request, Publish):
            self.used(request.entity)
            self._publications.begin(*self.target(request, request.partition), request, answer)
            return
        driver, entity = self._place(request, request.partition)
        key = FragmentKey(entity.id, entity.incarnation, request.partition, request.subqueue)
        fragment = driver.fragment(key, entity.description)
        if isinstance(request, MoveCursor):
            move_cursor(driver, fragment, request, answer)
        else:
            self.used(request.entity)
            self._consumption.begin(driver, fragment, request, answer)

    def forget(self, origin: Origin) -> None:
        """A gateway is gone: its receivers with it. What they hold comes back when locks end."""
        for key in [key for key in self.subscribers if key[0] is origin]:
            dispenser, subscriber = self.subscribers.pop(key)
            dispenser.leave(subscriber)

    # Sending and settling -------------------------------------------------------------------

    def _driver(self, store: int) -> Driver:
        driver = self.drivers.get(store)
        if driver is None or not driver.up:
            raise FragmentUnavailable(f"Store {store} is unavailable; try again.")
        return driver

    def target(self, request: ToFragment, partition: int) -> tuple[Driver, Fragment]:
        """The fragment that a request names; refused where it is not to be had."""
        driver, entity = self._place(request, partition)
        key = FragmentKey(request.entity, request.incarnation, partition, SubQueue.ACTIVE)
        return driver, driver.fragment(key, entity.description)

    def _place(self, request: ToFragment | Lookup | Bulk, partition: int) -> tuple[Driver, Entity]:
        driver = self._driver(request.store)
        entity = self._entity(request.entity)
        if entity is None or entity.incarnation != request.incarnation:
            raise EntityNotFound("The messaging entity has been deleted.")
        if (request.entity, partition) in self.down:
            raise FragmentUnavailable(
                f"Fragment {partition} of '{entity.name}' is unavailable; try again."
            )
        return driver, entity

    def _look_up(self, request: Lookup, origin: Origin, answer: Answer) -> None:
        driver, _ = self._place(request, request.partition)
        self._uses.used(request.entity, self._clock.now_ms())
        key = FragmentKey(request.entity, request.incarnation, request.partition, request.subqueue)
        fragment = driver.fragments.get(key)
        if fragment is None:
            # Nothing was ever sent there; asking does not make it.
            answer(nothing_found(request))
            return
        check = partial(self._sessions.check, origin)
        look_up(Errand(driver, fragment, self._clock, self._entropy.take, check), request, answer)

    def _send(self, request: Send, origin: Origin, answer: Answer) -> None:
        driver, fragment = self.target(request, request.partition)
        now_ms = self._clock.now_ms()
        self._uses.used(request.entity, now_ms)
        self.sent_ms = now_ms
        if fragment.settings.requires_duplicate_detection:
            self._send_once(driver, fragment, request, answer)
            return
        first = fragment.send(request.messages, now_ms)
        driver.touch(fragment)
        place = origin, request.ticket
        if request.ticket:
            self._under_way[place] = fragment, range(first, first + len(request.messages))

        def durable(refusal: Refusal | None) -> None:
            self._under_way.pop(place, None)
            answer(Reply(number=first) if refusal is None else refused(refusal))

        driver.when_durable(durable)

    def _send_once(self, driver: Driver, fragment: Fragment, request: Send, answer: Answer) -> None:
        """As _send, without what was sent before. It always has a key: no ticket is needed."""
        places: dict[int, int] = {}

        def stage(messages: list[Incoming]) -> None:
            if messages:
                first = fragment.send(messages, self._clock.now_ms())
                driver.touch(fragment)
                places.update((id(each), first + at) for at, each in enumerate(messages))

        def durable(refusal: Refusal | None) -> None:
            positions = [places.get(id(each), 0) for each in request.messages]
            answer(Reply(positions=positions) if refusal is None else refused(refusal))

        driver.duplicates.admit(fragment, request.messages, stage, durable)

    def used(self, entity: int) -> None:
        """Something was sent to an entity."""
        self.sent_ms = self._clock.now_ms()
        self._uses.used(entity, self.sent_ms)

    def _discard(self, request: Discard, origin: Origin, answer: Answer) -> None:
        if request.ticket:
            # It is durable already, and its answer on the way, where it is not found.
            waiting, positions = self._under_way.get((origin, request.ticket), (None, range(0)))
            if waiting is not None:
                waiting.discard(list(positions))
            answer(DONE)
            return
        driver, fragment = self.target(request, request.partition)
        if not fragment.discard(request.positions):
            answer(DONE)
            return
        driver.touch(fragment)
        driver.when_durable(lambda refusal: answer(refused(refusal) if refusal else DONE))

    def _settle(self, request: Settle, answer: Answer) -> None:
        driver = self._driver(request.store)
        now_ms = self._clock.now_ms()
        lost: list[bytes] = []
        staged = False
        found: list[tuple[Fragment, list[bytes]]] = []
        for prefix, tokens in request.groups:
            fragment = self._fragment(driver, prefix, request.entity)
            if fragment is None:
                lost += tokens
            else:
                # All are asked before one changes anything: a refusal leaves all as they were.
                fragment.check(request.settlement)
                found.append((fragment, tokens))
        for fragment, tokens in found:
            lost += fragment.settle(tokens, request.settlement, now_ms)
            if fragment.dirty:
                driver.touch(fragment)
                staged = True
            if len(fragment.window):
                self.shown(driver, fragment)

        def durable(refusal: Refusal | None) -> None:
            answer(Reply(tokens=lost) if refusal is None else refused(refusal))

        if staged:
            driver.when_durable(durable)
        else:
            durable(None)

    def _discharge(self, request: Discharge, answer: Answer) -> None:
        try:
            driver = self._driver(request.store)
            target = None
            if request.partition is not None:
                _, target = self.target(request, request.partition)
        except Refusal as refusal:
            answer(nothing_done(refusal))
            return
        hands = self.shown, self.forwarder, self._reservations, self._entity
        Discharging(driver, request, target, self._clock.now_ms, *hands).run(answer)

    def _renew(self, request: Renew, answer: Answer) -> None:
        driver = self._driver(request.store)
        now_ms = self._clock.now_ms()
        lost: list[bytes] = []
        until_ms = 0
        for prefix, tokens in request.groups:
            fragment = self._fragment(driver, prefix, request.entity)
            if fragment is None:
                lost += tokens
                continue
            until_ms, gone = fragment.renew(tokens, now_ms)
            lost += gone
        answer(Reply(number=until_ms, tokens=lost))

    def _fragment(self, driver: Driver, prefix: bytes, entity: int) -> Fragment | None:
        """A token settles only what its own entity holds, whoever presents it."""
        fragment = driver.fragment_of(prefix)
        return fragment if fragment is not None and fragment.key.entity == entity else None

    # Receiving ------------------------------------------------------------------------------

    def _subscribe(self, request: Subscribe, origin: Origin) -> None:
        desk = (request.entity, request.incarnation, request.subqueue)
        dispenser = self._dispensers.get(desk)
        if dispenser is None:
            dispenser = Dispenser(
                self._clock.now_ms, self._entropy.take, lambda: self._dismiss(desk)
            )
            self._open(desk, dispenser)
        assert isinstance(dispenser, Dispenser), "sessions are accepted, not subscribed to"
        subscriber = Subscriber(request.subscription, origin)
        dispenser.join(subscriber)
        self.subscribers[origin, request.subscription] = dispenser, subscriber

    def session_dispenser(self, entity: int, incarnation: int) -> SessionDispenser:
        """Who hands out the sessions of an entity on this node."""
        desk = (entity, incarnation, int(SubQueue.ACTIVE))
        dispenser = self._dispensers.get(desk)
        if dispenser is None:
            dispenser = SessionDispenser(
                self._clock, self._entropy.take, lambda: self._dismiss(desk)
            )
            self._open(desk, dispenser)
        assert isinstance(dispenser, SessionDispenser), "the entity has no sessions"
        return dispenser

    def _open(self, desk: Desk, dispenser: AnyDispenser) -> None:
        self._dispensers[desk] = dispenser
        for driver, fragment in self._fragments_at(desk):
            if fragment.counters.active:
                self.shown(driver, fragment)

    def _fragments_at(self, desk: Desk) -> list[tuple[Driver, Fragment]]:
        return [
            (driver, fragment)
            for driver in self.drivers.values()
            for fragment in driver.fragments.values()
            if _desk(fragment.key) == desk
        ]

    def _dismiss(self, desk: Desk) -> None:
        self._dispensers.pop(desk, None)
        settings = self.settings(desk[0])
        if settings is not None and target_of(settings, desk[2]):
            # What its receivers held is to be forwarded now.
            for driver, fragment in self._fragments_at(desk):
                self.shown(driver, fragment)

    def _credit(self, request: Credit, origin: Origin) -> None:
        found = self.subscribers.get((origin, request.subscription))
        if found is not None:
            found[0].credit(found[1], request.limit)

    def _drain(self, request: Drain, origin: Origin, answer: Answer) -> None:
        found = self.subscribers.get((origin, request.subscription))
        if found is None:
            answer(DONE)
            return
        found[0].drain(found[1], lambda delivered: answer(Reply(number=delivered)))

    def _unsubscribe(self, request: Unsubscribe, origin: Origin, answer: Answer) -> None:
        found = self.subscribers.pop((origin, request.subscription), None)
        if found is not None:
            found[0].leave(found[1])
        answer(DONE)

    def has_receivers(self, entity: int, incarnation: int) -> bool:
        """Whether somebody receives from an entity here."""
        return any(desk[:2] == (entity, incarnation) for desk in self._dispensers)

    # What drivers tell ----------------------------------------------------------------------

    def shown(self, driver: Driver, fragment: Fragment) -> None:
        """A fragment may have something ready."""
        if self._is_down(fragment.key):
            return
        if self.forwarder is not None and self.forwarder.takes(fragment):
            self.forwarder.shown(driver, fragment)
            return
        dispenser = self._dispensers.get(_desk(fragment.key))
        if dispenser is not None:
            dispenser.shown(driver, fragment)

    def wanted(self, fragment: Fragment) -> bool:
        """Whether anybody receives from the fragment."""
        return _desk(fragment.key) in self._dispensers or self._is_leaving(fragment)

    def _is_leaving(self, fragment: Fragment) -> bool:
        return self.forwarder is not None and self.forwarder.takes(fragment)

    def is_deleted(self, key: FragmentKey) -> bool:
        """Whether the fragment's entity is known to be gone for good."""
        return self._deleted(key.entity, key.incarnation)

    def attend(self, driver: Driver, topic: TopicFragment) -> None:
        """A fragment of a topic is there."""
        self._topics.attend(driver, topic)

    def lost(self, driver: Driver) -> None:
        """A driver's store failed."""
        for dispenser in list(self._dispensers.values()):
            dispenser.lost(driver)
        if self.forwarder is not None:
            self.forwarder.lost(driver)

    # Management -----------------------------------------------------------------------------

    def entities_changed(self) -> None:
        """The catalog changed: take over new settings, drop what was deleted."""
        for driver in self.drivers.values():
            for fragment in list(driver.fragments.values()):
                entity = self._entity(fragment.key.entity)
                if entity is None or entity.incarnation != fragment.key.incarnation:
                    driver.drop(fragment)
                else:
                    was = fragment.settings
                    fragment.settings = entity.description
                    if was != entity.description and self._is_leaving(fragment):
                        self.shown(driver, fragment)
        self._uses.keep(self._known())
        if self.forwarder is not None:
            self.forwarder.entities_changed()
        self._topics.changed(self._known())

    def set_down(self, entity: int, partition: int, down: bool) -> None:
        """Take a fragment out of service, or put it back."""
        if down:
            self.down.add((entity, partition))
            for dispenser in list(self._dispensers.values()):
                dispenser.withdraw(entity, partition)
            return
        self.down.discard((entity, partition))
        for driver in self.drivers.values():
            for fragment in driver.fragments.values():
                if fragment.key.entity == entity and fragment.key.partition == partition:
                    self.shown(driver, fragment)

    def _is_down(self, key: FragmentKey) -> bool:
        return bool(self.down) and (key.entity, key.partition) in self.down


def _desk(key: FragmentKey) -> Desk:
    return key.entity, key.incarnation, key.subqueue
