"""A node: what the doors see of the namespace, whichever node holds what.

Resolves addresses to entities, hands out senders and receivers, settles and renews by lock token,
and knows which stores and nodes answer. All nodes are alike; each owns the stores whose number
modulo the number of nodes is its own. The rules are the broker's, the waiting is the drivers'.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    Refusal,
)
from partibus.broker.names import name_key
from partibus.broker.records import SubQueue
from partibus.broker.settlement import Settlement
from partibus.runtime.catalog_changes import CatalogChanges
from partibus.runtime.clock import Clock
from partibus.runtime.disk import Disk
from partibus.runtime.driver import Driver
from partibus.runtime.entropy import Entropy
from partibus.runtime.forwarding import Forwarder
from partibus.runtime.gate import Gate
from partibus.runtime.hop import RemotePeer, Serving, listen
from partibus.runtime.host import Host
from partibus.runtime.idleness import Idleness
from partibus.runtime.peers import Peer
from partibus.runtime.receiving import Deliver, ReceiveCache, ReceiveMode, Receiver
from partibus.runtime.requests import Count, Delivered, Renew, Reply, Request, Settle
from partibus.runtime.sending import EntityMoved, Lane, Pending, Sender
from partibus.runtime.session_listing import SessionLists
from partibus.runtime.settling import LOCK_LOST, Group, ask_stores
from partibus.runtime.spans import Spans, spans_of_process
from partibus.runtime.topics import Subscribed
from partibus.runtime.wrong_tokens import WrongTokens
from partibus.store import Store, StoreError
from partibus.store.catalog import Catalog, Snapshot

log = logging.getLogger(__name__)

AnyReceiver = TypeVar("AnyReceiver", bound=Receiver)

CATALOG_POLL_MS = 1000
PENDING_TICK_MS = 250
SHUTDOWN_POLL_S = 0.01

SUBQUEUES = {
    # The longer one first: both end in the same way.
    "/$transfer/$deadletterqueue": SubQueue.TRANSFER_DEAD_LETTER,
    "/$deadletterqueue": SubQueue.DEAD_LETTER,
}


@dataclass(frozen=True, slots=True)
class Placement:
    """Which node this is, and how the others are reached."""

    index: int
    # The address of each node's hop listener, by index; empty where there is only one node.
    addresses: tuple[str, ...]
    stores: int

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return max(len(self.addresses), 1)

    def owner(self, store: int) -> int:
        """The node that owns a store."""
        return store % self.nodes


class LocalPeer:
    """This node, asked directly."""

    up = True

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._host = host

    def call(self, request: Request, answer: Callable[[Reply], None]) -> None:
        """Ask; the answer comes when it is durable."""
        self._host.handle(request, self, answer)

    def tell(self, request: Request) -> None:
        """Say something that has no answer."""
        self._host.handle(request, self, _no_answer)

    def push(self, subscription: int, messages: list[Delivered]) -> None:
        """Messages for a receiver of this node."""
        self._node.pushed(self._node.index, subscription, messages)


class Node:
    """One node of a namespace."""

    def __init__(
        self,
        placement: Placement,
        catalog: Catalog,
        open_store: Callable[[int], Store],
        make_disk: Callable[[int], Disk],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        entropy: Entropy | None = None,
        disk_of: Callable[[int], object] = lambda _: None,
        receive_cache: ReceiveCache = ReceiveCache.LEAN,
    ) -> None:
        self.placement = placement
        self.index = placement.index
        self.stores = placement.stores
        self.receive_cache = receive_cache
        self.clock = clock
        self.entropy = entropy or Entropy()
        self._loop = loop
        self._catalog = catalog
        self.snapshot: Snapshot = catalog.load()
        self.host = Host(
            clock,
            self.entropy,
            lambda entity: self.snapshot.by_id.get(entity),
            lambda entity, incarnation: (entity, incarnation) in self.snapshot.deleted,
            lambda: self.snapshot.by_id,
            self._subscriptions,
        )
        self._own_stores(open_store, make_disk, disk_of)
        self._local = LocalPeer(self, self.host)
        self._remote = {
            index: RemotePeer(index, address, self, self.pushed, self._peer_changed)
            for index, address in enumerate(placement.addresses)
            if index != placement.index
        }
        self._senders: dict[int, Sender] = {}
        self._receivers: dict[int, Receiver] = {}
        self._next_receiver = 1
        self.session_lists = SessionLists(self)
        self._lanes = [Lane() for _ in range(placement.stores)]
        self._ticking = False
        self._tickets = 0
        # Kept as long as they run.
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._served: set[Serving] = set()
        self._closed = False
        self._hop_frames = self._hop_bytes = 0
        self.host.measured.totals["hop_frames"] = lambda: self._hop_frames
        self.host.measured.totals["hop_bytes"] = lambda: self._hop_bytes
        self._idleness = Idleness(self)
        self.host.forwarder = Forwarder(self)
        # For both doors.
        self.wrong_tokens = WrongTokens()
        self.host.measured.totals["wrong_tokens"] = lambda: self.wrong_tokens.total
        # None unless this process is traced.
        self.spans: Spans | None = spans_of_process()
        # What clients change in the catalog goes through here.
        self.changes = CatalogChanges(catalog, self._catalog_written)

    def _own_stores(
        self,
        open_store: Callable[[int], Store],
        make_disk: Callable[[int], Disk],
        disk_of: Callable[[int], object],
    ) -> None:
        # Stores on one disk take turns; which disk that is, whoever laid out the files knows.
        gates: dict[object, Gate] = {}
        for store in range(self.placement.stores):
            if self.placement.owner(store) == self.placement.index:
                self.host.drivers[store] = Driver(
                    store,
                    _opener(open_store, store),
                    make_disk(store),
                    gates.setdefault(disk_of(store), Gate(self.clock)),
                    self.clock,
                    self._loop,
                    self.host.settings,
                    self.host,
                )

    # Life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the stores and find the other nodes; returns when messages can be taken."""
        opened = [self._loop.create_future() for _ in self.host.drivers]
        for future, driver in zip(opened, self.host.drivers.values(), strict=True):
            driver.open(_into(future))
        errors = await asyncio.gather(*opened)
        failed = [error for error in errors if error is not None]
        if failed and len(failed) == len(errors):
            raise failed[0]
        for error, driver in zip(errors, self.host.drivers.values(), strict=True):
            if error is not None:
                # One damaged file takes its own fragments away, not its neighbours'.
                log.error("store cannot be opened store=%d error=%s", driver.store, error)
                driver.reopen_later()
        if self._remote:
            self._server = await listen(
                self._loop,
                self.placement.addresses[self.index],
                lambda: Serving(self._loop, self, self.host, self._served),
            )
        for peer in self._remote.values():
            peer.start(self._loop)
        self._poll_catalog()
        self._idleness.start()

    async def stop(self) -> None:
        """Finish the commits under way and give the stores up."""
        if self.host.forwarder is not None:
            self.host.forwarder.stop()
        # Polled: no message should pay for an event that is waited for once in a life.
        while not all(d.idle for d in self.host.drivers.values() if d.up):  # noqa: ASYNC110
            await asyncio.sleep(SHUTDOWN_POLL_S)
        self._closed = True
        self._idleness.stop()
        self.changes.close()
        for peer in self._remote.values():
            peer.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._served):
            connection.abort()
        for driver in self.host.drivers.values():
            driver.close()

    # Entities -------------------------------------------------------------------------------

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""
        key = name_key(path)
        subqueue = SubQueue.ACTIVE
        for suffix, each in SUBQUEUES.items():
            if key.endswith(suffix):
                key, subqueue = key.removesuffix(suffix), each
                break
        entity = self.snapshot.entities.get(key)
        if entity is None:
            # It may have been made a moment ago by another node.
            self.refresh()
            entity = self.snapshot.entities.get(key)
        if entity is None:
            raise EntityNotFound(f"The messaging entity '{path}' could not be found.")
        return entity, subqueue

    def entity_now(self, entity: Entity) -> Entity:
        """The entity as it is described now, to who has known it for a while."""
        now = self.snapshot.by_id.get(entity.id)
        if now is None:
            raise EntityNotFound(f"The messaging entity '{entity.name}' has been deleted.")
        return now

    @property
    def version(self) -> int:
        """How new this node's catalog is."""
        return self.snapshot.version

    def heard(self, version: int) -> None:
        """Another node knows a catalog of this version."""
        if version > self.snapshot.version:
            self.refresh()

    def sent(self, size: int) -> None:
        """A frame of so many bytes went to another node."""
        self._hop_frames += 1
        self._hop_bytes += size

    @property
    def nodes(self) -> range:
        """The numbers of all nodes."""
        return range(self.placement.nodes)

    def refresh(self) -> None:
        """Take over what changed in the catalog."""
        if not self._catalog.changed():
            return
        self.snapshot = self._catalog.load()
        by_id = self.snapshot.by_id
        self.host.entities_changed()
        for entity_id, sender in list(self._senders.items()):
            if not sender.entity_changed(by_id.get(entity_id)):
                del self._senders[entity_id]
        for receiver in list(self._receivers.values()):
            now = by_id.get(receiver.entity.id)
            if now is None:
                receiver.lost(EntityNotFound("The messaging entity has been deleted."))
            elif now.key != receiver.entity.key:
                receiver.lost(EntityMoved("The messaging entity has another name now."))
            else:
                receiver.entity_changed(now)

    def known(self, entity: int) -> Entity | None:
        """The entity with this id; None where it is gone."""
        return self.snapshot.by_id.get(entity)

    def named(self, name: str) -> Entity | None:
        """The entity of this name."""
        try:
            return self.resolve(name)[0]
        except EntityNotFound:
            return None

    def change_catalog(
        self, change: Callable[[Catalog], object], done: Callable[[Refusal | None], None]
    ) -> None:
        """Change the catalog; done(None) once that is durable and known here."""

        async def make() -> None:
            try:
                await self.changes.make(change)
            except Refusal as refusal:
                done(refusal)
            except StoreError as error:
                done(FragmentUnavailable(f"The catalog is unavailable; try again: {error}"))
            else:
                done(None)

        task = self._loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _catalog_written(self) -> None:
        """This node has changed the catalog: it takes that over, and the others hear of it."""
        before = self.version
        self.refresh()
        if self.version != before:
            for peer in self._remote.values():
                # Nothing is asked: the version that goes with it is what matters.
                peer.tell(Count([]))

    def _subscriptions(self, topic: int) -> list[Subscribed]:
        """The subscriptions of a topic, with their rules."""
        snapshot = self.snapshot
        entity = snapshot.by_id.get(topic)
        found = snapshot.subscriptions_of(entity) if entity else []
        return [(each, snapshot.rules_of_subscription(each)) for each in found]

    def entities(self) -> Iterable[Entity]:
        """All entities there are."""
        return self.snapshot.by_id.values()

    def delete_idle(self, entity: Entity) -> None:
        """Delete an entity that nobody uses, unless it changed meanwhile."""
        self.refresh()
        if self.snapshot.by_id.get(entity.id) != entity:
            return
        try:
            self._catalog.delete(entity, self.clock.now_ms())
        except (Refusal, StoreError) as error:
            # Another node was first, or the catalog is busy: there is a next time.
            log.warning("idle entity not deleted entity=%s error=%s", entity.name, error)
            return
        log.info("idle entity deleted entity=%s", entity.name)
        self.refresh()

    def is_owner(self, store: int) -> bool:
        """Whether this node owns a store."""
        return store in self.host.drivers

    def _poll_catalog(self) -> None:
        if not self._closed:
            self.refresh()
            self.clock.call_at(self.clock.now_ms() + CATALOG_POLL_MS, self._poll_catalog)

    # Sending --------------------------------------------------------------------------------

    def sender(self, entity: Entity) -> Sender:
        """Who sends to this entity; one per entity and node, so that all share one rotation."""
        if entity.topic:
            raise InvalidOperation(f"'{entity.name}' is a subscription: send to its topic.")
        sender = self._senders.get(entity.id)
        if sender is None:
            sender = self._senders[entity.id] = Sender(self, entity)
        return sender

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""
        return self.peer(self.placement.owner(store))

    def peer(self, index: int) -> Peer:
        """A node by its number."""
        return self._local if index == self.index else self._remote[index]

    def takes_work(self, store: int) -> bool:
        """Whether a store is there and not stalled, as far as this node knows."""
        if self._lanes[store].stalled(self.clock.now_ms()):
            return False
        driver = self.host.drivers.get(store)
        return driver.up if driver is not None else self.owner(store).up

    def avoid(self, store: int, span_ms: int) -> None:
        """The store said that it is unavailable."""
        self._lanes[store].avoid_until_ms = self.clock.now_ms() + span_ms

    def new_ticket(self) -> int:
        """A number by which a send can be taken back before it is answered."""
        self._tickets += 1
        return self._tickets

    def has_senders(self, within_ms: int) -> bool:
        """Whether something was sent to the stores of this node lately."""
        return self.clock.now_ms() - self.host.sent_ms <= within_ms

    def under_way(self, store: int, pending: Pending) -> None:
        """A send is on its way to a store."""
        lane = self._lanes[store].pending
        while lane and lane[0].answered:
            lane.popleft()
        lane.append(pending)
        if not self._ticking:
            self._ticking = True
            self.clock.call_at(self.clock.now_ms() + PENDING_TICK_MS, self._tick)

    def _tick(self) -> None:
        """Send elsewhere what a stalled store has not answered."""
        self._ticking = False
        now_ms = self.clock.now_ms()
        for lane in self._lanes:
            lane.stalled(now_ms)
            for pending in lane.overdue(now_ms):
                pending.sender.overdue(pending)
        if any(lane.pending for lane in self._lanes) and not self._closed:
            self._ticking = True
            self.clock.call_at(now_ms + PENDING_TICK_MS, self._tick)

    # Receiving ------------------------------------------------------------------------------

    def receiver(
        self,
        entity: Entity,
        subqueue: SubQueue,
        mode: ReceiveMode,
        deliver: Deliver,
        lost: Callable[[Refusal], None],
    ) -> Receiver:
        """Who receives from this entity for one link or request."""
        if entity.kind == "topic":
            raise InvalidOperation(
                f"'{entity.name}' is a topic: messages are received from its subscriptions."
            )
        receiver = self.adopt(
            lambda number: Receiver(self, number, entity, subqueue, mode, deliver, lost)
        )
        receiver.start()
        return receiver

    def adopt(self, make: Callable[[int], AnyReceiver]) -> AnyReceiver:
        """Give a receiver the number under which nodes hand over messages for it."""
        receiver = make(self._next_receiver)
        self._receivers[self._next_receiver] = receiver
        self._next_receiver += 1
        return receiver

    def nodes_of(self, entity: Entity) -> list[int]:
        """The nodes that hold fragments of an entity, this one first."""
        owner = self.placement.owner
        nodes = {owner(entity.store_of(each, self.stores)) for each in entity.partitions}
        return sorted(nodes, key=lambda index: (index != self.index, index))

    def place_of(self, entity: Entity, partition: int) -> tuple[int, int]:
        """The store of a fragment, and the node that owns it."""
        store = entity.store_of(partition, self.stores)
        return store, self.placement.owner(store)

    def pushed(self, index: int, subscription: int, messages: list[Delivered]) -> None:
        """A node hands over messages for one of our receivers."""
        receiver = self._receivers.get(subscription)
        if receiver is not None:
            receiver.delivered(index, messages)

    def forget_receiver(self, number: int) -> None:
        """No node will hand over anything for this receiver any more."""
        self._receivers.pop(number, None)

    def _peer_changed(self, index: int, up: bool) -> None:
        log.info("node %s node=%d", "reached" if up else "lost", index)
        for receiver in list(self._receivers.values()):
            receiver.peer_changed(index, up)

    # Settling -------------------------------------------------------------------------------

    def settle(
        self,
        entity: Entity,
        tokens: list[bytes],
        settlement: Settlement,
        done: Callable[[dict[bytes, Refusal]], None],
        lost: Refusal = LOCK_LOST,
    ) -> None:
        """Settle messages by lock token; done(what was refused) once it is durable."""

        def ask(store: int, groups: list[Group]) -> Request:
            return Settle(store, entity.id, groups, settlement)

        ask_stores(self, tokens, ask, lambda refused, _: done(refused), lost)

    def renew(
        self,
        entity: Entity,
        tokens: list[bytes],
        done: Callable[[dict[bytes, Refusal], int], None],
    ) -> None:
        """Extend locks; done(what was refused, the new end of the locks)."""

        def ask(store: int, groups: list[Group]) -> Request:
            return Renew(store, entity.id, groups)

        ask_stores(self, tokens, ask, done)

    # Health ---------------------------------------------------------------------------------

    def unavailable_stores(self) -> list[int]:
        """Stores that do not take work now."""
        return [store for store in range(self.stores) if not self.takes_work(store)]


def _opener(open_store: Callable[[int], Store], store: int) -> Callable[[], Store]:
    return lambda: open_store(store)


def _into(future: asyncio.Future[Exception | None]) -> Callable[[Exception | None], None]:
    return lambda error: None if future.done() else future.set_result(error)


def _no_answer(_: Reply) -> None:
    """Nothing depends on the answer."""
