"""`/{entity}/messages/{message}/{token}`: unlock (PUT), complete (DELETE), renew (POST).

The lock token says all: it names the store, the fragment and the lock. The message's id or number
stands in the path for people.
"""

from __future__ import annotations

import json
from uuid import UUID

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.errors import MessageLockLost, MessageNotFound, Refusal
from partibus.broker.settlement import ABANDON, COMPLETE, Settlement
from partibus.management.answers import Answer
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
    until: Answer[int] = Answer()
    call.node.renew(
        entity, [token], lambda refused, until_ms: until.give(until_ms, _why(refused, token))
    )
    locked = {"LockedUntilUtc": write_time(await until)}
    return Response(headers={"BrokerProperties": json.dumps(locked)})


async def _settle(call: Call, settlement: Settlement) -> Response:
    entity, _ = place(call, Right.LISTEN)
    token = _token(call)
    settled: Answer[None] = Answer()
    call.node.settle(
        entity, [token], settlement, lambda refused: settled.give(None, _why(refused, token))
    )
    await settled
    return Response()


def _token(call: Call) -> bytes:
    try:
        return UUID(call.part("token")).bytes_le
    except ValueError:
        raise MessageNotFound(f"'{call.part('token')}' is no lock token.") from None


def _why(refused: dict[bytes, Refusal], token: bytes) -> Refusal | None:
    """Why it was refused, if it was; over HTTP a lost lock is a message that is not there."""
    refusal = refused.get(token)
    return MessageNotFound(str(refusal)) if isinstance(refusal, MessageLockLost) else refusal
