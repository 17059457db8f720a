"""What bulk writers ask: stage messages that nobody sees, then publish exactly those that count.

Tasks stage attempts, the driver publishes. The first publication of a batch decides which attempts
it consists of; however late and however often it is repeated, the same messages are published and
each of them once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from partibus.broker.descriptions import Entity, QueueDescription
from partibus.broker.errors import (
    EntityDisabled,
    InvalidArgument,
    InvalidOperation,
    NotImplementedHere,
)
from partibus.broker.records import SubQueue
from partibus.management.side_process import SideProcess
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Publish, Reply
from partibus.store.staged import label
from partibus.store.staging import NAME_MAX, NotStaged, Staging, check_name, files_of

ATTEMPTS_MAX = 100_000


class Namespace(Protocol):
    """What must be known of the node."""

    @property
    def stores(self) -> int: ...

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""


class BulkWriting:
    """Writes of whole batches."""

    def __init__(self, namespace: Namespace, side: SideProcess, directory: Path | None) -> None:
        self._namespace = namespace
        self._side = side
        self._directory = directory

    async def stage(
        self,
        path: str,
        writer: str,
        batch: int,
        attempt: str,
        spread: int,
        body: AsyncIterator[bytes],
    ) -> dict[str, Any]:
        """Keep the messages of one attempt; returns how many each fragment would get."""
        entity = self._entity(path)
        _check(writer, [attempt])
        staging = self._staging()
        place = staging.place((entity.id, entity.incarnation), writer, batch)
        if await asyncio.to_thread(staging.is_done, place):
            # A replay of what is published: nothing of it is needed.
            return {"fragments": {}}
        await asyncio.to_thread(staging.prepare, place, attempt)
        await asyncio.to_thread(label, place, entity.id, writer)
        description = entity.description
        request = {
            "what": "stage",
            "place": str(place),
            "attempt": attempt,
            "spread": spread,
            "target": {
                "fragments": entity.fragments,
                "requires_session": description.requires_session,
                "detects_duplicates": description.requires_duplicate_detection,
                "message_bytes_max": description.max_message_bytes,
                "takes_blocks": entity.kind == QueueDescription.KIND
                and not description.requires_session
                and not description.requires_duplicate_detection,
            },
        }
        answer = await self._side.give(request, body)
        return {"fragments": answer["fragments"]}

    async def publish(
        self, path: str, writer: str, batch: int, attempts: dict[str, dict[str, int]]
    ) -> dict[str, Any]:
        """Publish a batch, or what is left of it; returns how many messages it has."""
        entity = self._entity(path)
        _check(writer, attempts)
        staging = self._staging()
        place = staging.place((entity.id, entity.incarnation), writer, batch)
        if await asyncio.to_thread(staging.is_done, place):
            return {"published": 0, "replayed": True}
        try:
            decided = await asyncio.to_thread(staging.decide, place, attempts)
        except NotStaged as error:
            raise InvalidArgument(f"{error}.") from error
        by_fragment: dict[int, list[tuple[str, int]]] = {}
        for fragment, file, count in files_of(place, decided):
            by_fragment.setdefault(fragment, []).append((str(file), count))
        replies = await asyncio.gather(
            *(
                self._publish(entity, fragment, writer, batch, files)
                for fragment, files in by_fragment.items()
            )
        )
        for reply in replies:
            if reply.refusal is not None:
                raise reply.refusal
        await asyncio.to_thread(staging.finish, place)
        total = sum(count for files in by_fragment.values() for _, count in files)
        return {"published": total, "replayed": decided != attempts}

    async def _publish(
        self, entity: Entity, fragment: int, writer: str, batch: int, files: list[tuple[str, int]]
    ) -> Reply:
        if fragment not in entity.partitions:
            raise InvalidArgument(f"'{entity.name}' has no fragment {fragment}.")
        store = entity.store_of(fragment, self._namespace.stores)
        request = Publish(store, entity.id, entity.incarnation, fragment, writer, batch, files)
        return await ask(self._namespace.owner(store), request)

    async def discard(self, path: str, writer: str, batch: int, attempt: str) -> None:
        """An attempt is not needed."""
        entity = self._entity(path)
        _check(writer, [attempt])
        staging = self._staging()
        place = staging.place((entity.id, entity.incarnation), writer, batch)
        await asyncio.to_thread(staging.discard, place, attempt)

    def _entity(self, path: str) -> Entity:
        entity, subqueue = self._namespace.resolve(path)
        if subqueue != SubQueue.ACTIVE:
            raise InvalidOperation("Messages cannot be sent to a sub-queue.")
        if not entity.description.allows_send:
            raise EntityDisabled(f"'{entity.name}' does not take messages: it is disabled.")
        return entity

    def _staging(self) -> Staging:
        if self._directory is None:
            raise NotImplementedHere(
                "This namespace keeps its messages in memory; bulk writes need them on disk."
            )
        return Staging(self._directory)


def _check(writer: str, attempts: Any) -> None:
    if len(attempts) > ATTEMPTS_MAX:
        raise InvalidArgument(f"A batch has at most {ATTEMPTS_MAX} attempts.")
    if not 0 < len(writer) <= NAME_MAX:
        raise InvalidArgument(f"A writer has a name of up to {NAME_MAX} characters.")
    try:
        for attempt in attempts:
            check_name("attempt", attempt)
    except ValueError as error:
        raise InvalidArgument(f"{error}.") from error
