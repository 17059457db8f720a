"""Who gets in: keys, rules, signatures and connection strings, as the vendor's client has them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

WAIT_S = 5
HOUR_S = 3600
ROOT_RULE = "RootManageSharedAccessKey"


@pytest.fixture(scope="module")
def queue(live_namespace: Any) -> str:
    """Access is asked before anybody knows how many fragments there are: one queue will do."""
    name: str = live_namespace.create_queue("Guarded", enable_partitioning=True)
    return name


def parts_of(connection_string: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in connection_string.split(";") if part)
    return {name: value for name, _, value in pairs}


def signed(connection_string: str, resource: str, ends_in_s: float) -> str:
    """A shared access signature as an application would make it."""
    parts = parts_of(connection_string)
    encoded = quote_plus(resource)
    expiry = str(int(time.time() + ends_in_s))
    key, text = parts["SharedAccessKey"].encode(), f"{encoded}\n{expiry}".encode()
    signature = quote_plus(base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()))
    rule = parts["SharedAccessKeyName"]
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}&skn={rule}"


def exchange(connection_string: str, queue: str, **options: Any) -> list[str]:
    with ServiceBusClient.from_connection_string(
        connection_string, retry_total=0, **options
    ) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver(queue) as receiver:
            messages = receiver.receive_messages(10, max_wait_time=WAIT_S)
            for message in messages:
                receiver.complete_message(message)
            return [str(message) for message in messages]


def with_signature(connection_string: str, token: str) -> str:
    endpoint = parts_of(connection_string)["Endpoint"]
    return f"Endpoint={endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def test_a_connection_string_may_name_its_queue(live_namespace: Any, queue: str) -> None:
    text = live_namespace.connection_string + f"EntityPath={queue}"
    assert exchange(text, queue) == ["hello"]


def test_the_name_of_a_queue_is_found_in_any_case(live_namespace: Any, queue: str) -> None:
    assert exchange(live_namespace.connection_string, queue.upper()) == ["hello"]


def test_a_signature_opens_what_it_was_made_for(live_namespace: Any, queue: str) -> None:
    text = live_namespace.connection_string
    host = parts_of(text)["Endpoint"].removeprefix("sb://").partition(":")[0]
    for resource in (f"sb://{host}/{queue}", f"http://{host}/"):
        token = signed(text, resource, HOUR_S)
        assert exchange(with_signature(text, token), queue) == ["hello"]


def test_a_signature_for_another_queue_opens_nothing(live_namespace: Any, queue: str) -> None:
    text = live_namespace.connection_string
    token = signed(text, "sb://localhost/another", HOUR_S)
    with pytest.raises(ServiceBusAuthenticationError):
        exchange(with_signature(text, token), queue)


def test_an_expired_signature_opens_nothing(live_namespace: Any, queue: str) -> None:
    text = live_namespace.connection_string
    token = signed(text, f"sb://localhost/{queue}", -HOUR_S)
    with pytest.raises(ServiceBusAuthenticationError):
        exchange(with_signature(text, token), queue)


def test_an_unknown_rule_opens_nothing(live_namespace: Any, queue: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        exchange(live_namespace.connection_string.replace(ROOT_RULE, "nobody"), queue)


def test_a_queue_that_does_not_exist_cannot_be_reached(live_namespace: Any) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        exchange(live_namespace.connection_string, "no-such-queue")


def test_rights_are_asked_for_each_link(live_namespace: Any, queue: str) -> None:
    listen = live_namespace.create_access_rule("listener", "Listen")
    send = live_namespace.create_access_rule("sender", "Send")
    with (
        ServiceBusClient.from_connection_string(send, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
    with ServiceBusClient.from_connection_string(listen, retry_total=0) as client:
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
            receiver.complete_message(message)
        with (
            pytest.raises(ServiceBusAuthorizationError, match=r"'Send' claim\(s\) are required"),
            client.get_queue_sender(queue) as sender,
        ):
            sender.send_messages(ServiceBusMessage("not allowed"))
