"""Who reads in bulk, told to operators: gathered from all stores, wherever they are served.

A store answers in order with its commits; one that does not answer in time is named and left out.
How it is written is the door's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from partibus.broker.descriptions import Entity
from partibus.broker.errors import Refusal
from partibus.broker.records import SubQueue
from partibus.runtime.bulk_requests import ListReaders
from partibus.runtime.driver import Driver
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Reply, refused
from partibus.store.cursors import LOST, NEAR_PERCENT
from partibus.store.readers import ReaderPlace
from partibus.store.schema import KEPT_BYTES_MAX

LIST_S_MAX = 2.0

BROWSE, CONSUME = "browse", "consume"
OK, NEAR, GONE = "ok", "near its limit", "lost its place"

Answer = Callable[[Reply], None]


class FragmentReader(msgspec.Struct, array_like=True, frozen=True):
    """One reader of one fragment."""

    entity: str
    partition: int
    subqueue: int
    reader: str
    mode: str
    # Of a reader that browses its position (-1: lost), of one that consumes with how many it is
    # done; and how many messages it is not done with.
    place: int
    lag: int
    kept_bytes: int
    reserved: int
    epoch: int
    # When the oldest message came that it is not done with, since when it has its batch; 0: none.
    oldest_ms: int
    since_ms: int

    @property
    def state(self) -> str:
        """How it is: whether the broker can keep messages for it."""
        if self.mode == BROWSE and self.place == LOST:
            return GONE
        return NEAR if self.kept_bytes * 100 > KEPT_BYTES_MAX * NEAR_PERCENT else OK


_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(list[FragmentReader]).decode


def tell_readers(
    driver: Driver, entity: Callable[[int], Entity | None], request: ListReaders, answer: Answer
) -> None:
    """At the broker: the readers of one store's fragments, of one entity or of all."""

    def listed(places: list[ReaderPlace], refusal: Refusal | None) -> None:
        if refusal is not None:
            answer(refused(refusal))
            return
        fragments = {each.number: (key, each) for key, each in driver.fragments.items()}
        found: list[FragmentReader] = []
        for each in places:
            if each.number not in fragments:
                continue
            key, fragment = fragments[each.number]
            known = entity(key.entity)
            if known is None or known.incarnation != key.incarnation:
                continue
            if request.entity and key.entity != request.entity:
                continue
            counters = fragment.counters
            if each.consumes:
                lag = counters.active
            else:
                lag = 0 if each.place == LOST else max(counters.next_position - 1 - each.place, 0)
            found.append(
                FragmentReader(
                    known.name, key.partition, key.subqueue, each.reader,
                    CONSUME if each.consumes else BROWSE, each.place, lag, each.kept_bytes,
                    each.reserved, each.epoch, each.oldest_ms, each.since_ms,
                )
            )  # fmt: skip
        answer(Reply(content=_write(found)))

    driver.read(lambda store: store.readers(), listed)


class Namespace(Protocol):
    """What must be known of a node to ask all stores."""

    @property
    def stores(self) -> int: ...

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""


async def readers_of(
    node: Namespace, entity: Entity | None = None, subqueue: SubQueue | None = None
) -> tuple[list[FragmentReader], list[int]]:
    """The readers of an entity, or of all; and the stores that do not answer."""
    stores: Iterable[int] = range(node.stores)
    if entity is not None:
        stores = sorted({entity.store_of(each, node.stores) for each in entity.partitions})
    asked = list(stores)
    answers = await asyncio.gather(*(_ask(node, each, entity) for each in asked))
    found = [
        each
        for answer in answers
        for each in answer or ()
        if subqueue is None or each.subqueue == subqueue
    ]
    found.sort(
        key=lambda each: (each.entity, each.subqueue, each.mode, each.reader, each.partition)
    )
    return found, [store for store, answer in zip(asked, answers, strict=True) if answer is None]


async def _ask(node: Namespace, store: int, entity: Entity | None) -> list[FragmentReader] | None:
    request = ListReaders(store, entity.id if entity else 0)
    try:
        reply = await asyncio.wait_for(ask(node.owner(store), request), LIST_S_MAX)
    except TimeoutError:
        return None
    return None if reply.content is None else _read(reply.content)
