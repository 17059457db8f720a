"""Links follow names: who was attached to a name that changed hands finds its new owner (M5)."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from partibus.client.connection_string import read_connection_string
from partibus.management.operations.renaming import Rename, Swap
from partibus.testing.namespace import Namespace


def post(namespace: Namespace, path: str, body: object) -> Any:
    """As curl would do it, with the root key."""
    credentials = read_connection_string(namespace.connection_string).credentials
    assert credentials is not None
    url = f"http://127.0.0.1:{namespace.http_port}"
    token = credentials.token(url, round(time.time() * 1000)).text
    request = urllib.request.Request(
        f"{url}/$partibus/entities/{path}",
        json.dumps(body).encode(),
        {"Authorization": token},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def received(client: ServiceBusClient, queue: str) -> list[bytes]:
    with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        return [b"".join(each.body) for each in receiver.receive_messages(10, max_wait_time=5)]


def test_M5_open_senders_and_receivers_go_on_with_who_has_the_name_now(
    servicebus_namespace: Namespace,
) -> None:
    namespace = servicebus_namespace
    namespace.create_queue("orders")
    namespace.create_queue("orders-new", enable_partitioning=True)
    assert Swap("orders-new").other == "orders-new"
    with (
        ServiceBusClient.from_connection_string(
            namespace.connection_string, retry_backoff_factor=0.05
        ) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(b"before"))
        post(namespace, "orders/swap", {"with": "orders-new"})
        sender.send_messages(ServiceBusMessage(b"after"))
        # The open receiver finds the new owner of the name, too.
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        assert b"".join(message.body) == b"after"
        receiver.complete_message(message)
        assert received(client, "orders-new") == [b"before"]


def test_who_holds_on_to_a_name_that_nobody_has_is_told_so(
    servicebus_namespace: Namespace,
) -> None:
    namespace = servicebus_namespace
    namespace.create_queue("orders")
    assert Rename("archive").name == "archive"
    with (
        ServiceBusClient.from_connection_string(
            namespace.connection_string, retry_total=1, retry_backoff_factor=0.05
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(b"kept"))
        post(namespace, "orders/rename", {"name": "archive"})
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage(b"late"))
        assert received(client, "archive") == [b"kept"]
