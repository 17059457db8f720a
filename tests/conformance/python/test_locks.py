"""Locks: how long a message is one receiver's, and what happens when that ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError

LOCK_S = 5
WAIT_S = 10
SHORT_WAIT_S = 0.3


@pytest.fixture
def client(live_namespace: Any) -> Iterator[ServiceBusClient]:
    text = live_namespace.connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def short_locks(request: pytest.FixtureRequest, new_queue: Callable[..., str]) -> str:
    """A queue with the shortest locks there are."""
    return new_queue(
        lock_duration=timedelta(seconds=LOCK_S),
        max_delivery_count=2,
        enable_partitioning=request.param,
    )


def test_a_message_is_one_receivers_until_its_lock_ends(
    client: ServiceBusClient, short_locks: str
) -> None:
    with (
        client.get_queue_sender(short_locks) as sender,
        client.get_queue_receiver(short_locks) as first,
        client.get_queue_receiver(short_locks) as second,
    ):
        sender.send_messages(ServiceBusMessage("held"))
        (held,) = first.receive_messages(max_wait_time=WAIT_S)
        received_s = time.monotonic()
        assert not second.receive_messages(max_wait_time=SHORT_WAIT_S)
        (again,) = second.receive_messages(max_wait_time=WAIT_S)
        assert 0.8 * LOCK_S < time.monotonic() - received_s < 1.6 * LOCK_S
        assert (held.delivery_count, again.delivery_count) == (0, 1)
        with pytest.raises(MessageLockLostError):
            first.complete_message(held)
        # That was the last chance.
        second.abandon_message(again)
    with client.get_queue_receiver(
        short_locks, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        (dead,) = receiver.receive_messages(max_wait_time=WAIT_S)
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        receiver.complete_message(dead)


def test_a_renewed_lock_lasts(client: ServiceBusClient, new_queue: Callable[..., str]) -> None:
    queue = new_queue(lock_duration=timedelta(seconds=LOCK_S))
    with (
        AutoLockRenewer() as renewer,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as first,
        client.get_queue_receiver(queue) as second,
    ):
        sender.send_messages(ServiceBusMessage("slow work"))
        (message,) = first.receive_messages(max_wait_time=WAIT_S)
        renewer.register(first, message, max_lock_renewal_duration=60)
        assert not second.receive_messages(max_wait_time=1.4 * LOCK_S)
        first.complete_message(message)
        assert not second.receive_messages(max_wait_time=SHORT_WAIT_S)


def test_a_message_settled_twice_is_lost_to_the_second(
    client: ServiceBusClient, queue: str
) -> None:
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("once"))
        (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.abandon_message(message)
        (again,) = receiver.receive_messages(max_wait_time=WAIT_S)
        assert again.lock_token != message.lock_token
        receiver.complete_message(again)
        # The client itself refuses to settle one object twice.
        with pytest.raises(ValueError, match="already"):
            receiver.complete_message(again)


def test_what_a_receiver_prefetched_and_did_not_return_is_given_back_uncounted(
    client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(n)) for n in range(20)])
    with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.complete_message(message)
    counts = []
    with client.get_queue_receiver(queue) as receiver:
        while batch := receiver.receive_messages(20, max_wait_time=1):
            counts += [message.delivery_count for message in batch]
            for message in batch:
                receiver.complete_message(message)
    assert counts == [0] * 19
