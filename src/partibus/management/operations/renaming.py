"""Other names for queues and topics, and exchanging two names at once (M5).

Links to a name that has changed hands are detached, so that clients attach anew and find who has
the name now.
"""

from __future__ import annotations

import msgspec
from starlette.responses import JSONResponse, Response

from partibus.broker.access import Right
from partibus.management.calls import Call
from partibus.management.operations.json_bodies import read_json


class Rename(msgspec.Struct, forbid_unknown_fields=True):
    """What a rename asks for."""

    name: str


class Swap(msgspec.Struct, forbid_unknown_fields=True):
    """What a swap asks for."""

    other: str = msgspec.field(name="with")


async def rename(call: Call) -> Response:
    """Give an entity another name."""
    name = call.part("entity")
    call.require(Right.MANAGE, name)
    wanted = await read_json(call, Rename)
    call.require(Right.MANAGE, wanted.name)
    now_ms = call.node.clock.now_ms()
    await call.node.changes.make(lambda catalog: catalog.rename(name, wanted.name, now_ms))
    return JSONResponse({"name": wanted.name, "formerly": name})


async def swap(call: Call) -> Response:
    """Exchange the names of two entities."""
    name = call.part("entity")
    call.require(Right.MANAGE, name)
    wanted = await read_json(call, Swap)
    call.require(Right.MANAGE, wanted.other)
    now_ms = call.node.clock.now_ms()
    await call.node.changes.make(lambda catalog: catalog.swap(name, wanted.other, now_ms))
    return JSONResponse({"swapped": [name, wanted.other]})
