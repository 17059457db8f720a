"""The blocking client against our broker: sessions, schedules, deferral, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from partibus.client import (
    Client,
    InvalidOperation,
    Message,
    MessageLockLost,
    MessageNotFound,
    MessageState,
    ServiceTimeout,
    SessionCannotBeLocked,
)
from partibus.testing.namespace import Namespace

QUEUE, SESSIONS, TARGET = "orders", "conversations", "archive"
PATIENCE_S = 20.0
MOMENT_S = 0.3


@pytest.fixture(params=["conventional", "partitioned"])
def namespace(request: pytest.FixtureRequest, servicebus_namespace: Namespace) -> Namespace:
    partitioned = request.param == "partitioned"
    for name in (QUEUE, TARGET):
        servicebus_namespace.create_queue(name, enable_partitioning=partitioned)
    servicebus_namespace.create_queue(
        SESSIONS, enable_partitioning=partitioned, requires_session=True
    )
    return servicebus_namespace


@pytest.fixture
def client(namespace: Namespace) -> Iterator[Client]:
    with Client.from_connection_string(namespace.connection_string) as client:
        yield client


def bodies(client: Client, queue: str = QUEUE) -> list[str]:
    with client.receiver(queue) as receiver:
        found: list[str] = []
        while messages := receiver.receive(10, timeout=MOMENT_S):
            found += [message.text for message in messages]
            receiver.complete(messages)
        return found


def in_the_distance() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def test_browsing_reaches_every_message_and_locks_none(client: Client) -> None:
    client.sender(QUEUE).send([Message(str(n)) for n in range(40)])
    seen = [message.text for message in client.receiver(QUEUE).browse(page=7)]
    assert sorted(seen, key=int) == [str(n) for n in range(40)]
    assert len(bodies(client)) == 40


def test_a_scheduled_message_waits_and_can_be_cancelled(
    client: Client, namespace: Namespace
) -> None:
    sender = client.sender(QUEUE)
    kept = sender.schedule(Message("kept", partition_key="k"), in_the_distance())
    cancelled = sender.schedule(Message("cancelled", partition_key="k"), in_the_distance())
    sender.cancel_scheduled(cancelled)
    with pytest.raises(MessageNotFound):
        sender.cancel_scheduled(cancelled)
    assert kept != cancelled
    assert bodies(client) == []
    namespace.clock.advance(2 * 3_600)
    assert bodies(client) == ["kept"]


def test_a_deferred_message_is_had_by_its_number_alone(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    receiver = client.receiver(QUEUE)
    (message,) = receiver.receive(timeout=PATIENCE_S)
    assert message.sequence_number is not None
    receiver.defer(message)
    assert receiver.receive(timeout=MOMENT_S) == []
    (peeked,) = receiver.peek(from_sequence_number=message.sequence_number)
    assert peeked.state is MessageState.DEFERRED
    (again,) = receiver.receive_deferred([message.sequence_number])
    assert again.text == "x"
    receiver.complete(again)
    with pytest.raises(MessageNotFound):
        receiver.receive_deferred([message.sequence_number])


def test_a_session_is_ours_alone_in_order_and_with_its_state(client: Client) -> None:
    client.sender(SESSIONS).send([Message(str(n), session_id="s") for n in range(5)])
    with client.accept_session(SESSIONS, timeout=PATIENCE_S) as session:
        assert session.session_id == "s"
        assert session.locked_until is not None
        with pytest.raises(SessionCannotBeLocked):
            client.accept_session(SESSIONS, "s", timeout=1)
        assert session.state() is None
        session.set_state("half")
        received = session.receive(5, timeout=PATIENCE_S)
        assert [message.text for message in received] == [str(n) for n in range(5)]
        session.complete(received)
        assert session.renew() is not None
    with client.accept_session(SESSIONS, "s", timeout=PATIENCE_S) as session:
        assert session.state() == b"half"
        session.set_state(None)
        assert session.state() is None


def test_no_session_in_time_is_told(client: Client) -> None:
    with pytest.raises(ServiceTimeout):
        client.accept_session(SESSIONS, timeout=MOMENT_S)


def test_sessions_are_listed(client: Client) -> None:
    client.sender(SESSIONS).send([Message("x", session_id=name) for name in "abc"])
    assert sorted(client.list_sessions(SESSIONS)) == ["a", "b", "c"]


def test_a_committed_transaction_happened_and_one_rolled_back_did_not(client: Client) -> None:
    sender, receiver = client.sender(QUEUE), client.receiver(QUEUE)
    sender.send(Message("old", partition_key="k"))
    (old,) = receiver.receive(timeout=PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        _send_and_fail(client)
    with client.transaction():
        sender.send(Message("new", partition_key="k"))
        receiver.complete(old)
        # Nobody sees it before the commit.
        assert receiver.receive(timeout=MOMENT_S) == []
    assert bodies(client) == ["new"]


def _send_and_fail(client: Client) -> None:
    with client.transaction():
        client.sender(QUEUE).send(Message("never", partition_key="k"))
        raise ZeroDivisionError


def test_a_message_completed_in_a_transaction_that_was_rolled_back_is_still_locked(
    client: Client,
) -> None:
    client.sender(QUEUE).send(Message("x", partition_key="k"))
    receiver = client.receiver(QUEUE)
    (message,) = receiver.receive(timeout=PATIENCE_S)
    with client.transaction() as transaction:
        receiver.complete(message)
        transaction.rollback()
    receiver.complete(message)
    with pytest.raises(MessageLockLost):
        receiver.complete(message)


def test_a_refused_send_leaves_the_transaction_open(client: Client) -> None:
    sender = client.sender(QUEUE)
    with client.transaction():
        sender.send(Message("good", partition_key="k"))
        with pytest.raises(InvalidOperation):
            sender.send(Message("bad", session_id="a", partition_key="b"))
    assert bodies(client) == ["good"]


def test_a_message_moves_on_with_its_completion(client: Client) -> None:
    client.sender(QUEUE).send(Message("x", partition_key="k"))
    receiver = client.receiver(QUEUE)
    (message,) = receiver.receive(timeout=PATIENCE_S)
    with client.transaction():
        moved = Message("moved", partition_key="k", via_partition_key="k")
        client.sender(TARGET, via=QUEUE).send(moved)
        receiver.complete(message)
    (arrived,) = client.receiver(TARGET).receive(timeout=PATIENCE_S)
    assert arrived.text == "moved"
    assert bodies(client) == []
