"""Empties an entity: removes what nobody holds from all of its fragments, step by step.

Each step is durable when it is answered, and other work goes on between steps. What is locked
stays, and so does what arrives after the purge began. A fragment that is down is left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.broker.records import SubQueue
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Purge, Reply

STEP_MESSAGES = 500
# After this the answer says how far it came; who wants the rest asks again.
PURGE_S_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Purged:
    """How many messages were removed, and which fragments may still hold some."""

    deleted: int
    unfinished: tuple[int, ...]


class Fragments(Protocol):
    """What must be known of a node."""

    stores: int

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""


async def purge(node: Fragments, entity: Entity, subqueue: SubQueue, until_ms: int) -> Purged:
    """Empty all fragments of an entity, side by side."""
    deadline_s = asyncio.get_running_loop().time() + PURGE_S_MAX
    steps = [_Fragment(node, entity, each, subqueue, until_ms) for each in entity.partitions]
    await asyncio.gather(*(each.run(deadline_s) for each in steps))
    unfinished = tuple(each.partition for each in steps if not each.is_empty)
    return Purged(sum(each.deleted for each in steps), unfinished)


class _Fragment:
    """One fragment that is being emptied."""

    def __init__(
        self, node: Fragments, entity: Entity, partition: int, subqueue: SubQueue, until_ms: int
    ) -> None:
        self._node = node
        self._entity = entity
        self._subqueue = subqueue
        self._until_ms = until_ms
        self.partition = partition
        self.deleted = 0
        self.is_empty = False

    async def run(self, deadline_s: float) -> None:
        """Go through it until nothing is found, or time is up, or it does not answer."""
        loop = asyncio.get_running_loop()
        sequence, found = 0, 0
        while loop.time() < deadline_s:
            try:
                async with asyncio.timeout_at(deadline_s):
                    reply = await self._step(sequence)
            except (TimeoutError, FragmentUnavailable):
                return
            self.deleted += reply.number
            found += reply.number
            sequence = reply.positions[0] if reply.positions else 0
            if not sequence:
                # What was read into memory meanwhile is found by going through it once more.
                if not found:
                    self.is_empty = True
                    return
                found = 0

    async def _step(self, sequence: int) -> Reply:
        entity = self._entity
        store = entity.store_of(self.partition, self._node.stores)
        request = Purge(
            store,
            entity.id,
            entity.incarnation,
            self.partition,
            self._subqueue,
            sequence,
            STEP_MESSAGES,
            self._until_ms,
        )
        reply = await ask(self._node.owner(store), request)
        refusal: Refusal | None = reply.refusal
        if refusal is not None:
            raise refusal
        return reply
