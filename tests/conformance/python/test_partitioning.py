"""Partition keys, spread and sequence numbers, as a client sees them (K1-K6, R6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

WAIT_S = 5
FRAGMENTS = 16
PARTITION_SHIFT = 48


@pytest.fixture
def client(live_namespace: Any) -> Iterator[ServiceBusClient]:
    text = live_namespace.connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        yield client


@pytest.fixture
def partitioned(new_queue: Callable[..., str]) -> str:
    return new_queue(enable_partitioning=True)


@pytest.fixture
def conventional(new_queue: Callable[..., str]) -> str:
    return new_queue(enable_partitioning=False)


def send(client: ServiceBusClient, queue: str, *messages: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


def take(client: ServiceBusClient, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    received: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver(queue, prefetch_count=100) as receiver:
        while len(received) < count:
            batch = receiver.receive_messages(count - len(received), max_wait_time=WAIT_S)
            assert batch, f"{len(received)} of {count} came"
            for message in batch:
                receiver.complete_message(message)
            received += batch
    return received


def partition_of(message: ServiceBusReceivedMessage) -> int:
    annotations = message.raw_amqp_message.annotations
    assert annotations is not None
    partition: int = annotations[b"x-opt-partition-id"]
    return partition


def test_R6_sequence_numbers_carry_the_partition_and_count_without_gaps(
    client: ServiceBusClient, partitioned: str
) -> None:
    send(client, partitioned, *(ServiceBusMessage(str(n)) for n in range(100)))
    counters: dict[int, list[int]] = {}
    for message in take(client, partitioned, 100):
        number = message.sequence_number
        assert number is not None
        assert number >> PARTITION_SHIFT == partition_of(message)
        counters.setdefault(partition_of(message), []).append(number & (1 << PARTITION_SHIFT) - 1)
    assert all(sorted(seen) == list(range(1, len(seen) + 1)) for seen in counters.values())
    assert set(counters) <= set(range(1, FRAGMENTS + 1))


def test_R6_a_conventional_queue_counts_from_one_and_names_no_partition(
    client: ServiceBusClient, conventional: str
) -> None:
    send(client, conventional, *(ServiceBusMessage(str(n)) for n in range(20)))
    messages = take(client, conventional, 20)
    assert [message.sequence_number for message in messages] == list(range(1, 21))
    assert [str(message) for message in messages] == [str(n) for n in range(20)]
    for message in messages:
        assert b"x-opt-partition-id" not in (message.raw_amqp_message.annotations or {})
        assert message.partition_key is None


def test_K1_session_id_goes_before_partition_key_and_message_id_is_no_key(
    client: ServiceBusClient, partitioned: str
) -> None:
    both = [ServiceBusMessage("b", session_id="k", partition_key="k") for _ in range(3)]
    session = [ServiceBusMessage("s", session_id="k") for _ in range(3)]
    key = [ServiceBusMessage("k", partition_key="k") for _ in range(3)]
    same_id = [ServiceBusMessage("m", message_id="k") for _ in range(64)]
    send(client, partitioned, *both, *session, *key, *same_id)
    where: dict[str, set[int]] = {}
    for message in take(client, partitioned, 73):
        where.setdefault(str(message), set()).add(partition_of(message))
    assert where["b"] == where["s"] == where["k"]
    assert len(where["b"]) == 1
    assert len(where["m"]) > 1


def test_K2_K6_messages_of_a_key_lie_in_one_fragment_and_come_in_order(
    client: ServiceBusClient, partitioned: str
) -> None:
    keys = [f"key {n}" for n in range(40)]
    rounds = 10
    send(
        client,
        partitioned,
        *(ServiceBusMessage(str(n), partition_key=key) for n in range(rounds) for key in keys),
    )
    by_key: dict[str, list[ServiceBusReceivedMessage]] = {}
    for message in take(client, partitioned, rounds * len(keys)):
        by_key.setdefault(message.partition_key or "", []).append(message)
    assert sorted(by_key) == sorted(keys)
    for messages in by_key.values():
        assert [str(message) for message in messages] == [str(n) for n in range(rounds)]
        assert len({partition_of(message) for message in messages}) == 1
        numbers = [message.sequence_number or 0 for message in messages]
        assert all(early < late for early, late in pairwise(numbers))
    assert len({partition_of(messages[0]) for messages in by_key.values()}) > FRAGMENTS // 2


def test_K3_a_session_id_and_another_partition_key_are_refused(
    client: ServiceBusClient, queue: str
) -> None:
    contradiction = AmqpAnnotatedMessage(
        data_body=[b"never"],
        properties={"group_id": "a session"},
        annotations={"x-opt-partition-key": "another key"},
    )
    with client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="PartitionKey"):
            sender.send_messages(contradiction)
        sender.send_messages(ServiceBusMessage("fine", session_id="s", partition_key="s"))
    assert [str(message) for message in take(client, queue, 1)] == ["fine"]


def test_K5_messages_without_a_key_spread_over_all_fragments(
    client: ServiceBusClient, partitioned: str
) -> None:
    with client.get_queue_sender(partitioned) as sender:
        for n in range(1024):
            sender.send_messages(ServiceBusMessage(str(n)))
    spread = Counter(partition_of(message) for message in take(client, partitioned, 1024))
    assert set(spread) == set(range(1, FRAGMENTS + 1))
    assert max(spread.values()) <= 1.5 * 1024 / FRAGMENTS


def test_a_batch_without_keys_goes_whole_to_one_fragment(
    client: ServiceBusClient, partitioned: str
) -> None:
    with client.get_queue_sender(partitioned) as sender:
        for batch in range(4):
            sender.send_messages([ServiceBusMessage(f"{batch} {n:02}") for n in range(10)])
    by_batch: dict[str, list[ServiceBusReceivedMessage]] = {}
    for message in take(client, partitioned, 40):
        by_batch.setdefault(str(message)[0], []).append(message)
    for messages in by_batch.values():
        assert len({partition_of(message) for message in messages}) == 1
        assert [str(message)[2:] for message in messages] == [f"{n:02}" for n in range(10)]


def test_distinct_keys_in_one_batch_are_refused_on_a_partitioned_queue(
    client: ServiceBusClient, partitioned: str
) -> None:
    with client.get_queue_sender(partitioned) as sender:
        for field in ("partition_key", "session_id"):
            mixed = [ServiceBusMessage("x", **{field: str(n)}) for n in range(2)]
            with pytest.raises(ServiceBusError, match="distinct SessionId or PartitionKey"):
                sender.send_messages(mixed)
        # All or nothing, and the sender goes on.
        sender.send_messages([ServiceBusMessage("same", partition_key="k") for _ in range(3)])
    assert [str(message) for message in take(client, partitioned, 3)] == ["same"] * 3


def test_distinct_keys_in_one_batch_are_fine_on_a_conventional_queue(
    client: ServiceBusClient, conventional: str
) -> None:
    with client.get_queue_sender(conventional) as sender:
        sender.send_messages([ServiceBusMessage(str(n), partition_key=str(n)) for n in range(5)])
    messages = take(client, conventional, 5)
    assert [str(message) for message in messages] == [str(n) for n in range(5)]
    assert [message.partition_key for message in messages] == [str(n) for n in range(5)]
