"""Messages in: stored before they are answered, and credit that follows the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.gateway.publisher import CREDIT
from partibus.wire.codec import encode
from partibus.wire.performatives import Accepted, Rejected, TransactionalState

BATCH_FORMAT = 0x80013700
Make = Callable[..., bytes]


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_queue("q", enable_partitioning=request.param)
    return world.authorised()


def received(client: Any, count: int = 100) -> list[bytes]:
    link = client.receiver("q", credit=count, snd_settle_mode=1)
    return [each.payload for each in client.deliveries(link)]


def test_a_message_is_accepted_once_it_is_durable_and_not_before(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    world.hold_disks()
    number = sender.send(b"t", make_message())
    world.settle()
    assert client.outcomes(sender) == {}
    world.release_disks()
    assert type(client.outcomes(sender)[number]) is Accepted


def test_settled_transfers_are_stored_and_not_answered(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    sender.send(b"t", make_message(b"silent"), settled=True)
    world.settle()
    assert client.outcomes(sender) == {}
    assert len(received(client)) == 1


def test_settled_and_unsettled_transfers_keep_their_order(world: Any, make_message: Make) -> None:
    world.create_queue("q")
    client = world.authorised()
    sender = client.sender("q")
    for number in range(10):
        sender.send(b"t", make_message(b"%d" % number), settled=number % 3 == 0)
    world.settle()
    bodies = [payload[-1:] for payload in received(client)]
    assert bodies == [b"%d" % number for number in range(10)]


def test_a_batch_is_one_delivery_and_many_messages(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    batch = b"".join(b"\x00\x53\x75" + encode(make_message(b"%d" % n)) for n in range(5))
    number = sender.send(b"t", batch, message_format=BATCH_FORMAT)
    world.settle()
    assert type(client.outcomes(sender)[number]) is Accepted
    assert len(received(client)) == 5


def test_what_is_no_message_is_rejected_with_three_fields_and_the_link_lives(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    bad = sender.send(b"t", b"\xff\xff")
    empty_batch = sender.send(b"t", b"", message_format=BATCH_FORMAT)
    unknown = sender.send(b"t", make_message(), message_format=77)
    good = sender.send(b"t", make_message())
    world.settle()
    outcomes = client.outcomes(sender)
    for number in (bad, empty_batch, unknown):
        assert type(outcomes[number]) is Rejected
        assert outcomes[number].error.description
    assert outcomes[bad].error.condition == "amqp:decode-error"
    assert type(outcomes[good]) is Accepted


def test_a_message_over_the_limit_is_rejected(world: Any, client: Any, make_message: Make) -> None:
    sender = client.sender("q")
    number = sender.send(b"t", make_message(b"x" * 262_144))
    world.settle()
    assert client.outcomes(sender)[number].error.condition == "amqp:link:message-size-exceeded"


def test_a_message_in_an_unknown_transaction_is_rejected(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    number = sender.send(b"t", make_message(), state=TransactionalState(b"txn"))
    world.settle()
    assert client.outcomes(sender)[number].error.condition == "amqp:transaction:unknown-id"


def test_credit_comes_back_with_commits_not_with_messages(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    assert sender.credit == CREDIT
    world.hold_disks()
    for _ in range(CREDIT):
        sender.send(b"t", make_message())
    world.settle()
    assert sender.credit == 0
    world.release_disks()
    assert sender.credit == CREDIT
    assert len(client.outcomes(sender)) == CREDIT


def test_messages_before_any_credit_are_taken(world: Any, make_message: Make) -> None:
    """The Python client sends before it has seen our flow."""
    world.create_queue("q")
    client = world.authorised()
    from partibus.wire.performatives import Attach, Source, Target

    link = client.engine.attach_sender(
        client.session, Attach(name="eager", source=Source(), target=Target(address="q"))
    )
    client.exchange()
    link.credit = 3
    numbers = [link.send(b"t", make_message()) for _ in range(3)]
    world.settle()
    assert sorted(client.outcomes(link)) == numbers


def test_the_answers_of_one_turn_are_one_range(world: Any, make_message: Make) -> None:
    world.create_queue("q", enable_partitioning=True)
    client = world.authorised()
    sender = client.sender("q")
    world.hold_disks()
    for _ in range(500):
        sender.send(b"t", make_message())
    world.settle()
    world.release_disks()
    outcomes = client.outcomes(sender)
    assert len(outcomes) == 500


def test_a_queue_deleted_under_a_sender_ends_its_link(world: Any, make_message: Make) -> None:
    world.create_queue("q")
    client = world.authorised()
    sender = client.sender("q")
    world.catalog.delete_queue("q", 1)
    world.node.refresh()
    number = sender.send(b"t", make_message())
    world.settle()
    assert client.outcomes(sender)[number].error.condition == "amqp:not-found"
    assert client.error_of(sender)[0] == "amqp:not-found"


def test_a_link_that_is_gone_leaves_its_messages_stored(
    world: Any, client: Any, make_message: Make
) -> None:
    sender = client.sender("q")
    world.hold_disks()
    sender.send(b"t", make_message())
    world.settle()
    sender.detach()
    world.settle()
    world.release_disks()
    assert len(received(client)) == 1


def test_a_delivery_id_used_twice_hurts_nobody(world: Any, make_message: Make) -> None:
    world.create_queue("q")
    client = world.authorised()
    sender = client.sender("q")
    world.hold_disks()
    for _ in range(3):
        client.session.next_delivery_id = 0
        sender.send(b"t", make_message())
    world.settle()
    world.release_disks()
    assert client.pipe.protocol._pacing.held == 0
    assert len(received(client)) == 3
