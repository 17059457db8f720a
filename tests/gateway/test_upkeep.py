"""Silence ends links and connections; activity on a link's behalf keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.engine.events import LinkDetached

MINUTE_MS = 60_000


@pytest.fixture
def client(world: Any) -> Any:
    """A client that has authorised itself by its key, so that it needs no $cbs links."""
    world.create_queue("q")
    return world.connect("PLAIN", b"\0RootManageSharedAccessKey\0cm9vdCBrZXk=")


def pass_minutes(client: Any, minutes: int) -> None:
    """Let time pass while the client keeps its connection alive, as clients do."""
    for _ in range(minutes):
        client.world.advance(MINUTE_MS)
        if not client.pipe.closed:
            client.pipe.protocol.data_received(b"\x00\x00\x00\x08\x02\x00\x00\x00")


def test_a_connection_without_any_link_ends_after_a_minute(world: Any, client: Any) -> None:
    world.advance(MINUTE_MS - 1)
    assert not client.closed
    world.advance(1)
    error = client.closed[0].error
    assert error.condition == "amqp:connection:forced"
    assert "inactive for more than the allowed 60000 milliseconds" in error.description


def test_a_connection_whose_links_are_gone_ends_after_five_minutes(client: Any) -> None:
    link = client.sender("q")
    pass_minutes(client, 2)
    link.detach()
    pass_minutes(client, 4)
    assert not client.closed
    pass_minutes(client, 2)
    assert "300000 milliseconds" in client.closed[0].error.description


def test_a_link_without_activity_is_detached_after_ten_minutes(client: Any) -> None:
    sender, receiver = client.sender("q"), client.receiver("q", credit=1)
    pass_minutes(client, 9)
    assert client.all(LinkDetached) == []
    pass_minutes(client, 2)
    for link in (sender, receiver):
        condition, text = client.error_of(link)
        assert condition == "amqp:link:detach-forced"
        assert "IdleTimerExpired: Idle timeout: 00:10:00" in text


def test_a_link_that_is_used_stays(client: Any, make_message: Callable[..., bytes]) -> None:
    sender = client.sender("q")
    for _ in range(5):
        pass_minutes(client, 5)
        sender.send(b"t", make_message())
    assert not sender.reported


def test_a_request_that_names_a_link_keeps_it(client: Any) -> None:
    receiver = client.receiver("q", name="mine", credit=1)
    other = client.receiver("q", name="other", credit=1)
    for _ in range(4):
        pass_minutes(client, 5)
        client.ask("q/$management", {"operation": "any", "associated-link-name": "mine"}, {})
    assert not receiver.reported
    assert client.error_of(other)[0] == "amqp:link:detach-forced"


def test_a_peer_that_is_silent_for_four_minutes_is_gone(world: Any, client: Any) -> None:
    client.sender("q")
    world.advance(240_000)
    assert client.pipe.closed
