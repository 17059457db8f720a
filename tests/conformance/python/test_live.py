"""What an operator sees of a live broker while clients use it."""

from __future__ import annotations

import json

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.testing.serve import LiveBroker

WAIT_S = 5


def test_it_prints_where_it_is_and_then_that_it_is_ready(live_namespace: LiveBroker) -> None:
    assert live_namespace.printed[-1] == "ready"
    (line,) = (line for line in live_namespace.printed if line.startswith("connection string:"))
    printed = line[line.index("Endpoint=") :]
    queue = live_namespace.create_queue("printed")
    with (
        ServiceBusClient.from_connection_string(printed, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))


def test_health_is_200_and_names_nothing_that_is_down(live_namespace: LiveBroker) -> None:
    status, body = live_namespace.health()
    answer = json.loads(body)
    assert status == 200
    assert answer["status"] == "healthy"
    assert answer["stores"] == {"total": 16, "down": []}
    assert answer["nodes"] == {"total": 2, "down": []}


def test_P1_one_connection_reaches_the_fragments_of_all_nodes(live_namespace: LiveBroker) -> None:
    """Neighbouring fragments lie on different nodes, and a connection is to one node only."""
    queue = live_namespace.create_queue("crossing", enable_partitioning=True)
    with (
        ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for number in range(64):
            sender.send_messages(ServiceBusMessage(str(number)))
        partitions: list[int] = []
        while len(partitions) < 64:
            messages = receiver.receive_messages(64, max_wait_time=WAIT_S)
            assert messages, f"{len(partitions)} of 64 came"
            for message in messages:
                receiver.complete_message(message)
                partitions.append((message.sequence_number or 0) >> 48)
    assert set(partitions) == set(range(1, 17))
