"""Operations by sequence number: which fragment they go to, and what may be asked at once.

The partition id stands in the top bits of a number, so any node finds the fragment. A peek on a
partitioned entity shows the messages of one fragment after the other, in the order of partition
ids, and steps over fragments that do not answer (SPEC 1.7, 1.9). What happens to the messages is
decided where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    FragmentUnavailable,
    InvalidOperation,
    MessageNotFound,
    NotImplementedHere,
    Refusal,
)
from partibus.broker.fragment import COUNTER_MASK, PARTITION_SHIFT
from partibus.broker.partitioning import index_of
from partibus.broker.records import SubQueue
from partibus.runtime.clock import Clock, Timer
from partibus.runtime.peers import Peer
from partibus.runtime.requests import (
    CancelScheduled,
    DeleteReady,
    Delivered,
    Peek,
    ReceiveDeferred,
    Reply,
)
from partibus.runtime.session_receiving import SessionReceiver

# A fragment that has not answered a peek by then is stepped over.
PEEK_PATIENCE_MS = 3000

Messages = Callable[[list[Delivered], Refusal | None], None]


class Fragments(Protocol):
    """What must be known of a node to ask a fragment."""

    clock: Clock
    stores: int

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""

    def takes_work(self, store: int) -> bool:
        """Whether a store is there and not stalled."""


@dataclass(frozen=True, slots=True)
class View:
    """What a browser wants to see."""

    sequence: int
    count: int
    session: str | None = None
    omit_body: bool = False


def peek(node: Fragments, entity: Entity, subqueue: SubQueue, view: View, done: Messages) -> None:
    """Show messages of the first fragment that has some, from a sequence number on."""
    if view.session is not None:
        partitions = [entity.partitions[index_of(view.session, entity.fragments)]]
    else:
        start = view.sequence >> PARTITION_SHIFT
        partitions = [each for each in entity.partitions if each >= start]
    _Browse(node, entity, subqueue, view, partitions, done).next()


class _Browse:
    """One peek on its way from fragment to fragment."""

    def __init__(
        self,
        node: Fragments,
        entity: Entity,
        subqueue: SubQueue,
        view: View,
        partitions: list[int],
        done: Messages,
    ) -> None:
        self._node = node
        self._entity = entity
        self._subqueue = subqueue
        self._view = view
        self._partitions = partitions
        self._done = done
        self._at = -1
        self._silent: Refusal | None = None
        self._answered = 0
        self._patience: Timer | None = None

    def next(self) -> None:
        """Ask the next fragment, or say that there is nothing."""
        node, entity, view = self._node, self._entity, self._view
        self._at += 1
        if self._at == len(self._partitions):
            # Only who could ask nobody at all is told so.
            self._done([], None if self._answered else self._silent)
            return
        at = self._at
        partition = self._partitions[at]
        store = entity.store_of(partition, node.stores)
        if entity.partitioned and not node.takes_work(store):
            self._skip(at, FragmentUnavailable(f"Store {store} is unavailable; try again."))
            return
        request = Peek(
            store, entity.id, entity.incarnation, partition, self._subqueue,
            max(view.sequence, partition << PARTITION_SHIFT), view.count, view.session,
            view.omit_body,
        )  # fmt: skip
        late = FragmentUnavailable(f"Fragment {partition} does not answer; try again.")
        self._patience = node.clock.call_at(
            node.clock.now_ms() + PEEK_PATIENCE_MS, lambda: self._skip(at, late)
        )
        node.owner(store).call(request, lambda reply: self._took(at, reply))

    def _took(self, at: int, reply: Reply) -> None:
        if at != self._at:
            # It was stepped over meanwhile.
            return
        if self._patience is not None:
            self._patience.cancel()
        refusal = reply.refusal
        if isinstance(refusal, FragmentUnavailable):
            self._skip(at, refusal)
        elif refusal is not None or reply.messages:
            self._at = len(self._partitions)
            self._done(reply.messages, refusal)
        else:
            self._answered += 1
            self.next()

    def _skip(self, at: int, refusal: Refusal) -> None:
        if at == self._at:
            self._silent = refusal
            self.next()


def receive_deferred(
    node: Fragments,
    entity: Entity,
    subqueue: SubQueue,
    sequences: list[int],
    done: Messages,
    *,
    delete: bool,
    holder: SessionReceiver | None = None,
) -> None:
    """Lock or delete deferred messages of one fragment: all of them, or none.

    Where there are sessions, they are had only by the `holder` of theirs.
    """
    partition = partition_of(entity, sequences)
    store = entity.store_of(partition, node.stores)
    session, subscription = (holder.session, holder.number) if holder is not None else (None, 0)
    node.owner(store).call(
        ReceiveDeferred(
            store,
            entity.id,
            entity.incarnation,
            partition,
            subqueue,
            sequences,
            delete,
            session,
            subscription,
        ),
        lambda reply: done(reply.messages, reply.refusal),
    )


def cancel_scheduled(
    node: Fragments, entity: Entity, sequences: list[int], done: Callable[[Refusal | None], None]
) -> None:
    """Remove scheduled messages of one fragment: all of them, or none."""
    partition = partition_of(entity, sequences)
    store = entity.store_of(partition, node.stores)
    node.owner(store).call(
        CancelScheduled(
            store, entity.id, entity.incarnation, partition, SubQueue.ACTIVE, sequences
        ),
        lambda reply: done(reply.refusal),
    )


def delete_messages(
    node: Fragments,
    entity: Entity,
    subqueue: SubQueue,
    count: int,
    until_ms: int,
    done: Callable[[int, Refusal | None], None],
) -> None:
    """Remove messages that nobody holds, the oldest first; done(how many)."""
    if entity.partitioned:
        raise NotImplementedHere("Messages of a partitioned entity cannot be deleted in batches.")
    store = entity.store_of(0, node.stores)
    node.owner(store).call(
        DeleteReady(store, entity.id, entity.incarnation, 0, subqueue, count, until_ms),
        lambda reply: done(reply.number, reply.refusal),
    )


def partition_of(entity: Entity, sequences: list[int]) -> int:
    """The one partition that all these numbers name."""
    partitions = {sequence >> PARTITION_SHIFT for sequence in sequences}
    if len(partitions) > 1:
        raise InvalidOperation(
            "The request names sequence numbers from different partitions "
            f"({', '.join(map(str, sorted(partitions)))}); one request may name those of one."
        )
    partition = partitions.pop()
    if partition not in entity.partitions:
        raise MessageNotFound(
            f"There is no message with the sequence number {sequences[0] & COUNTER_MASK}."
        )
    return partition
