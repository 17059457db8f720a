"""Bulk readers that consume: the broker gives them batches, which nobody else is given or shown.

A reader begins under its name and gets an epoch; whoever began before it under the same name may
not go on. It then says in turn with what it is done, which completes that, and gets more. What it
was given stays the same until it is done with it, over failures on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from partibus.broker.consuming import BEGIN, READER_NAME_MAX
from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    EntityDisabled,
    FragmentUnavailable,
    InvalidArgument,
    InvalidOperation,
)
from partibus.broker.forwarding import target_of
from partibus.broker.records import SubQueue
from partibus.management.bulk.pacing import paced
from partibus.management.side_process import SideProcess
from partibus.runtime.bulk_requests import Consume, GiveBack
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Reply

# What is given at once to a reader that sets no limit.
MOST = 200_000


class Namespace(Protocol):
    """What must be known of the node."""

    @property
    def stores(self) -> int: ...

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""

    def has_senders(self, within_ms: int) -> bool:
        """Whether something was sent to its stores lately."""


class BulkConsuming:
    """The consuming readers of entities."""

    def __init__(self, namespace: Namespace, side: SideProcess) -> None:
        self._namespace = namespace
        self._side = side

    async def begin(self, path: str, reader: str) -> dict[str, Any]:
        """The reader starts, or starts anew: its epoch, and how it stands."""
        entity, subqueue = self._entity(path, reader)
        found = await self._ask(entity, subqueue, reader, 0, {}, {})
        if not any(reply.condition == "" for reply in found.values()):
            raise FragmentUnavailable("No fragment of the entity is available; try again.")
        epoch = 1 + max(reply.positions[2] for reply in found.values() if reply.condition == "")
        begin = dict.fromkeys(entity.partitions, BEGIN)
        found = await self._ask(entity, subqueue, reader, epoch, begin, {})
        return {"epoch": epoch, **_told(entity, found)}

    async def advance(
        self, path: str, reader: str, epoch: int, done: Mapping[int, int], most: int
    ) -> dict[str, Any]:
        """Complete what the reader is done with, and give it up to so many messages more.

        A fragment with which it is not done is not given more.
        """
        entity, subqueue = self._entity(path, reader)
        if not epoch:
            raise InvalidArgument("An epoch is a number from 1 on.")
        if unknown := done.keys() - set(entity.partitions):
            raise InvalidArgument(f"There is no fragment {min(unknown)}.")
        found = await self._ask(entity, subqueue, reader, epoch, done, {})
        free = {
            fragment: reply.positions[1]
            for fragment, reply in found.items()
            if not reply.condition and reply.number == reply.positions[0] and reply.positions[1]
        }
        for shares in _rounds(free, min(most, MOST)):
            given = await self._ask(entity, subqueue, reader, epoch, done, shares)
            found |= given
            if any(
                not each.condition and each.number > each.positions[0] for each in given.values()
            ):
                break
        return _told(entity, found)

    async def remove(self, path: str, reader: str) -> None:
        """The reader is no more: what is reserved for it comes back, in its old order."""
        entity, subqueue = self._namespace.resolve(path)
        requests = {
            each: GiveBack(*self._place(entity, each, subqueue), reader)
            for each in entity.partitions
        }
        for reply in (await self._call(requests)).values():
            if reply.refusal is not None:
                raise reply.refusal

    def messages(
        self,
        path: str,
        reader: str,
        partition: int,
        after: int,
        upto: int,
        columns: Sequence[str],
    ) -> AsyncIterator[bytes]:
        """What was given with after < ordinal <= upto, as an Arrow stream."""
        entity, subqueue = self._entity(path, reader)
        if partition not in entity.partitions:
            raise InvalidArgument(f"There is no fragment {partition}.")
        store, *key = self._place(entity, partition, subqueue)
        stream = self._side.stream(
            {
                "what": "reserved",
                "entity": path,
                "store": store,
                "key": key,
                "reader": reader,
                "after": after,
                "upto": upto,
                "columns": list(columns),
            }
        )
        return paced(stream, self._namespace)

    def _entity(self, path: str, reader: str) -> tuple[Entity, SubQueue]:
        entity, subqueue = self._namespace.resolve(path)
        description = entity.description
        if not 0 < len(reader) <= READER_NAME_MAX:
            raise InvalidArgument(f"A reader has a name of up to {READER_NAME_MAX} characters.")
        if entity.kind == "topic":
            raise InvalidOperation(f"'{path}' is a topic: consume one of its subscriptions.")
        if description.requires_session and subqueue == SubQueue.ACTIVE:
            raise InvalidOperation(
                f"'{entity.name}' has sessions, which bulk readers do not lock; it can be browsed."
            )
        if target_of(description, subqueue):
            raise InvalidOperation(f"'{path}' forwards its messages; consume where they go.")
        if not description.allows_receive:
            raise EntityDisabled(f"'{entity.name}' does not give messages: it is disabled.")
        return entity, subqueue

    def _place(
        self, entity: Entity, fragment: int, subqueue: SubQueue
    ) -> tuple[int, int, int, int, int]:
        store = entity.store_of(fragment, self._namespace.stores)
        return store, entity.id, entity.incarnation, fragment, int(subqueue)

    async def _ask(
        self,
        entity: Entity,
        subqueue: SubQueue,
        reader: str,
        epoch: int,
        done: Mapping[int, int],
        shares: Mapping[int, int],
    ) -> dict[int, Reply]:
        """Ask those that have a share, or all; only who is unavailable may say no."""
        requests = {
            each: Consume(
                *self._place(entity, each, subqueue),
                reader,
                epoch,
                done.get(each, 0),
                shares.get(each, 0),
            )
            for each in shares or entity.partitions
        }
        found = await self._call(requests)
        for reply in found.values():
            refusal = reply.refusal
            if refusal is not None and not isinstance(refusal, FragmentUnavailable):
                raise refusal
        return found

    async def _call(self, requests: Mapping[int, Consume | GiveBack]) -> dict[int, Reply]:
        asked = (ask(self._namespace.owner(each.store), each) for each in requests.values())
        return dict(zip(requests, await asyncio.gather(*asked), strict=True))


def _rounds(free: Mapping[int, int], most: int) -> list[dict[int, int]]:
    """How much to ask of whom: in proportion; then of each who was left out."""
    total = sum(free.values())
    if not total or not most:
        return []
    most = min(most, total)
    shares = {fragment: most * each // total for fragment, each in free.items()}
    by_loss = sorted(free, key=lambda fragment: (-(most * free[fragment] % total), fragment))
    for fragment in by_loss[: most - sum(shares.values())]:
        shares[fragment] += 1
    asked = {fragment: share for fragment, share in shares.items() if share}
    # Where all that seemed free is locked, others may have some.
    return [asked, *({each: most} for each in free if each not in asked)]


def _told(entity: Entity, found: Mapping[int, Reply]) -> dict[str, Any]:
    fragments: list[dict[str, Any]] = []
    for fragment, reply in sorted(found.items()):
        if reply.condition:
            fragments.append({"fragment": fragment, "unavailable": reply.text})
        else:
            done, free, _ = reply.positions
            fragments.append(
                {"fragment": fragment, "done": done, "last": reply.number, "free": free}
            )
    return {"id": entity.id, "incarnation": entity.incarnation, "fragments": fragments}
