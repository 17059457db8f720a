"""Accepting, refusing and saying goodbye, also over real sockets and with either event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from partibus.gateway.connection import GatewayConnection
from partibus.gateway.listener import Listener
from partibus.gateway.settings import GatewaySettings
from partibus.wire.performatives import Accepted

Make = Callable[..., bytes]


@pytest.fixture
def client(world: Any) -> Any:
    world.create_queue("q")
    return world.authorised()


def test_a_shutdown_lets_commits_finish_and_says_goodbye(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    world.hold_disks()
    number = sender.send(b"t", make_message())
    world.settle()
    closing = world.loop.create_task(world.listener.close())
    world.settle()
    assert not client.closed
    world.release_disks()
    assert type(client.outcomes(sender)[number]) is Accepted
    assert client.closed[0].error.condition == "amqp:connection:forced"
    assert closing.done()
    assert not world.listener.connections


def test_over_the_limit_of_connections_a_new_one_is_closed_at_once(world: Any) -> None:
    listener = Listener(world.node, GatewaySettings("test", connections_max=2), world.loop)
    protocols = [listener.protocol() for _ in range(3)]
    assert [type(each) is GatewayConnection for each in protocols] == [True, True, False]


def test_it_answers_on_a_socket_that_somebody_else_opened(world: Any) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()

    async def scenario() -> bytes:
        await world.listener.listen(listening)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"AMQP\x03\x01\x00\x00")
        header = await reader.readexactly(8)
        writer.close()
        await writer.wait_closed()
        await world.listener.close()
        return header

    assert world.loop.run_until_complete(scenario()) == b"AMQP\x03\x01\x00\x00"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)
