"""Messages out, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.wire.performatives import (
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from partibus.wire.values import Symbol

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
Make = Callable[..., bytes]


@pytest.fixture
def client(world: Any) -> Any:
    world.create_queue("q", lock_ms=60_000)
    return world.authorised()


def send(client: Any, make_message: Make, *bodies: bytes, queue: str = "q") -> None:
    sender = client.sender(queue)
    for body in bodies:
        sender.send(b"t", make_message(body))
    client.world.settle()
    sender.detach()
    client.world.settle()


def give(client: Any, link: Any, delivery: Any, state: object, *, settled: bool = False) -> Any:
    """Give an outcome; what comes back for it (None: nothing)."""
    link.settle([delivery.delivery_id], state, settled=settled)
    client.world.settle()
    return client.outcomes(link).get(delivery.delivery_id)


def bodies(client: Any, link: Any) -> list[bytes]:
    return [each.payload[-1:] for each in client.deliveries(link)]


def test_no_more_is_delivered_than_there_is_credit(client: Any, make_message: Make) -> None:
    send(client, make_message, b"1", b"2", b"3")
    link = client.receiver("q", credit=2, **PEEK_LOCK)
    assert bodies(client, link) == [b"1", b"2"]
    link.grant(5)
    client.world.settle()
    assert bodies(client, link) == [b"1", b"2", b"3"]
    send(client, make_message, b"4")
    assert bodies(client, link) == [b"1", b"2", b"3", b"4"]


def test_the_tag_of_a_delivery_is_its_lock_token(client: Any, make_message: Make) -> None:
    send(client, make_message, b"1")
    (delivery,) = client.deliveries(client.receiver("q", credit=1, **PEEK_LOCK))
    assert len(delivery.tag) == 16
    assert not delivery.settled
    assert b"x-opt-lock-token" in delivery.payload


@pytest.mark.parametrize(
    "state", [Accepted(), Released(), Modified(), Modified(undeliverable_here=True), Rejected()]
)
def test_an_outcome_is_echoed_in_kind_once_it_is_durable(
    world: Any, client: Any, make_message: Make, state: object
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    (delivery,) = client.deliveries(link)
    echo = give(client, link, delivery, state)
    assert type(echo) is type(state)
    assert getattr(echo, "error", None) is None


def test_completion_is_echoed_only_when_it_is_durable(
    world: Any, client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    (delivery,) = client.deliveries(link)
    world.hold_disks()
    assert give(client, link, delivery, Accepted()) is None
    world.release_disks()
    assert type(client.outcomes(link)[delivery.delivery_id]) is Accepted


def test_an_outcome_given_as_settled_is_not_answered_but_holds(
    client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=5, **PEEK_LOCK)
    (delivery,) = client.deliveries(link)
    assert give(client, link, delivery, Accepted(), settled=True) is None
    client.world.advance(120_000)
    assert len(client.deliveries(link)) == 1


def test_a_range_of_outcomes_is_settled_together(client: Any, make_message: Make) -> None:
    send(client, make_message, *(b"%d" % (n % 10) for n in range(50)))
    link = client.receiver("q", credit=50, **PEEK_LOCK)
    deliveries = client.deliveries(link)
    link.settle([each.delivery_id for each in deliveries], Accepted(), settled=False)
    client.world.settle()
    assert {type(state) for state in client.outcomes(link).values()} == {Accepted}
    assert len(client.outcomes(link)) == 50


def test_released_is_delivered_again_uncounted_and_modified_counted(
    client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=3, **PEEK_LOCK)
    give(client, link, client.deliveries(link)[0], Released())
    give(client, link, client.deliveries(link)[1], Modified())
    first, second, third = client.deliveries(link)
    assert len({first.tag, second.tag, third.tag}) == 3
    header = bytes.fromhex("005370")
    assert all(each.payload.startswith(header) for each in (first, second, third))
    assert first.payload[:8] == second.payload[:8] != third.payload[:8]


def test_a_lock_that_is_over_is_lost_with_three_fields(client: Any, make_message: Make) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    (delivery,) = client.deliveries(link)
    client.world.advance(61_000)
    for state in (Accepted(),):
        echo = give(client, link, delivery, state)
        assert type(echo) is Rejected
        assert echo.error.condition == "com.microsoft:message-lock-lost"
        assert "TrackingId:" in echo.error.description


def test_rejected_moves_to_the_dead_letters_with_reason_and_properties(
    client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    info = {
        Symbol("DeadLetterReason"): "why",
        "DeadLetterErrorDescription": "because",
        "extra": 7,
    }
    state = Rejected(Error("com.microsoft:dead-letter", "because", info))
    echo = give(client, link, client.deliveries(link)[0], state)
    assert type(echo) is Rejected
    assert echo.error is None
    dead = client.receiver("q/$DeadLetterQueue", credit=1, **PEEK_LOCK)
    (delivery,) = client.deliveries(dead)
    for text in (b"DeadLetterReason", b"why", b"because", b"extra"):
        assert text in delivery.payload


def test_an_outcome_in_an_unknown_transaction_is_refused(client: Any, make_message: Make) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    state = TransactionalState(b"txn", Accepted())
    echo = give(client, link, client.deliveries(link)[0], state)
    assert echo.error.condition == "amqp:transaction:unknown-id"


def test_receive_and_delete_delivers_settled_after_the_delete_is_durable(
    world: Any, client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1", b"2")
    world.hold_disks()
    link = client.receiver("q", credit=5, snd_settle_mode=1)
    assert client.deliveries(link) == []
    world.release_disks()
    assert bodies(client, link) == [b"1", b"2"]
    assert all(each.settled for each in client.deliveries(link))
    world.advance(300_000)
    assert len(client.deliveries(client.receiver("q", credit=5, **PEEK_LOCK))) == 0


def test_credit_given_again_while_deletes_are_under_way_is_not_overrun(
    world: Any, client: Any, make_message: Make
) -> None:
    send(client, make_message, *(b"%d" % n for n in range(8)))
    world.hold_disks()
    link = client.receiver("q", credit=3, snd_settle_mode=1)
    link.grant(3)
    world.settle()
    world.release_disks()
    assert bodies(client, link) == [b"0", b"1", b"2"]
    link.grant(8)
    world.settle()
    assert bodies(client, link) == [b"%d" % n for n in range(8)]


def test_a_drain_is_answered_after_what_is_there_also_with_nothing(
    client: Any, make_message: Make
) -> None:
    link = client.receiver("q", **PEEK_LOCK)
    link.grant(10, drain=True)
    client.world.settle()
    assert (link.credit, link.drain) == (0, False)
    send(client, make_message, b"1", b"2")
    assert client.deliveries(link) == []
    link.grant(10, drain=True)
    client.world.settle()
    assert bodies(client, link) == [b"1", b"2"]
    assert (link.credit, link.drain) == (0, False)


def test_flow_and_detach_in_one_read_leave_the_messages_where_they_are(
    client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1")
    link = client.receiver("q", **PEEK_LOCK)
    link.grant(10)
    link.detach()
    client.world.settle()
    other = client.receiver("q", credit=1, **PEEK_LOCK)
    assert bodies(client, other) == [b"1"]


def test_a_queue_deleted_under_a_receiver_ends_its_link(world: Any, client: Any) -> None:
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    world.catalog.delete_queue("q", 1)
    world.node.refresh()
    world.settle()
    assert client.error_of(link)[0] == "amqp:not-found"


def test_a_lost_connection_gives_back_what_was_not_delivered(
    world: Any, client: Any, make_message: Make
) -> None:
    send(client, make_message, b"1", b"2")
    client.receiver("q", credit=1, **PEEK_LOCK)
    client.pipe.close()
    world.settle()
    other = world.authorised()
    link = other.receiver("q", credit=2, **PEEK_LOCK)
    assert bodies(other, link) == [b"2"]
    world.advance(61_000)
    assert bodies(other, link) == [b"2", b"1"]
