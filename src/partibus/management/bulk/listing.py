"""Bulk readers and staged writes as operators are told of them: JSON, and numbers for metrics.

Readers of one entity are told to who may listen to it, those of the whole namespace and what is
staged to who may manage it. Nothing is changed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from partibus.broker.access import Right
from partibus.broker.records import SubQueue
from partibus.management.calls import Call, Service, route
from partibus.runtime.bulk_readers import BROWSE, CONSUME, GONE, NEAR, FragmentReader, readers_of
from partibus.runtime.node import SUBQUEUES, Node
from partibus.store.schema import KEPT_BYTES_MAX
from partibus.store.staged import StagedBatch, list_staged

MS_PER_S = 1000
_SUFFIXES = {subqueue: suffix for suffix, subqueue in SUBQUEUES.items()}

HELP = {
    "reader_lag": "Messages that the bulk reader is not done with.",
    "reader_oldest_seconds": "How long ago the oldest of these messages came.",
    "reader_kept_bytes": "Bytes kept beyond completion for the reader that is furthest behind.",
    "reader_kept_bytes_max": "How much is kept of a fragment before a reader loses its place.",
    "reader_lost": "Whether the reader has lost its place, because too much was kept for it.",
    "reader_reserved_messages": "Messages that are reserved for the consuming reader.",
    "staged_batches": "Bulk writes that were begun and are not published.",
    "staged_attempts": "Attempts of tasks in these.",
    "staged_bytes": "Bytes of these.",
    "staged_oldest_seconds": "How long ago the oldest of these was begun.",
}

Sample = tuple[str, Mapping[str, object], float]


def routes(service: Service) -> list[Route]:
    """The paths of this module."""
    return [
        route(service, "/$partibus/bulk/{entity:path}/readers", {"GET": of_entity}),
        route(service, "/$partibus/readers", {"GET": of_all}),
        route(service, "/$partibus/staged", {"GET": staged}),
    ]


async def of_entity(call: Call) -> Response:
    """The readers of an entity and its sub-queues, or of one of these."""
    path = call.part("entity")
    call.require(Right.LISTEN, path)
    entity, subqueue = call.node.resolve(path)
    only = None if subqueue == SubQueue.ACTIVE else subqueue
    found, missing = await readers_of(call.node, entity, only)
    return JSONResponse(told(found, missing, call.node.clock.now_ms()))


async def of_all(call: Call) -> Response:
    """The readers of all entities."""
    call.require(Right.MANAGE, "")
    found, missing = await readers_of(call.node)
    return JSONResponse(told(found, missing, call.node.clock.now_ms()))


async def staged(call: Call) -> Response:
    """Bulk writes that are not published yet."""
    call.require(Right.MANAGE, "")
    now_ms = call.node.clock.now_ms()
    found = await staged_of(call.service)
    return JSONResponse({"staged": [_batch(call.node, each, now_ms) for each in found]})


async def staged_of(service: Service) -> list[StagedBatch]:
    """What is staged in the data directory; nothing where messages are in memory only."""
    if service.staging is None:
        return []
    return await asyncio.to_thread(list_staged, service.staging)


def told(found: Sequence[FragmentReader], missing: Sequence[int], now_ms: int) -> dict[str, Any]:
    """Readers with their fragments, in the order that they are found in."""
    readers = []
    for key, group in groupby(found, key=lambda each: (path_of(each), each.reader, each.mode)):
        rows = list(group)
        states = {each.state for each in rows}
        worst = next((each for each in (GONE, NEAR) if each in states), rows[0].state)
        readers.append(
            {
                "entity": key[0],
                "name": key[1],
                "mode": key[2],
                "state": worst,
                "lag": sum(each.lag for each in rows),
                "oldestSeconds": max(_age_s(each.oldest_ms, now_ms) for each in rows),
                "keptBytes": sum(each.kept_bytes for each in rows),
                "keptPercent": max(each.kept_bytes for each in rows) * 100 // KEPT_BYTES_MAX,
                "reserved": sum(each.reserved for each in rows),
                "reservedSeconds": max(
                    (_age_s(each.since_ms, now_ms) for each in rows if each.reserved), default=0
                ),
                "epoch": max(each.epoch for each in rows),
                "fragments": [_fragment(each) for each in rows],
            }
        )
    return {"readers": readers, "storesMissing": list(missing)}


def samples(
    readers: Sequence[FragmentReader], batches: Sequence[StagedBatch], now_ms: int
) -> Iterator[Sample]:
    """The numbers of readers and of what is staged."""
    for each in readers:
        where = {
            "entity": each.entity,
            "partition": each.partition,
            "subqueue": SubQueue(each.subqueue).name.lower(),
            "reader": each.reader,
            "mode": each.mode,
        }
        yield "reader_lag", where, each.lag
        yield "reader_oldest_seconds", where, _age_s(each.oldest_ms, now_ms)
        if each.mode == BROWSE:
            yield "reader_kept_bytes", where, each.kept_bytes
            yield "reader_lost", where, each.state == GONE
        elif each.mode == CONSUME:
            yield "reader_reserved_messages", where, each.reserved
    yield "reader_kept_bytes_max", {}, KEPT_BYTES_MAX
    yield "staged_batches", {}, len(batches)
    yield "staged_attempts", {}, sum(each.attempts for each in batches)
    yield "staged_bytes", {}, sum(each.bytes for each in batches)
    yield (
        "staged_oldest_seconds", {},
        max((_age_s(each.since_ms, now_ms) for each in batches), default=0),
    )  # fmt: skip


def path_of(reader: FragmentReader) -> str:
    """What a reader reads, as clients name it."""
    return reader.entity + _SUFFIXES.get(SubQueue(reader.subqueue), "")


def _fragment(reader: FragmentReader) -> dict[str, Any]:
    return {
        "fragment": reader.partition,
        "state": reader.state,
        "place": reader.place,
        "lag": reader.lag,
        "keptBytes": reader.kept_bytes,
        "reserved": reader.reserved,
    }


def _batch(node: Node, batch: StagedBatch, now_ms: int) -> dict[str, Any]:
    entity = node.snapshot.by_id.get(batch.entity)
    return {
        "entity": entity.name if entity else None,
        "writer": batch.writer,
        "batch": batch.batch,
        "attempts": batch.attempts,
        "bytes": batch.bytes,
        "decided": batch.is_decided,
        "ageSeconds": _age_s(batch.since_ms, now_ms),
    }


def _age_s(then_ms: int, now_ms: int) -> int:
    return max(now_ms - then_ms, 0) // MS_PER_S if then_ms else 0
