"""`GET /$partibus/fragments/{entity}`: where the fragments of an entity lie and how they are.

With `?key=`, also which of them a key goes to, so that an operator can tell what an outage
touches. For who may manage the entity.
"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.partitioning import index_of
from partibus.management.calls import Call, Service, route
from partibus.runtime.counting import count


def routes(service: Service) -> list[BaseRoute]:
    """The path of this module."""
    return [route(service, "/$partibus/fragments/{entity:path}", {"GET": answer})]


async def answer(call: Call) -> Response:
    """All fragments of an entity."""
    path = call.part("entity")
    call.require(Right.MANAGE, path)
    entity, _ = call.node.resolve(path)
    (counts,) = await count(call.node, [entity])
    rows = []
    for each in counts.fragments:
        store, node = call.node.place_of(entity, each.partition)
        rows.append(
            {
                "partition": each.partition,
                "store": store,
                "node": node,
                "available": each.is_up,
                "active": each.active,
                "deferred": each.deferred,
                "scheduled": each.scheduled,
                "deadLetters": each.dead_letters,
                "transfers": each.transfers,
                "transferDeadLetters": each.transfer_dead_letters,
                "bytes": each.size,
            }
        )
    body: dict[str, object] = {"entity": entity.name, "fragments": rows}
    key = call.request.query_params.get("key")
    if key is not None:
        body["key"] = key
        body["partition"] = partition_of(entity, key)
    return JSONResponse(body)


def partition_of(entity: Entity, key: str) -> int:
    """The partition that a key pins its messages to."""
    return entity.partitions[index_of(key, entity.fragments) if entity.partitioned else 0]
