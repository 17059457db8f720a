"""What a message carries arrives as it was sent: bodies, properties, and sizes up to the limit."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError

WAIT_S = 5
MESSAGE_BYTES_MAX = 262_144
# Header, annotations and properties of a message without any of its own.
OVERHEAD_BYTES = 512


@dataclass(frozen=True)
class Line:
    """A sender and a receiver on one queue, open for all tests of this file."""

    sender: ServiceBusSender
    receiver: ServiceBusReceiver

    def exchange(self, *messages: Any) -> list[ServiceBusReceivedMessage]:
        """Send the messages one by one, and receive as many."""
        for message in messages:
            self.sender.send_messages(message)
        return self.take(len(messages))

    def take(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Receive and complete so many, and no more."""
        received: list[ServiceBusReceivedMessage] = []
        while len(received) < count:
            batch = self.receiver.receive_messages(count - len(received), max_wait_time=WAIT_S)
            assert batch, f"{len(received)} of {count} came"
            for message in batch:
                self.receiver.complete_message(message)
            received += batch
        return received


@pytest.fixture(scope="module", params=[False, True], ids=["conventional", "partitioned"])
def line(live_namespace: Any, request: pytest.FixtureRequest) -> Iterator[Line]:
    queue = live_namespace.create_queue(
        f"contents-{request.param}", enable_partitioning=request.param
    )
    text = live_namespace.connection_string
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        yield Line(sender, receiver)


def test_application_properties_of_every_type_come_back(line: Line) -> None:
    sent: dict[str | bytes, Any] = {
        "text": "Grüße, 世界",
        "empty": "",
        "int": 2**31 - 1,
        "negative": -1,
        "double": 1.5,
        "true": True,
        "false": False,
        # The client makes text of it, on sending and on receiving.
        "binary": b"ascii",
        "uuid": uuid.UUID(int=0x1234567890ABCDEF),
        "long text": "x" * 1000,
    }
    (message,) = line.exchange(ServiceBusMessage("b", application_properties=sent))
    expected = {
        str(name).encode(): value.encode() if isinstance(value, str) else value
        for name, value in sent.items()
    }
    assert message.application_properties == expected


def test_a_moment_as_a_property_comes_back_to_the_millisecond(line: Line) -> None:
    moment = datetime(2024, 2, 29, 12, 34, 56, 789_000, tzinfo=UTC)
    (message,) = line.exchange(ServiceBusMessage("b", application_properties={"at": moment}))
    assert message.application_properties == {b"at": round(moment.timestamp() * 1000)}


def test_bodies_of_every_kind_come_back(line: Line) -> None:
    bodies: list[tuple[str, AmqpMessageBodyType, Any]] = [
        ("data_body", AmqpMessageBodyType.DATA, [b"one", b"two"]),
        ("sequence_body", AmqpMessageBodyType.SEQUENCE, [[1, b"two"], [True, None]]),
        ("value_body", AmqpMessageBodyType.VALUE, {b"k": [1, 2.5, b"v"]}),
    ]
    messages = [
        AmqpAnnotatedMessage(properties={"message_id": name}, **{name: body})
        for name, _, body in bodies
    ]
    received = {message.message_id: message for message in line.exchange(*messages)}
    for name, kind, body in bodies:
        raw = received[name].raw_amqp_message
        assert raw.body_type == kind
        assert (raw.body if kind == AmqpMessageBodyType.VALUE else list(raw.body)) == body


def test_system_properties_come_back(line: Line) -> None:
    sent = ServiceBusMessage(
        "b",
        session_id="a session",
        time_to_live=timedelta(hours=1),
        message_id="m" * 128,
        reply_to_session_id="another",
    )
    (message,) = line.exchange(sent)
    assert message.session_id == "a session"
    assert message.time_to_live == timedelta(hours=1)
    assert message.message_id == "m" * 128
    assert message.reply_to_session_id == "another"
    assert message.enqueued_time_utc is not None
    assert message.expires_at_utc == message.enqueued_time_utc + timedelta(hours=1)


def test_a_message_without_an_id_is_given_one(line: Line) -> None:
    first, second = line.exchange(
        AmqpAnnotatedMessage(data_body=[b"a"]),
        AmqpAnnotatedMessage(data_body=[b"b"]),
    )
    assert first.message_id
    assert second.message_id
    assert first.message_id != second.message_id


def test_annotations_of_the_sender_are_kept(line: Line) -> None:
    sent = AmqpAnnotatedMessage(data_body=[b"a"], annotations={"x-trace": "t", "x-hops": 3})
    (message,) = line.exchange(sent)
    annotations = message.raw_amqp_message.annotations
    assert annotations is not None
    assert annotations[b"x-trace"] in (b"t", "t")
    assert annotations[b"x-hops"] == 3


def test_messages_of_every_size_up_to_the_limit_come_back(line: Line) -> None:
    # Around the sizes where frames end and encodings change.
    sizes = [0, 1, 255, 256, 65_000, 65_536, 131_072, MESSAGE_BYTES_MAX - OVERHEAD_BYTES]
    messages = [
        ServiceBusMessage(
            size.to_bytes(4, "big") * (size // 4) + b"." * (size % 4), message_id=str(size)
        )
        for size in sizes
    ]
    received = {
        int(message.message_id or 0): b"".join(message.body) for message in line.exchange(*messages)
    }
    assert {size: len(body) for size, body in received.items()} == {size: size for size in sizes}
    assert all(
        body.startswith(size.to_bytes(4, "big")) for size, body in received.items() if size > 3
    )


def test_a_message_over_the_limit_is_refused_and_the_sender_goes_on(line: Line) -> None:
    for size in (MESSAGE_BYTES_MAX + 1, 1_000_000):
        with pytest.raises(MessageSizeExceededError):
            line.sender.send_messages(ServiceBusMessage(b"x" * size))
    assert [str(message) for message in line.exchange(ServiceBusMessage(b"fits"))] == ["fits"]


def fill(batch: ServiceBusMessageBatch) -> int:
    """Add messages until no more fit; returns how many did."""
    for count in itertools.count():
        try:
            batch.add_message(ServiceBusMessage(b"x" * 1000))
        except MessageSizeExceededError:
            return count
    raise AssertionError


def test_a_batch_can_be_filled_to_the_brim(line: Line) -> None:
    batch = line.sender.create_message_batch()
    count = fill(batch)
    assert count > 200
    line.sender.send_messages(batch)
    assert len(line.take(count)) == count
