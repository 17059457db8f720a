"""What the pytest fixtures promise to the tests of an application."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from partibus.broker.partitioning import index_of
from partibus.testing.namespace import Namespace

LOCK = timedelta(seconds=60)
NO_MORE_S = 0.5
COMES_S = 10


@pytest.fixture(autouse=True)
def _forgive_the_client() -> Iterator[None]:
    """The vendor's client leaves sockets open whose connection was lost; that is not our test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def client_of(namespace: Namespace, **options: object) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(namespace.connection_string, **options)


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


def take(client: ServiceBusClient, queue: str, wait_s: float = COMES_S) -> list[str]:
    with client.get_queue_receiver(queue) as receiver:
        messages = receiver.receive_messages(max_message_count=100, max_wait_time=wait_s)
        for message in messages:
            receiver.complete_message(message)
        return sorted(str(message) for message in messages)


def test_a_test_has_a_namespace_of_its_own(servicebus_namespace: Namespace) -> None:
    queue = servicebus_namespace.create_queue("orders")
    with client_of(servicebus_namespace) as client:
        send(client, queue, ServiceBusMessage("hello"))
        assert take(client, queue) == ["hello"]


def test_async_clients_work_as_well(servicebus_namespace: Namespace) -> None:
    queue = servicebus_namespace.create_queue("orders", enable_partitioning=True)

    async def exchange() -> list[str]:
        connection_string = servicebus_namespace.connection_string
        async with AsyncServiceBusClient.from_connection_string(connection_string) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("hello"))
            async with client.get_queue_receiver(queue) as receiver:
                messages = await receiver.receive_messages(max_wait_time=COMES_S)
                return [str(message) for message in messages]

    assert asyncio.run(exchange()) == ["hello"]


def test_locks_end_when_the_clock_is_put_forward(servicebus_namespace: Namespace) -> None:
    queue = servicebus_namespace.create_queue("orders", lock_duration=LOCK)
    with client_of(servicebus_namespace) as client:
        send(client, queue, ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue) as receiver:
            (first,) = receiver.receive_messages(max_wait_time=COMES_S)
            servicebus_namespace.clock.advance(LOCK.total_seconds() + 1)
            (second,) = receiver.receive_messages(max_wait_time=COMES_S)
            assert (first.delivery_count, second.delivery_count) == (0, 1)
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(first)
            receiver.complete_message(second)


def test_clients_stay_connected_however_far_the_clock_is_put_forward(
    servicebus_namespace: Namespace,
) -> None:
    queue = servicebus_namespace.create_queue("orders")
    with (
        client_of(servicebus_namespace, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        servicebus_namespace.clock.advance(timedelta(days=3).total_seconds())
        sender.send_messages(ServiceBusMessage("later"))
        (message,) = receiver.receive_messages(max_wait_time=COMES_S)
        receiver.complete_message(message)


def test_a_fragment_that_is_down_refuses_its_keys_and_no_others(
    servicebus_namespace: Namespace,
) -> None:
    queue = servicebus_namespace.create_queue("orders", enable_partitioning=True)
    key = "customer 7"
    fragment = servicebus_namespace.fragment(queue, index_of(key, 16) + 1)
    other = next(k for k in map(str, range(100)) if index_of(k, 16) != index_of(key, 16))
    with client_of(servicebus_namespace, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("before", partition_key=key))
            fragment.down()
            with pytest.raises(ServiceBusServerBusyError):
                sender.send_messages(ServiceBusMessage("pinned", partition_key=key))
            sender.send_messages(ServiceBusMessage("other", partition_key=other))
            for _ in range(20):
                sender.send_messages(ServiceBusMessage("free"))
        assert take(client, queue) == ["free"] * 20 + ["other"]
        assert take(client, queue, NO_MORE_S) == []
        fragment.up()
        assert take(client, queue) == ["before"]


def test_messages_on_disk_survive_a_restart(durable_servicebus_namespace: Namespace) -> None:
    namespace = durable_servicebus_namespace
    queue = namespace.create_queue("orders", EnablePartitioning=True)
    connection_string = namespace.connection_string
    with client_of(namespace) as client:
        send(client, queue, *(ServiceBusMessage(str(n)) for n in range(5)))
        namespace.restart()
        assert namespace.connection_string == connection_string
    with client_of(namespace) as client:
        assert take(client, queue) == [str(n) for n in range(5)]


def test_a_stopped_namespace_answers_nobody(servicebus_namespace: Namespace) -> None:
    queue = servicebus_namespace.create_queue("orders")
    with client_of(servicebus_namespace, retry_total=0) as client:
        servicebus_namespace.stop()
        with pytest.raises(ServiceBusError):
            send(client, queue, ServiceBusMessage("nobody there"))
        servicebus_namespace.start()


def test_a_rule_of_a_queue_gives_its_rights_and_no_more(servicebus_namespace: Namespace) -> None:
    queue = servicebus_namespace.create_queue("orders")
    servicebus_namespace.create_queue("others")
    listener = servicebus_namespace.create_access_rule("reader", "Listen", queue=queue)
    with client_of(servicebus_namespace) as client:
        send(client, queue, ServiceBusMessage("hello"))
    with ServiceBusClient.from_connection_string(listener, retry_total=0) as client:
        assert take(client, queue) == ["hello"]
        with pytest.raises(ServiceBusAuthorizationError):
            send(client, queue, ServiceBusMessage("not allowed"))
    elsewhere = listener.replace(f"EntityPath={queue};", "")
    with (
        ServiceBusClient.from_connection_string(elsewhere, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        take(client, "others")


def test_properties_have_the_names_of_the_administration_client(
    servicebus_namespace: Namespace,
) -> None:
    queue = servicebus_namespace.create_queue(
        "orders", lock_duration="PT30S", max_delivery_count=1, max_size_in_megabytes=2048
    )
    with client_of(servicebus_namespace) as client:
        send(client, queue, ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=COMES_S)
            receiver.abandon_message(message)
        assert take(client, f"{queue}/$DeadLetterQueue") == ["hello"]


def test_the_plugin_costs_nothing_where_it_is_not_used() -> None:
    code = (
        "import sys; import partibus.testing.plugin; "
        "print([m for m in sys.modules if m.startswith('partibus.') and 'testing' not in m])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.strip() == "[]", printed.stderr
