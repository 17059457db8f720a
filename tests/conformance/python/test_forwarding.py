"""Forwarding as the vendor's client sees it, over two nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError

WAIT_S = 2


@pytest.fixture
def client(live_namespace: Any) -> Iterator[ServiceBusClient]:
    string = live_namespace.connection_string
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        yield client


def received(
    client: ServiceBusClient, queue: str, sub_queue: ServiceBusSubQueue | None = None
) -> list[ServiceBusReceivedMessage]:
    """Everything that comes, completed."""
    found = []
    with client.get_queue_receiver(queue, sub_queue=sub_queue, max_wait_time=WAIT_S) as receiver:
        for message in receiver:
            found.append(message)
            receiver.complete_message(message)
    return found


@pytest.mark.parametrize("source", [False, True], ids=["conventional", "partitioned"])
def test_F1_messages_go_from_one_kind_of_queue_to_the_other(
    source: bool, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    target = new_queue(enable_partitioning=not source)
    queue = new_queue(enable_partitioning=source, forward_to=target)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            [ServiceBusMessage(f"k{number}", partition_key="k") for number in range(10)]
        )
        for number in range(10):
            sender.send_messages(
                ServiceBusMessage(
                    f"{number}", message_id=f"m{number}", application_properties={"n": number}
                )
            )
    got = {str(message): message for message in received(client, target)}
    assert sorted(got) == sorted([*map(str, range(10)), *(f"k{each}" for each in range(10))])
    assert got["3"].message_id == "m3"
    assert dict(got["3"].application_properties or {}) == {b"n": 3}
    assert got["k3"].partition_key == "k"
    keyed = [got[f"k{number}"].sequence_number or 0 for number in range(10)]
    assert keyed == sorted(keyed)
    assert len({number >> 48 for number in keyed}) == 1
    assert [got["k1"].enqueued_sequence_number or 0] != [0]


def test_F1_dead_letters_are_forwarded_with_their_reasons(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    graveyard = new_queue(enable_partitioning=True)
    queue = new_queue(forward_dead_lettered_messages_to=graveyard)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("poison"))
    with client.get_queue_receiver(queue, max_wait_time=10) as receiver:
        [message] = receiver.receive_messages(1)
        receiver.dead_letter_message(message, reason="bad", error_description="very bad")
    [dead] = received(client, graveyard)
    assert str(dead) == "poison"
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("bad", "very bad")
    assert dead.dead_letter_source == queue


def test_F1_what_went_too_far_is_in_the_transfer_dead_letter_queue(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    end = new_queue()
    chain = [end]
    for _ in range(5):
        chain.append(new_queue(forward_to=chain[-1]))
    with client.get_queue_sender(chain[-1]) as sender:
        sender.send_messages(ServiceBusMessage("far"))
    [dead] = received(client, chain[1], ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert dead.dead_letter_reason == "MaxTransferHopCountExceeded"
    assert "4" in (dead.dead_letter_error_description or "")


def test_F1_what_its_destination_does_not_take_is_in_the_transfer_dead_letter_queue(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    closed = new_queue(enable_partitioning=True, status="SendDisabled")
    queue = new_queue(enable_partitioning=True, forward_to=closed)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("unwanted"))
    [dead] = received(client, queue, ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert dead.dead_letter_reason == "MessagingEntityDisabled"


def test_a_queue_that_forwards_cannot_be_received_from(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    target = new_queue()
    queue = new_queue(forward_to=target, forward_dead_lettered_messages_to=target)
    for sub_queue in (None, ServiceBusSubQueue.DEAD_LETTER):
        receiver = client.get_queue_receiver(queue, sub_queue=sub_queue)
        with pytest.raises(ServiceBusError, match="auto-forwarding"):
            receiver.receive_messages(1, max_wait_time=1)
        receiver.close()


def test_F1_messages_go_into_topics_and_out_of_subscriptions(
    client: ServiceBusClient, new_queue: Callable[..., str], live_namespace: Any
) -> None:
    end = new_queue(enable_partitioning=True)
    topic = live_namespace.create_topic("forwarding-topic", enable_partitioning=True)
    live_namespace.create_subscription(topic, "onward", forward_to=end)
    queue = new_queue(forward_to=topic)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
    assert sorted(str(message) for message in received(client, end)) == list("01234")
    with pytest.raises(ServiceBusError, match="auto-forwarding"):
        client.get_subscription_receiver(topic, "onward").receive_messages(1, max_wait_time=1)
