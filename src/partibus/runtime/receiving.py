"""Receives: one receiver, all fragments, and the gateway's cache between them.

Every node that holds fragments of the entity is asked; messages come back locked. What comes
beyond the receiver's credit is kept here for its next request, served before a drain is answered,
and given back, with no delivery counted, when the receiver goes or stays idle for a second.
Receive-and-delete completes a message durably before it hands it over: at most once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityDisabled, InvalidOperation, Refusal
from partibus.broker.forwarding import check_receivable
from partibus.broker.records import SubQueue
from partibus.broker.settlement import COMPLETE, RELEASE, Settlement
from partibus.runtime.clock import Clock, Timer
from partibus.runtime.peers import Peer
from partibus.runtime.requests import Credit, Delivered, Drain, Reply, Subscribe, Unsubscribe
from partibus.runtime.source import Source

CACHE_IDLE_MS = 1000
# A node that has not answered by then is taken to have nothing.
PATIENCE_MS = 250
DRAIN_PATIENCE_MS = 1000
# However much credit a client gives, this much is asked of a node at a time.
ASK_MAX = 4096

Deliver = Callable[[list[Delivered]], None]


class ReceiveMode(Enum):
    """How a receiver takes messages."""

    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class ReceiveCache(Enum):
    """How much may wait in the cache."""

    # Only nodes that have nothing are asked for more than their part: little waits.
    LEAN = "lean"
    # Every node is asked for everything at once, as the original does.
    EAGER = "eager"


class Nodes(Protocol):
    """What a receiver must know of its node: the others, and how to settle."""

    clock: Clock
    index: int
    receive_cache: ReceiveCache

    def nodes_of(self, entity: Entity) -> list[int]:
        """The nodes that hold fragments of an entity."""

    def place_of(self, entity: Entity, partition: int) -> tuple[int, int]:
        """The store of a fragment, and the node that owns it."""

    def peer(self, index: int) -> Peer:
        """A node by its number."""

    def settle(
        self,
        entity: Entity,
        tokens: list[bytes],
        settlement: Settlement,
        done: Callable[[dict[bytes, Refusal]], None],
    ) -> None:
        """Settle messages by lock token."""

    def forget_receiver(self, number: int) -> None:
        """No node will hand over anything for this receiver any more."""


class Receiver:
    """Receives from one entity or sub-queue, for one link or request."""

    def __init__(
        self,
        node: Nodes,
        number: int,
        entity: Entity,
        subqueue: SubQueue,
        mode: ReceiveMode,
        deliver: Deliver,
        lost: Callable[[Refusal], None],
    ) -> None:
        self._node = node
        self.number = number
        self.entity = entity
        self.subqueue = subqueue
        self._mode = mode
        self._deliver = deliver
        self.lost = lost
        self._sources = {index: Source(index) for index in node.nodes_of(entity)}
        self._credit = 0
        self._cache: deque[Delivered] = deque()
        # Messages that are being deleted before they are handed over.
        self._deleting = 0
        self._paused = False
        self._closed = False
        self._drained: Callable[[], None] | None = None
        self._draining = 0
        # Counts drains, so that a late answer is not taken for the next one's.
        self._drains = 0
        self._idle: Timer | None = None
        # When the cache was last served from, or added to.
        self._active_ms = 0
        self._eager = node.receive_cache is ReceiveCache.EAGER
        self._asking = False
        self._ask_again = False
        self._turn = 0
        self._patience: Timer | None = None

    def start(self) -> None:
        """Subscribe at all nodes that can be reached."""
        for index in self._sources:
            self.peer_changed(index, self._node.peer(index).up)

    # The receiver's side --------------------------------------------------------------------

    def set_credit(self, credit: int) -> None:
        """How many messages the receiver takes from now on."""
        # What is being deleted was promised to the receiver, who cannot know of it yet.
        self._credit = max(credit - self._deleting, 0)
        self._serve()
        self._ask()

    def drain(self, drained: Callable[[], None]) -> None:
        """Give what is there up to the credit, then drained(); the credit is used up by it."""
        self._drained = drained
        self._draining = 1
        self._drains += 1
        number = self._drains
        clock = self._node.clock
        clock.call_at(clock.now_ms() + DRAIN_PATIENCE_MS, lambda: self._give_up_drain(number))
        for source in self._sources.values():
            if source.up:
                self._draining += 1
                self._limit(source, source.received + max(self._credit - len(self._cache), 0))
                self._node.peer(source.index).call(Drain(self.number), self._drain_of(source))
        self._one_drained()

    def pause(self) -> None:
        """The receiver cannot take more for now."""
        self._paused = True
        self._ask()

    def resume(self) -> None:
        """The receiver can take more again."""
        self._paused = False
        self._serve()
        self._ask()

    def close(self) -> None:
        """The receiver is gone; what it did not get is given back, uncounted."""
        if self._closed:
            return
        self._closed = True
        waiting = [source for source in self._sources.values() if source.up]
        open_sources = len(waiting)

        def unsubscribed(_: Reply) -> None:
            nonlocal open_sources
            open_sources -= 1
            if not open_sources:
                self._node.forget_receiver(self.number)

        for source in waiting:
            self._node.peer(source.index).call(Unsubscribe(self.number), unsubscribed)
        if not waiting:
            self._node.forget_receiver(self.number)
        self._give_back(list(self._cache))
        self._cache.clear()

    # The sources' side ----------------------------------------------------------------------

    def delivered(self, index: int, messages: list[Delivered]) -> None:
        """A node handed over messages."""
        if self._closed:
            self._give_back(messages)
            return
        source = self._sources[index]
        source.received += len(messages)
        source.dry = not messages
        if not messages:
            self._ask()
            return
        if (
            self._credit >= len(messages)
            and not self._cache
            and not self._paused
            and self._mode is ReceiveMode.PEEK_LOCK
        ):
            self._credit -= len(messages)
            self._deliver(messages)
        else:
            self._cache.extend(messages)
            self._serve()
        self._ask()

    def peer_changed(self, index: int, up: bool) -> None:
        """A node came or went. Subscriptions do not survive a lost connection."""
        source = self._sources.get(index)
        if source is None or self._closed:
            return
        source.up = up
        source.limit = source.received = 0
        source.dry = False
        if up:
            entity = self.entity
            self._node.peer(index).tell(
                Subscribe(self.number, entity.id, entity.incarnation, self.subqueue)
            )
            self._ask()

    def entity_changed(self, entity: Entity) -> None:
        """The entity's description changed."""
        self.entity = entity
        if not entity.description.allows_receive:
            self.lost(EntityDisabled(f"'{entity.name}' is {entity.description.status}."))
            return
        try:
            check_receivable(entity, self.subqueue)
        except InvalidOperation as refusal:
            self.lost(refusal)

    # Steps of the above ---------------------------------------------------------------------

    def _ask(self) -> None:
        """Tell each node how many messages we would take now."""
        self._ask_again = True
        if self._asking:
            # A node answered while it was asked; the loop below looks again.
            return
        self._asking = True
        try:
            while self._ask_again:
                self._ask_again = False
                self._share_out()
        finally:
            self._asking = False

    def _share_out(self) -> None:
        """Divide what we want among the nodes that have something; the others may surprise us.

        A node that has nothing keeps a standing request for all of it. So what comes too much,
        and waits in the cache, is only what arrived in the same moment at several nodes.
        """
        if self._drained is not None:
            # All of it was asked of everyone; who has answered is not asked again.
            return
        want = 0 if self._paused or self._closed else max(self._credit - len(self._cache), 0)
        want = min(want, ASK_MAX)
        rich: list[Source] = []
        for source in self._sources.values():
            if source.up and not source.dry and not self._eager:
                rich.append(source)
            elif source.up and not want <= source.outstanding <= 2 * want:
                self._limit(source, source.received + want)
        if rich:
            self._share_among(rich, want)

    def _share_among(self, rich: list[Source], want: int) -> None:
        here = self._node.index
        free = max(want - sum(s.outstanding for s in rich if s.index != here), 0)
        share = want // len(rich)
        if not share:
            # Too little to divide: they take turns.
            self._turn += 1
            rich = [rich[self._turn % len(rich)]]
            share = want
        for source in rich:
            if source.index != here and free and source.outstanding * 2 <= share:
                more = min(share - source.outstanding, free)
                free -= more
                self._limit(source, source.limit + more)
                self._lose_patience_later()
        for source in rich:
            if source.index == here:
                self._limit(source, source.received + free)

    def _lose_patience_later(self) -> None:
        if self._patience is None:
            clock = self._node.clock
            self._patience = clock.call_at(clock.now_ms() + PATIENCE_MS, self._lose_patience)

    def _lose_patience(self) -> None:
        """A node that does not answer must not keep us from asking the others."""
        self._patience = None
        if self._closed:
            return
        since_ms = self._node.clock.now_ms() - PATIENCE_MS
        for source in self._sources.values():
            if source.outstanding and not source.dry:
                if source.asked_ms <= since_ms:
                    source.dry = True
                else:
                    self._lose_patience_later()
        self._ask()

    def _limit(self, source: Source, limit: int) -> None:
        if limit != source.limit:
            source.limit = limit
            source.asked_ms = self._node.clock.now_ms()
            self._node.peer(source.index).tell(Credit(self.number, limit))

    def _serve(self) -> None:
        count = 0 if self._paused else min(self._credit, len(self._cache))
        if count > 0:
            messages = [self._cache.popleft() for _ in range(count)]
            self._credit -= count
            if self._mode is ReceiveMode.PEEK_LOCK:
                self._deliver(messages)
            else:
                self._delete_then_deliver(messages)
        if self._cache:
            self._watch_cache()

    def _delete_then_deliver(self, messages: list[Delivered]) -> None:
        self._deleting += len(messages)

        def deleted(refused: dict[bytes, Refusal]) -> None:
            self._deleting -= len(messages)
            sure = [each for each in messages if each.token not in refused]
            if sure and not self._closed:
                self._deliver(sure)
            self._credit += len(refused)
            if self._drained is not None:
                self._finish_drain()
            elif refused:
                self._ask()

        self._node.settle(self.entity, [each.token for each in messages], COMPLETE, deleted)

    def _drain_of(self, source: Source) -> Callable[[Reply], None]:
        number = self._drains

        def drained(reply: Reply) -> None:
            if not reply.condition:
                source.limit = source.received
            if number == self._drains and self._draining:
                self._one_drained()

        return drained

    def _give_up_drain(self, number: int) -> None:
        """A store or node that hangs must not keep the receiver from what the others gave."""
        if number == self._drains and self._draining:
            self._draining = 1
            self._one_drained()

    def _one_drained(self) -> None:
        self._draining -= 1
        if not self._draining:
            self._serve()
            self._finish_drain()

    def _finish_drain(self) -> None:
        if self._draining or self._deleting or self._drained is None:
            return
        drained, self._drained = self._drained, None
        self._credit = 0
        drained()

    def _watch_cache(self) -> None:
        clock = self._node.clock
        self._active_ms = clock.now_ms()
        if self._idle is None and not self._closed:
            self._idle = clock.call_at(self._active_ms + CACHE_IDLE_MS, self._cache_idle)

    def _cache_idle(self) -> None:
        self._idle = None
        if not self._cache or self._closed:
            return
        clock = self._node.clock
        end_ms = self._active_ms + CACHE_IDLE_MS
        if clock.now_ms() < end_ms:
            self._idle = clock.call_at(end_ms, self._cache_idle)
            return
        messages = list(self._cache)
        self._cache.clear()
        self._give_back(messages)

    def _give_back(self, messages: list[Delivered]) -> None:
        if messages:
            tokens = [each.token for each in messages]
            self._node.settle(self.entity, tokens, RELEASE, lambda _: None)
