"""Sends: which fragment, and what to do when it does not answer.

A key pins its messages to a fragment. Messages without one go to any: a store that is down or
stalled is stepped over, and what was sent to it is sent elsewhere after a while. If the late
commit then succeeds after all, its copy is removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    QuotaExceeded,
    Refusal,
)
from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.message import Incoming
from partibus.broker.partitioning import (
    KEYLESS_RUN_MAX,
    Spread,
    index_of,
    key_of,
    key_of_batch,
)
from partibus.broker.records import SubQueue
from partibus.runtime.clock import Clock
from partibus.runtime.peers import Peer
from partibus.runtime.requests import CancelScheduled, Discard, Reply, Send

# A store with a send older than this gets no new work without a key.
STALLED_AFTER_MS = 1000
# Work without a key that a store has not answered by then is sent elsewhere.
REROUTE_AFTER_MS = 3000
# A store that said it is unavailable is not asked again before.
AVOID_MS = 500

# The caller's own number for a message or a batch, and the messages in it.
Item = tuple[int, list[Incoming]]
Sent = Callable[[list[int], Refusal | None], None]
# Called with the sequence number of each message.
Placed = Callable[[list[int]], None]


class EntityMoved(Refusal):
    """The entity has another name now; under the name that was asked for there may be another."""

    # Clients attach anew, and find who has the name. Said at the door only: it never travels
    # between nodes, where this condition means something else.
    condition = "amqp:link:detach-forced"
    status = 410


class Pending:
    """Messages on their way to one fragment."""

    __slots__ = (
        "answered",
        "index",
        "items",
        "keyless",
        "placed",
        "rerouted",
        "sender",
        "sent",
        "sent_ms",
        "ticket",
        "tried",
    )

    def __init__(
        self, sender: Sender, index: int, items: list[Item], sent: Sent, keyless: bool, now_ms: int
    ) -> None:
        self.sender = sender
        self.index = index
        self.items = items
        self.sent = sent
        self.keyless = keyless
        self.sent_ms = now_ms
        self.answered = False
        self.rerouted = False
        self.ticket = 0
        self.tried = {index}
        # Who wants to know where the messages came to stand.
        self.placed: Placed | None = None

    @property
    def ids(self) -> list[int]:
        """The caller's numbers."""
        return [item[0] for item in self.items]


class Lane:
    """The sends under way to one store, oldest first; tells whether the store is stalled."""

    __slots__ = ("avoid_until_ms", "pending")

    def __init__(self) -> None:
        self.pending: deque[Pending] = deque()
        self.avoid_until_ms = 0

    def stalled(self, now_ms: int) -> bool:
        """Whether the store should get no new work without a key."""
        pending = self.pending
        while pending and pending[0].answered:
            pending.popleft()
        return now_ms < self.avoid_until_ms or (
            bool(pending) and now_ms - pending[0].sent_ms > STALLED_AFTER_MS
        )

    def overdue(self, now_ms: int) -> list[Pending]:
        """Keyless sends that should go elsewhere."""
        return [
            each
            for each in self.pending
            if each.keyless
            and not each.answered
            and not each.rerouted
            and now_ms - each.sent_ms > REROUTE_AFTER_MS
        ]


class Routes(Protocol):
    """What a sender must know of its node: where stores are, and which take work."""

    clock: Clock
    stores: int

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""

    def takes_work(self, store: int) -> bool:
        """Whether a store is there and not stalled."""

    def avoid(self, store: int, span_ms: int) -> None:
        """The store said that it is unavailable."""

    def new_ticket(self) -> int:
        """A number by which a send can be taken back before it is answered."""

    def under_way(self, store: int, pending: Pending) -> None:
        """A send is on its way to a store."""


class Sender:
    """Sends to one entity, from this node."""

    def __init__(self, node: Routes, entity: Entity) -> None:
        self._node = node
        self.entity: Entity | None = entity
        self._spread = Spread(entity.fragments)
        # What is said where there is no entity any more.
        self._gone: Refusal = EntityNotFound("The messaging entity is deleted.")

    def entity_changed(self, now: Entity | None) -> bool:
        """The entity as it is now; whether this sender still sends to it."""
        assert self.entity is not None
        if now is not None and now.key != self.entity.key:
            # Who has attached by the old name means whoever has that name.
            self._gone, now = EntityMoved("The messaging entity has another name now."), None
        self.entity = now
        return now is not None

    def send(self, items: list[Item], sent: Sent) -> None:
        """Send messages and batches; sent(ids, refusal) for each group, when it is durable."""
        entity = self.entity
        if entity is None:
            sent([item[0] for item in items], self._gone)
        elif not entity.description.allows_send:
            sent(
                [item[0] for item in items],
                EntityDisabled(f"'{entity.name}' is {entity.description.status}: it takes none."),
            )
        elif entity.description.requires_session:
            self._send_in_sessions(entity, items, sent)
        else:
            self._route(entity, items, sent)

    def _send_in_sessions(self, entity: Entity, items: list[Item], sent: Sent) -> None:
        """Every message must say which session it belongs to."""
        without = [n for n, messages in items if any(m.session is None for m in messages)]
        if without:
            refusal = InvalidOperation(
                f"'{entity.name}' requires sessions: a message sent to it needs a SessionId."
            )
            sent(without, refusal)
            items = [item for item in items if item[0] not in set(without)]
        if items:
            self._route(entity, items, sent)

    def _route(self, entity: Entity, items: list[Item], sent: Sent) -> None:
        if not entity.partitioned:
            self._post(entity, 0, items, sent, keyless=False)
        else:
            self._spread_out(entity, items, sent)

    def place(self, messages: list[Incoming], placed: Placed, sent: Sent) -> None:
        """Send messages to one fragment together; placed(their numbers), then sent."""
        entity = self.entity
        index: int | None = 0
        keyless = False
        try:
            if entity is None:
                raise self._gone
            if not entity.description.allows_send:
                raise EntityDisabled(
                    f"'{entity.name}' is {entity.description.status}: it takes none."
                )
            if entity.partitioned:
                key = key_of_batch(messages, entity.description.requires_duplicate_detection)
                keyless = key is None
                index = (
                    self._spread.choose(len(messages), lambda each: self._available(entity, each))
                    if key is None
                    else index_of(key, entity.fragments)
                )
            if index is None:
                raise _none_available(entity)
        except Refusal as refusal:
            sent([0], refusal)
            return
        items = [(0, messages)]
        pending = Pending(self, index, items, sent, keyless, self._node.clock.now_ms())
        pending.placed = placed
        self._dispatch(entity, pending)

    def _spread_out(self, entity: Entity, items: list[Item], sent: Sent) -> None:
        detects = entity.description.requires_duplicate_detection
        fragments = entity.fragments
        keyed: dict[int, list[Item]] = {}
        keyless: list[Item] = []
        for item in items:
            messages = item[1]
            try:
                key = (
                    key_of(messages[0], detects)
                    if len(messages) == 1
                    else key_of_batch(messages, detects)
                )
            except Refusal as refusal:
                sent([item[0]], refusal)
                continue
            if key is None:
                keyless.append(item)
            else:
                keyed.setdefault(index_of(key, fragments), []).append(item)
        for index, group in keyed.items():
            self._post(entity, index, group, sent, keyless=False)
        if keyless:
            self._send_keyless(entity, keyless, sent)

    def _send_keyless(self, entity: Entity, items: list[Item], sent: Sent) -> None:
        """Runs of up to KEYLESS_RUN_MAX messages stay together."""
        groups: dict[int, list[Item]] = {}
        start = count = 0
        for at, item in enumerate(items):
            size = len(item[1])
            if count and count + size > KEYLESS_RUN_MAX:
                self._assign(entity, items[start:at], count, groups, sent)
                start, count = at, 0
            count += size
        self._assign(entity, items[start:], count, groups, sent)
        for index, group in groups.items():
            self._post(entity, index, group, sent, keyless=True)

    def _assign(
        self,
        entity: Entity,
        run: list[Item],
        count: int,
        groups: dict[int, list[Item]],
        sent: Sent,
    ) -> None:
        index = self._spread.choose(count, lambda each: self._available(entity, each))
        if index is None:
            sent([item[0] for item in run], _none_available(entity))
        else:
            groups.setdefault(index, []).extend(run)

    def _available(self, entity: Entity, index: int) -> bool:
        return self._node.takes_work(entity.store_of(entity.partitions[index], self._node.stores))

    def _post(
        self, entity: Entity, index: int, items: list[Item], sent: Sent, *, keyless: bool
    ) -> None:
        pending = Pending(self, index, items, sent, keyless, self._node.clock.now_ms())
        self._dispatch(entity, pending)

    def _dispatch(self, entity: Entity, pending: Pending) -> None:
        node = self._node
        partition = entity.partitions[pending.index]
        store = entity.store_of(partition, node.stores)
        messages = [message for item in pending.items for message in item[1]]
        if pending.keyless:
            pending.ticket = node.new_ticket()
        request = Send(store, entity.id, entity.incarnation, partition, messages, pending.ticket)
        node.under_way(store, pending)
        node.owner(store).call(request, lambda reply: self._answered(request, pending, reply))

    def _answered(self, request: Send, pending: Pending, reply: Reply) -> None:
        pending.answered = True
        refusal = reply.refusal
        if isinstance(refusal, FragmentUnavailable):
            self._node.avoid(request.store, AVOID_MS)
        if pending.rerouted:
            if refusal is None:
                self._take_back(request, reply.number)
        elif pending.keyless and isinstance(refusal, FragmentUnavailable | QuotaExceeded):
            self.reroute(pending, refusal)
        else:
            if pending.placed is not None and refusal is None:
                pending.placed(_numbers(request, reply))
            pending.sent(pending.ids, refusal)

    def _take_back(self, request: Send, first: int) -> None:
        """The commit was late, not lost: the same messages are elsewhere by now."""
        positions = list(range(first, first + len(request.messages)))
        place = request.store, request.entity, request.incarnation, request.partition
        owner = self._node.owner(request.store)
        owner.call(Discard(*place, positions), lambda _: None)
        high = request.partition << PARTITION_SHIFT
        for position, message in zip(positions, request.messages, strict=True):
            if message.due_ms:
                cancel = CancelScheduled(*place, SubQueue.ACTIVE, [high | position])
                owner.call(cancel, lambda _: None)

    def overdue(self, pending: Pending) -> None:
        """The store does not answer: it shall not show what goes elsewhere now."""
        entity, node = self.entity, self._node
        if entity is not None:
            partition = entity.partitions[pending.index]
            store = entity.store_of(partition, node.stores)
            node.owner(store).tell(
                Discard(store, entity.id, entity.incarnation, partition, [], pending.ticket)
            )
        self.reroute(pending)

    def reroute(self, pending: Pending, refusal: Refusal | None = None) -> None:
        """Send messages without a key to a fragment that was not tried yet."""
        pending.rerouted = True
        entity = self.entity
        if entity is None:
            pending.sent(pending.ids, self._gone)
            return
        tried = pending.tried
        count = sum(len(item[1]) for item in pending.items)
        index = self._spread.choose(
            count, lambda each: each not in tried and self._available(entity, each)
        )
        if index is None:
            pending.sent(pending.ids, refusal or _none_available(entity))
            return
        again = Pending(self, index, pending.items, pending.sent, True, self._node.clock.now_ms())
        again.tried = tried | {index}
        again.placed = pending.placed
        self._dispatch(entity, again)


def _numbers(request: Send, reply: Reply) -> list[int]:
    """The sequence numbers of what was sent; those of dropped duplicates name no message."""
    first = reply.number
    positions = reply.positions or range(first, first + len(request.messages))
    return [request.partition << PARTITION_SHIFT | position for position in positions]


def _none_available(entity: Entity) -> Refusal:
    return FragmentUnavailable(f"No fragment of '{entity.name}' is available; try again.")
