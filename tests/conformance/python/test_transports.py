"""The vendor's client over TLS and WebSockets, unmodified, on the port that speaks everything."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from partibus.client import Client, Message
from partibus.testing.serve import LiveBroker

WAIT_S = 5
BODY = b"x" * 200_000


@pytest.fixture(scope="module")
def queue(live_namespace: LiveBroker) -> str:
    """Transports carry bytes: one queue will do."""
    return live_namespace.create_queue("transports", enable_partitioning=True)


@pytest.fixture
def tls(live_namespace: LiveBroker) -> dict[str, Any]:
    """What from_connection_string needs. This client drops the port of a string under TLS."""
    return {
        "conn_str": live_namespace.tls_connection_string,
        "custom_endpoint_address": f"sb://127.0.0.1:{live_namespace.port}",
        # With an address of its own it would take WebSockets.
        "transport_type": TransportType.Amqp,
        "connection_verify": str(live_namespace.authority),
        "retry_total": 0,
    }


@pytest.fixture
def websocket(tls: dict[str, Any], live_namespace: LiveBroker) -> dict[str, Any]:
    """The same in WebSockets; the blocking client takes what to trust from an option only."""
    return tls | {"transport_type": TransportType.AmqpOverWebsocket}


def exchange(options: dict[str, Any], queue: str) -> list[bytes]:
    with ServiceBusClient.from_connection_string(**options) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(BODY), ServiceBusMessage(b"small")])
        with client.get_queue_receiver(queue) as receiver:
            bodies: list[bytes] = []
            while len(bodies) < 2:
                messages = receiver.receive_messages(2, max_wait_time=WAIT_S)
                assert messages
                for message in messages:
                    receiver.complete_message(message)
                    bodies.append(b"".join(message.body))
            return sorted(bodies)


async def exchange_async(options: dict[str, Any], queue: str) -> list[bytes]:
    async with AsyncServiceBusClient.from_connection_string(**options) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(BODY), ServiceBusMessage(b"small")])
        async with client.get_queue_receiver(queue) as receiver:
            bodies: list[bytes] = []
            while len(bodies) < 2:
                messages = await receiver.receive_messages(2, max_wait_time=WAIT_S)
                assert messages
                for message in messages:
                    await receiver.complete_message(message)
                    bodies.append(b"".join(message.body))
            return sorted(bodies)


def test_A4_messages_go_over_tls(tls: dict[str, Any], queue: str) -> None:
    assert exchange(tls, queue) == [b"small", BODY]


def test_A4_messages_go_over_tls_asynchronously(tls: dict[str, Any], queue: str) -> None:
    assert asyncio.run(exchange_async(tls, queue)) == [b"small", BODY]


def test_A4_who_does_not_trust_the_authority_does_not_connect(
    tls: dict[str, Any], queue: str
) -> None:
    del tls["connection_verify"]
    with pytest.raises(ServiceBusError, match="CERTIFICATE_VERIFY_FAILED"):
        exchange(tls, queue)


def test_A4_messages_go_over_websockets(websocket: dict[str, Any], queue: str) -> None:
    assert exchange(websocket, queue) == [b"small", BODY]


def test_A4_messages_go_over_websockets_asynchronously(
    websocket: dict[str, Any], queue: str
) -> None:
    assert asyncio.run(exchange_async(websocket, queue)) == [b"small", BODY]


def test_A4_our_own_client_speaks_tls_on_the_port_that_its_string_names(
    live_namespace: LiveBroker, queue: str
) -> None:
    trust = ssl.create_default_context(cafile=live_namespace.authority)
    string = live_namespace.tls_connection_string
    with Client.from_connection_string(string, ssl_context=trust) as client:
        with client.sender(queue) as sender:
            sender.send(Message("in TLS"))
        with client.receiver(queue, max_wait=WAIT_S) as receiver:
            (message,) = receiver.receive(timeout=WAIT_S)
            receiver.complete(message)
            assert message.text == "in TLS"
