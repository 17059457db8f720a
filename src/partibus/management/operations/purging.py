"""Empties an entity, or one of its sub-queues, over HTTP; partitioned ones too."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from partibus.broker.access import Right
from partibus.management.calls import Call
from partibus.runtime.purging import purge


async def empty(call: Call) -> Response:
    """Remove what nobody holds. Not complete: ask again."""
    path = call.part("entity")
    call.require(Right.MANAGE, path)
    entity, subqueue = call.node.resolve(path)
    purged = await purge(call.node, entity, subqueue, call.node.clock.now_ms())
    return JSONResponse(
        {
            "deleted": purged.deleted,
            "complete": not purged.unfinished,
            "unfinished": list(purged.unfinished),
        }
    )
