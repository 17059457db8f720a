"""Named bulk readers: messages stay readable for them until they have passed.

A reader tells up to where it has read each fragment. What leaves the entity behind that place is
kept for it, within a limit, where nobody else sees it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import InvalidArgument
from partibus.broker.records import POSITION_MAX, SubQueue
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import MoveCursor

NAME_MAX = 128


class Namespace(Protocol):
    """What must be known of the node."""

    @property
    def stores(self) -> int: ...

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""


class BulkReaders:
    """The named readers of entities."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def move(self, path: str, reader: str, positions: dict[int, int]) -> None:
        """The reader has read up to these positions; those not named stay as they are."""
        entity, subqueue = self._namespace.resolve(path)
        for fragment, position in positions.items():
            if fragment not in entity.partitions or not 0 <= position <= POSITION_MAX:
                raise InvalidArgument(f"Fragment {fragment} has no position {position}.")
        await self._tell(entity, subqueue, reader, dict(positions))

    async def remove(self, path: str, reader: str) -> None:
        """The reader is no more: nothing is kept for it."""
        entity, subqueue = self._namespace.resolve(path)
        await self._tell(entity, subqueue, reader, dict.fromkeys(entity.partitions))

    async def _tell(
        self,
        entity: Entity,
        subqueue: SubQueue,
        reader: str,
        positions: dict[int, int] | dict[int, None],
    ) -> None:
        if not 0 < len(reader) <= NAME_MAX or reader == "*":
            raise InvalidArgument(f"A reader has a name of up to {NAME_MAX} characters, but not *.")
        asked = []
        for fragment, position in positions.items():
            store = entity.store_of(fragment, self._namespace.stores)
            request = MoveCursor(
                store, entity.id, entity.incarnation, fragment, int(subqueue), reader, position
            )
            asked.append(ask(self._namespace.owner(store), request))
        for reply in await asyncio.gather(*asked):
            if reply.refusal is not None:
                raise reply.refusal
