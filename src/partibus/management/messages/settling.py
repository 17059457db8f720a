"""`/{entity}/messages/{message}/{token}`: unlock (PUT), complete (DELETE), renew (POST).

The lock token says all: it names the store, the fragment and the lock. The message's id or number
stands in the path for people.
"""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.errors import MessageLockLost, MessageNotFound, Refusal
from partibus.broker.settlement import ABANDON, COMPLETE, Settlement
from partibus.management.calls import Call
from partibus.management.messages.headers import write_time
from partibus.management.messages.places import place


async def unlock(call: Call) -> Response:
    """Give the message back; others may have it at once."""
    return await _settle(call, ABANDON)


async def complete(call: Call) -> Response:
    """The message is done with."""
    return await _settle(call, COMPLETE)


async def renew(call: Call) -> Response:
    """Keep the message locked for another while."""
    entity, _ = place(call, Right.LISTEN)
    token = _token(call)
    until: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(refused: dict[bytes, Refusal], until_ms: int) -> None:
        if until.done():
            return
        if token in refused:
            until.set_exception(_not_found(refused[token]))
        else:
            until.set_result(until_ms)

    call.node.renew(entity, [token], done)
    locked = {"LockedUntilUtc": write_time(await until)}
    return Response(headers={"BrokerProperties": json.dumps(locked)})


async def _settle(call: Call, settlement: Settlement) -> Response:
    entity, _ = place(call, Right.LISTEN)
    token = _token(call)
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(refused: dict[bytes, Refusal]) -> None:
        if settled.done():
            return
        if token in refused:
            settled.set_exception(_not_found(refused[token]))
        else:
            settled.set_result(None)

    call.node.settle(entity, [token], settlement, done)
    await settled
    return Response()


def _token(call: Call) -> bytes:
    try:
        return UUID(call.part("token")).bytes_le
    except ValueError:
        raise MessageNotFound(f"'{call.part('token')}' is no lock token.") from None


def _not_found(refusal: Refusal) -> Refusal:
    return MessageNotFound(str(refusal)) if isinstance(refusal, MessageLockLost) else refusal
