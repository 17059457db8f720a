"""Duplicate detection, as the vendor's client sees it, on queues of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from partibus.testing.namespace import Namespace

PARTITION_SHIFT = 48
WAIT_S = 1


def received(client: ServiceBusClient, queue: str) -> list[tuple[str, str]]:
    """Everything in a queue: ids and bodies, completed."""
    found = []
    with client.get_queue_receiver(queue, max_wait_time=WAIT_S) as receiver:
        for message in receiver:
            found.append((message.message_id, str(message)))
            receiver.complete_message(message)
    return sorted(found)


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def once_queue(request: pytest.FixtureRequest, new_queue: Callable[..., str]) -> str:
    return new_queue(enable_partitioning=request.param, requires_duplicate_detection=True)


def test_F2_all_but_one_of_equal_messages_disappear(live_namespace: Any, once_queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
        client.get_queue_sender(once_queue) as sender,
    ):
        for number in range(5):
            for copy in range(3):
                sender.send_messages(ServiceBusMessage(str(copy), message_id=f"m{number}"))
        assert received(client, once_queue) == [(f"m{number}", "0") for number in range(5)]
        sender.send_messages(ServiceBusMessage("late", message_id="m3"))
        assert received(client, once_queue) == []


def test_F2_duplicates_in_a_batch_disappear(live_namespace: Any, once_queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
        client.get_queue_sender(once_queue) as sender,
    ):
        batch = [
            ServiceBusMessage(body, message_id=message_id, partition_key="k")
            for body, message_id in (("1", "a"), ("2", "b"), ("3", "a"))
        ]
        sender.send_messages(batch)
        assert received(client, once_queue) == [("a", "1"), ("b", "2")]


def test_K1_with_duplicate_detection_the_message_id_is_the_key(
    live_namespace: Any, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(enable_partitioning=True, requires_duplicate_detection=True)
    with (
        ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for key in ("k", "l"):
            sender.send_messages(ServiceBusMessage("x", message_id="a", partition_key=key))
        # The same id under two keys is two messages.
        assert len(received(client, queue)) == 2
        with pytest.raises(ServiceBusError, match="distinct SessionId, PartitionKey, or MessageId"):
            sender.send_messages([ServiceBusMessage("x", message_id=each) for each in "ab"])


@pytest.mark.parametrize("partitioned", [False, True], ids=["conventional", "partitioned"])
def test_F2_the_history_outlives_a_restart_and_ends_with_its_window(
    partitioned: bool, tmp_path: Path
) -> None:
    with Namespace(tmp_path) as namespace:
        queue = namespace.create_queue(
            "q",
            enable_partitioning=partitioned,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=1),
        )

        def send_and_receive(body: str) -> list[tuple[str, str]]:
            string = namespace.connection_string
            with (
                ServiceBusClient.from_connection_string(string) as client,
                client.get_queue_sender(queue) as sender,
            ):
                sender.send_messages(ServiceBusMessage(body, message_id="a"))
                return received(client, queue)

        assert send_and_receive("first") == [("a", "first")]
        namespace.restart()
        assert send_and_receive("second") == []
        namespace.clock.advance(50)
        assert send_and_receive("third") == []
        namespace.clock.advance(11)
        assert send_and_receive("fourth") == [("a", "fourth")]
