"""Counts and sizes of entities, added up over the fragments on all nodes (M2).

Each node counts the fragments in its own stores (census). A fragment whose store or node does not
answer in time is left out and called unavailable. Who may see counts is the doors' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from partibus.broker.descriptions import Entity
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Count, Reply

# A paused node answers late or not at all; its fragments are unavailable then.
COUNT_S_MAX = 2.0


class FragmentCounts(msgspec.Struct, array_like=True, frozen=True):
    """What one fragment holds."""

    partition: int
    is_up: bool = False
    active: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letters: int = 0
    transfer_dead_letters: int = 0
    size: int = 0
    # On their way to another entity.
    transfers: int = 0


class EntityCounts(msgspec.Struct, array_like=True):
    """What an entity holds, by fragment; and when it was last used, 0 where nobody remembers."""

    fragments: list[FragmentCounts]
    used_ms: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every fragment is available."""
        return all(each.is_up for each in self.fragments)

    @property
    def active(self) -> int:
        """Messages that are neither scheduled nor dead; deferred ones count here, as they do
        in the service."""
        return sum(each.active + each.deferred for each in self.fragments)

    @property
    def scheduled(self) -> int:
        """Messages whose time has not come."""
        return sum(each.scheduled for each in self.fragments)

    @property
    def dead_letters(self) -> int:
        """Messages in the dead-letter queue."""
        return sum(each.dead_letters for each in self.fragments)

    @property
    def transfer_dead_letters(self) -> int:
        """Messages that could not be forwarded."""
        return sum(each.transfer_dead_letters for each in self.fragments)

    @property
    def transfers(self) -> int:
        """Messages on their way to another entity."""
        return sum(each.transfers for each in self.fragments)

    @property
    def messages(self) -> int:
        """All messages."""
        dead = self.dead_letters + self.transfer_dead_letters
        return self.active + self.scheduled + self.transfers + dead

    @property
    def size(self) -> int:
        """The bytes of all messages."""
        return sum(each.size for each in self.fragments)


write_counts = msgspec.msgpack.Encoder().encode
read_counts = msgspec.msgpack.Decoder(list[EntityCounts]).decode


class Namespace(Protocol):
    """What must be known of a node to count all over the namespace."""

    stores: int

    def nodes_of(self, entity: Entity) -> list[int]:
        """The nodes that hold fragments of an entity."""

    def peer(self, index: int) -> Peer:
        """A node by its number."""

    def takes_work(self, store: int) -> bool:
        """Whether a store is there and not stalled, as far as this node knows."""


async def count(node: Namespace, entities: Iterable[Entity]) -> list[EntityCounts]:
    """What each of these entities holds, from all nodes at once."""
    wanted = list(entities)
    by_node: dict[int, list[Entity]] = {}
    for entity in wanted:
        for index in node.nodes_of(entity):
            by_node.setdefault(index, []).append(entity)
    answers = await asyncio.gather(*(_ask(node, index, asked) for index, asked in by_node.items()))
    found: dict[tuple[int, int], FragmentCounts] = {}
    used: dict[int, int] = {}
    for asked, answer in zip(by_node.values(), answers, strict=True):
        for entity, counts in zip(asked, answer, strict=False):
            used[entity.id] = max(used.get(entity.id, 0), counts.used_ms)
            found |= {(entity.id, each.partition): each for each in counts.fragments}

    def fragment(entity: Entity, partition: int) -> FragmentCounts:
        missing = FragmentCounts(partition)
        if not node.takes_work(entity.store_of(partition, node.stores)):
            return missing
        return found.get((entity.id, partition), missing)

    return [
        EntityCounts([fragment(each, partition) for partition in each.partitions], used[each.id])
        for each in wanted
    ]


async def _ask(node: Namespace, index: int, entities: list[Entity]) -> list[EntityCounts]:
    lives = [
        (each.id, each.incarnation, [(p, each.store_of(p, node.stores)) for p in each.partitions])
        for each in entities
    ]
    try:
        reply = await asyncio.wait_for(ask(node.peer(index), Count(lives)), COUNT_S_MAX)
    except TimeoutError:
        reply = Reply()
    if reply.content is None:
        return [EntityCounts([]) for _ in entities]
    return read_counts(reply.content)
