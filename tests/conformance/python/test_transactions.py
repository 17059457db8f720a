"""Transactions with our own client, the words of the page on partitioned entities (T1 to T5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from partibus.client import (
    Client,
    InvalidOperation,
    Message,
    MessageLockLost,
    QuotaExceeded,
    TransactionUnknown,
)

WAIT_S = 1.0


@pytest.fixture
def client(live_namespace: Any) -> Iterator[Client]:
    with Client.from_connection_string(live_namespace.connection_string) as client:
        yield client


def left(client: Client, queue: str) -> list[bytes]:
    """Everything in a queue, completed."""
    bodies = []
    with client.receiver(queue) as receiver:
        while got := receiver.receive(50, timeout=WAIT_S):
            bodies += [message.body for message in got]
            receiver.complete(got)
    return sorted(bodies)  # type: ignore[type-var]


def test_T5_a_transaction_is_all(client: Client, queue: str) -> None:
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        sender.send(Message(b"old", partition_key="k"))
        [old] = receiver.receive(1, timeout=10)
        with client.transaction():
            sender.send([Message(b"1", partition_key="k"), Message(b"2", partition_key="k")])
            sender.send_batch([Message(b"3", partition_key="k"), Message(b"4", partition_key="k")])
            receiver.complete(old)
        receiver.close()
    assert left(client, queue) == [b"1", b"2", b"3", b"4"]


def test_T5_or_nothing(client: Client, queue: str) -> None:
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        sender.send(Message(b"old", partition_key="k"))
        [old] = receiver.receive(1, timeout=10)
        transaction = client.transaction()
        with transaction:
            sender.send(Message(b"new", partition_key="k"))
            receiver.complete(old)
            transaction.rollback()
        # The lock is still ours.
        assert receiver.renew_lock(old)
    assert left(client, queue) == []


def test_T5_scheduling_is_part_of_a_transaction(client: Client, queue: str) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        with client.transaction():
            number = sender.schedule(Message(b"later", partition_key="k"), at)
            sender.send(Message(b"now", partition_key="k"))
            assert receiver.peek(10) == []
        seen = {message.sequence_number: message.body for message in receiver.peek(10)}
        assert seen[number] == b"later"
        sender.cancel_scheduled(number)
        transaction = client.transaction()
        with transaction:
            sender.schedule(Message(b"never", partition_key="k"), at)
            transaction.rollback()
        assert [message.body for message in receiver.peek(10)] == [b"now"]
    assert left(client, queue) == [b"now"]


def test_T1_T2_the_key_rules_hold_for_scheduling(
    client: Client, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(enable_partitioning=True)
    at = datetime.now(UTC) + timedelta(hours=1)
    with client.sender(queue) as sender, client.transaction():
        with pytest.raises(InvalidOperation, match="needs a PartitionKey"):
            sender.schedule(Message(b"no key"), at)
        sender.schedule(Message(b"1", partition_key="k"), at)
        with pytest.raises(InvalidOperation, match="same key"):
            sender.schedule(Message(b"2", partition_key="l"), at)
    with client.receiver(queue) as receiver:
        assert [message.body for message in receiver.peek(10)] == [b"1"]


def test_settlements_of_every_kind_in_one_transaction(client: Client, queue: str) -> None:
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        sender.send([Message(body, partition_key="k") for body in (b"c", b"a", b"d", b"f")])
        got = []
        while len(got) < 4:
            got += receiver.receive(4 - len(got), timeout=10)
        complete, abandon, dead, defer = got
        with client.transaction():
            receiver.complete(complete)
            receiver.abandon(abandon)
            receiver.dead_letter(dead, reason="why", description="because")
            receiver.defer(defer)
    assert left(client, queue) == [b"a"]
    assert left(client, f"{queue}/$DeadLetterQueue") == [b"d"]


def test_T1_T2_T4_the_key_rules_of_partitioned_queues(
    client: Client, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(enable_partitioning=True)
    with client.sender(queue) as sender, client.transaction():
        with pytest.raises(InvalidOperation, match="needs a PartitionKey"):
            sender.send(Message(b"no key"))
        sender.send(Message(b"1", partition_key="k"))
        with pytest.raises(InvalidOperation, match="same key"):
            sender.send(Message(b"2", partition_key="l"))
        with pytest.raises(InvalidOperation, match="same key"):
            sender.send(Message(b"3", session_id="s"))
    assert left(client, queue) == [b"1"]


def test_T4_several_sessions_in_one_transaction_of_a_conventional_queue(
    client: Client, new_queue: Callable[..., str]
) -> None:
    queue = new_queue()
    with client.sender(queue) as sender, client.transaction():
        for session in ("s", "t", "u"):
            sender.send(Message(session.encode(), session_id=session))
    assert left(client, queue) == [b"s", b"t", b"u"]


def test_completions_from_different_fragments_are_refused(
    client: Client, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(enable_partitioning=True)
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        sender.send([Message(key.encode(), partition_key=key) for key in "ab"])
        got = []
        while len(got) < 2:
            got += receiver.receive(2 - len(got), timeout=10)
        with client.transaction():
            receiver.complete(got[0])
            with pytest.raises(InvalidOperation, match="partitions"):
                receiver.complete(got[1])
        receiver.abandon(got[1])
    assert left(client, queue) == [got[1].body]


def test_a_transaction_has_one_queue(client: Client, new_queue: Callable[..., str]) -> None:
    one, other = new_queue(), new_queue()
    with client.sender(one) as first, client.sender(other) as second, client.transaction():
        first.send(Message(b"1"))
        with pytest.raises(InvalidOperation, match="top-level entities"):
            second.send(Message(b"2"))
    assert (left(client, one), left(client, other)) == ([b"1"], [])


def test_a_hundred_messages_and_no_more(client: Client, queue: str) -> None:
    with client.sender(queue) as sender, client.transaction():
        sender.send([Message(b"%d" % number, partition_key="k") for number in range(100)])
        with pytest.raises(QuotaExceeded):
            sender.send(Message(b"101", partition_key="k"))
    assert len(left(client, queue)) == 100


def test_a_message_that_was_completed_elsewhere_fails_the_commit(
    client: Client, live_namespace: Any, queue: str
) -> None:
    with client.sender(queue) as sender, client.receiver(queue) as receiver:
        sender.send(Message(b"old", partition_key="k"))
        [old] = receiver.receive(1, timeout=10)
        transaction = client.transaction(ambient=False)
        sender.send(Message(b"new", partition_key="k"), transaction=transaction)
        receiver.complete(old, transaction=transaction)
        with Client.from_connection_string(live_namespace.connection_string) as other:
            # By its lock token, on another connection.
            old.origin = None
            other.receiver(queue).complete(old)
        with pytest.raises(MessageLockLost):
            transaction.commit()
        with pytest.raises(TransactionUnknown):
            transaction.commit()
    assert left(client, queue) == []


@pytest.mark.parametrize("partitioned", [False, True], ids=["conventional", "partitioned"])
def test_T5_completing_a_message_and_sending_via_its_queue_are_one(
    client: Client, new_queue: Callable[..., str], partitioned: bool
) -> None:
    queue, target = new_queue(enable_partitioning=partitioned), new_queue(enable_partitioning=True)
    with (
        client.sender(queue) as sender,
        client.receiver(queue) as receiver,
        client.sender(target, via=queue) as onward,
    ):
        sender.send([Message(b"one", partition_key="k"), Message(b"two", partition_key="k")])
        one, two = receive_two(receiver)
        with client.transaction():
            onward.send(Message(b"moved", partition_key="p", via_partition_key="k"))
            receiver.complete(one)
        abandoned = client.transaction()
        with abandoned:
            onward.send(Message(b"never", partition_key="p", via_partition_key="k"))
            receiver.complete(two)
            abandoned.rollback()
        receiver.abandon(two)
    assert left(client, target) == [b"moved"]
    assert left(client, queue) == [b"two"]


def receive_two(receiver: Any) -> Any:
    got: list[Any] = []
    while len(got) < 2:
        got += receiver.receive(2 - len(got), timeout=10)
    return got


def test_T1_a_partitioned_queue_needs_a_via_partition_key(
    client: Client, new_queue: Callable[..., str]
) -> None:
    queue, target = new_queue(enable_partitioning=True), new_queue()
    with client.sender(target, via=queue) as sender, client.transaction():
        with pytest.raises(InvalidOperation, match="ViaPartitionKey"):
            sender.send(Message(b"1", partition_key="k"))
        sender.send(Message(b"2", via_partition_key="k"))
        with pytest.raises(InvalidOperation, match="same key"):
            sender.send(Message(b"3", via_partition_key="l"))
    assert left(client, target) == [b"2"]
