"""Taking connections up to a limit, and saying goodbye to them."""

from __future__ import annotations

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
