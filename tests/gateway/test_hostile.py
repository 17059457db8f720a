"""Conversations with bytes changed, cut and repeated: a connection may end, the gateway goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from partibus.wire.performatives import Accepted, Modified, Rejected

Make = Callable[..., bytes]
CONVERSATIONS = 400


def conversation(world: Any, make_message: Make) -> bytes:
    """All that a busy client says, from the first header on."""
    client = world.connect()
    said = bytearray()
    take = client.engine.data_to_send

    def recorded() -> bytes:
        data = take()
        said.extend(data)
        return data

    client.engine.data_to_send = recorded
    client.put_token("sb://host/", client.token("sb://host/"))
    sender = client.sender("q")
    for number in range(5):
        sender.send(b"t", make_message(b"%d" % number))
    link = client.receiver("q", credit=5, snd_settle_mode=0, rcv_settle_mode=1)
    states = [Accepted(), Modified(), Rejected(), Modified(undeliverable_here=True), None]
    for delivery, state in zip(client.deliveries(link), states, strict=False):
        link.settle([delivery.delivery_id], state, settled=state is None)
        world.settle()
    body = {"lock-tokens": [UUID(int=1)], "disposition-status": "completed"}
    client.ask("q/$management", {"operation": "com.microsoft:update-disposition"}, body)
    link.grant(10, drain=True)
    world.settle()
    return bytes(said)


def spoil(data: bytes, chance: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(spoiled))
        what = chance.randrange(4)
        if what == 0:
            spoiled[at] = chance.randrange(256)
        elif what == 1:
            spoiled[at] ^= 1 << chance.randrange(8)
        elif what == 2:
            del spoiled[at : at + chance.randint(1, 40)]
        else:
            spoiled[at:at] = spoiled[at : at + chance.randint(1, 40)]
        if not spoiled:
            break
    return bytes(spoiled)


@pytest.mark.parametrize("seed", range(4))
def test_no_spoiled_conversation_hurts_the_gateway(
    world: Any, make_message: Make, seed: int
) -> None:
    world.create_queue("q")
    chance = random.Random(seed)
    said = conversation(world, make_message)
    # Unspoiled it is understood to its end by another connection.
    again = world.connect()
    again.pipe.protocol.data_received(said)
    world.settle()
    assert not again.closed
    failures: list[dict[str, Any]] = []
    world.loop.set_exception_handler(lambda _, context: failures.append(context))
    for _ in range(CONVERSATIONS // 4):
        client = world.connect()
        world.clients.remove(client)
        spoiled = spoil(said, chance)
        at = 0
        while at < len(spoiled) and not client.pipe.closed:
            step = chance.choice((1, 7, 64, 4096))
            client.pipe.protocol.data_received(spoiled[at : at + step])
            at += step
        for _ in range(5):
            world.loop.run_until_complete(asyncio.sleep(0))
        client.pipe.close()
    world.settle()
    assert failures == []
    healthy = world.authorised()
    sender = healthy.sender("q")
    number = sender.send(b"t", make_message())
    world.settle()
    assert type(healthy.outcomes(sender)[number]) is Accepted
