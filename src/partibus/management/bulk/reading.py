"""What bulk readers ask: where the fragments of an entity begin and end, and what is in them.

Any node answers for any fragment, because the process beside it can open every store's file of
this machine: what a reader sees is what is durable, also while another node is down. Nothing is
locked, counted or removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound
from partibus.broker.records import SubQueue
from partibus.management.bulk.pacing import paced
from partibus.management.side_process import SideProcess


class Namespace(Protocol):
    """What must be known of the node."""

    @property
    def stores(self) -> int: ...

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""

    def has_senders(self, within_ms: int) -> bool:
        """Whether something was sent to its stores lately."""


class BulkReading:
    """Reads of whole fragments."""

    def __init__(self, namespace: Namespace, side: SideProcess) -> None:
        self._namespace = namespace
        self._side = side

    async def positions(
        self, path: str, at_ms: int | None = None, reader: str = ""
    ) -> dict[str, Any]:
        """First and last position, and counts, of all fragments; `before` a time where asked.

        For a named reader: its place, and what is kept for it counts as there.
        """
        entity, subqueue = self._namespace.resolve(path)
        fragments = [
            (self._store(entity, each), entity.id, entity.incarnation, each, int(subqueue))
            for each in entity.partitions
        ]
        answer = await self._side.ask(
            {"what": "positions", "fragments": fragments, "at_ms": at_ms, "reader": reader}
        )
        return {
            "entity": entity.name,
            "id": entity.id,
            "incarnation": entity.incarnation,
            "partitioned": entity.partitioned,
            "requiresSession": entity.description.requires_session,
            "detectsDuplicates": entity.description.requires_duplicate_detection,
            "fragments": answer["fragments"],
        }

    def messages(
        self,
        path: str,
        partition: int,
        after: int,
        upto: int,
        columns: Sequence[str],
        reader: str = "",
    ) -> AsyncIterator[bytes]:
        """The messages of a fragment with after < position <= upto, as an Arrow stream."""
        entity, subqueue = self._namespace.resolve(path)
        if partition not in entity.partitions:
            raise EntityNotFound(
                f"'{entity.name}' has no fragment {partition}; it has "
                f"{entity.partitions[0]} to {entity.partitions[-1]}."
            )
        key = (entity.id, entity.incarnation, partition, int(subqueue))
        stream = self._side.stream(
            {
                "what": "messages",
                "entity": path,
                "store": self._store(entity, partition),
                "key": key,
                "after": after,
                "upto": upto,
                "columns": list(columns),
                "reader": reader,
            }
        )
        return paced(stream, self._namespace)

    def _store(self, entity: Entity, partition: int) -> int:
        return entity.store_of(partition, self._namespace.stores)
