"""Back-pressure, bad peers, and the end of a connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from partibus.engine.output import Output
from partibus.gateway.connection import WRITE_BACKLOG_BYTES_MAX, WRITE_BUFFER_BYTES
from partibus.gateway.pacing import HELD_BYTES_MAX
from partibus.wire.performatives import Accepted, End

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
Make = Callable[..., bytes]


@pytest.fixture
def client(world: Any) -> Any:
    world.create_queue("q")
    return world.authorised()


def test_nothing_is_read_while_much_waits_for_the_disk(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    world.hold_disks()
    body = make_message(b"x" * 200_000)
    for _ in range(HELD_BYTES_MAX // len(body) + 1):
        sender.send(b"t", body)
        client.exchange()
    world.settle()
    assert not client.pipe.reading
    world.release_disks()
    assert client.pipe.reading
    assert {type(state) for state in client.outcomes(sender).values()} == {Accepted}


def test_a_full_socket_gets_no_more_deliveries_until_it_has_room(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    for _ in range(100):
        sender.send(b"t", make_message(b"x" * 100_000))
        world.settle()
    slow = world.authorised()
    link = slow.receiver("q", **PEEK_LOCK)
    link.grant(100)
    slow.pipe.protocol.data_received(slow.engine.data_to_send())
    for _ in range(50):
        world.loop.run_until_complete(asyncio.sleep(0))
    assert len(slow.pipe.to_client) < 8 * WRITE_BUFFER_BYTES
    world.settle()
    assert len(slow.deliveries(link)) == 100


def test_a_peer_that_never_reads_is_dropped(world: Any, client: Any, make_message: Make) -> None:
    pipe = client.pipe
    pipe.to_client += b"x" * (WRITE_BACKLOG_BYTES_MAX + 1)
    pipe.protocol.pause_writing()
    sender = client.sender  # attaching makes the gateway answer
    client.world.clients.remove(client)
    sender("q")
    pipe.protocol.data_received(client.engine.data_to_send())
    assert pipe.closed
    world.clients.append(client)
    pipe.to_client.clear()


def test_bytes_that_are_no_amqp_end_the_connection_and_nothing_else(world: Any) -> None:
    chance = random.Random(7)
    for length in (1, 8, 100, 5000):
        client = world.connect()
        world.clients.remove(client)
        client.pipe.protocol.data_received(chance.randbytes(length) + b"\0" * 16)
        for _ in range(5):
            world.loop.run_until_complete(asyncio.sleep(0))
        assert client.pipe.closed
    assert not world.connect().pipe.closed


def test_what_a_client_says_of_itself_is_logged_for_who_wants_to_know(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.connect()
    assert "client connected" not in caplog.text
    caplog.set_level("DEBUG", "partibus.gateway.connection")
    world.connect()
    assert "client connected" in caplog.text


def test_who_breaks_the_protocol_is_told_where_to_look(
    world: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "partibus.runtime.tracking")
    frames = Output()
    frames.perform(77, End(None))
    client.pipe.protocol.data_received(frames.take())
    world.settle()
    error = client.closed[0].error
    assert error.condition == "amqp:not-allowed"
    tracking_id = error.description.partition("TrackingId:")[2].partition(",")[0]
    assert tracking_id
    assert tracking_id in caplog.text


def test_everything_a_client_says_may_come_in_one_read_or_byte_by_byte(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    link = client.receiver("q", **PEEK_LOCK)
    link.grant(10)
    number = sender.send(b"t", make_message(b"1"))
    data = client.engine.data_to_send()
    for at in range(len(data)):
        client.pipe.protocol.data_received(data[at : at + 1])
    world.settle()
    assert type(client.outcomes(sender)[number]) is Accepted
    assert len(client.deliveries(link)) == 1
