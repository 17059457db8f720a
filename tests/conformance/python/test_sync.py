"""The vendor's blocking client, unmodified, on both kinds of queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

WAIT_S = 2
SHORT_WAIT_S = 0.3


@pytest.fixture
def client(live_namespace: Any) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        live_namespace.connection_string, retry_total=0
    ) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive until there are so many, or none come."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        batch = receiver.receive_messages(count - len(messages), max_wait_time=WAIT_S)
        if not batch:
            break
        messages += batch
    return messages


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message) for message in messages)


def is_empty(client: ServiceBusClient, queue: str) -> bool:
    with client.get_queue_receiver(queue) as receiver:
        return not receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)


def test_one_message_goes_through_with_everything_it_carries(
    client: ServiceBusClient, queue: str
) -> None:
    sent = ServiceBusMessage(
        b"body",
        application_properties={"text": "t", "number": 7, "flag": True},
        message_id="m-1",
        subject="subject",
        correlation_id="c-1",
        content_type="application/x",
        reply_to="elsewhere",
        to="someone",
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        assert b"".join(message.body) == b"body"
        assert message.application_properties == {b"text": b"t", b"number": 7, b"flag": True}
        assert (message.message_id, message.subject) == ("m-1", "subject")
        assert (message.correlation_id, message.content_type) == ("c-1", "application/x")
        assert (message.reply_to, message.to) == ("elsewhere", "someone")
        assert message.delivery_count == 0
        assert message.sequence_number is not None
        assert message.enqueued_time_utc is not None
        assert message.locked_until_utc is not None
        receiver.complete_message(message)
    assert is_empty(client, queue)


def test_many_messages_come_back_once_each(client: ServiceBusClient, queue: str) -> None:
    names = [f"{number:04}" for number in range(300)]
    send(client, queue, *names[:150])
    with client.get_queue_sender(queue) as sender:
        for name in names[150:]:
            sender.send_messages(ServiceBusMessage(name))
    with client.get_queue_receiver(queue) as receiver:
        messages = take(receiver, 300)
        for message in messages:
            receiver.complete_message(message)
    assert bodies(messages) == names
    assert is_empty(client, queue)


def test_a_batch_arrives_whole_and_in_order(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        for number in range(50):
            batch.add_message(ServiceBusMessage(f"{number:02}"))
        sender.send_messages(batch)
    with client.get_queue_receiver(queue) as receiver:
        messages = take(receiver, 50)
    assert [str(message) for message in messages] == [f"{number:02}" for number in range(50)]


def test_messages_with_one_key_keep_their_order(client: ServiceBusClient, queue: str) -> None:
    names = [f"{number:03}" for number in range(100)]
    with client.get_queue_sender(queue) as sender:
        for name in names:
            sender.send_messages(ServiceBusMessage(name, partition_key="k"))
    with client.get_queue_receiver(queue) as receiver:
        messages = take(receiver, 100)
    assert [str(message) for message in messages] == names
    assert {message.partition_key for message in messages} == {"k"}


def test_large_messages_of_many_frames_go_through(client: ServiceBusClient, queue: str) -> None:
    body = bytes(range(256)) * 900
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(body))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        assert b"".join(message.body) == body
        receiver.complete_message(message)


def test_a_message_over_the_limit_is_refused(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 300_000))
        sender.send_messages(ServiceBusMessage(b"fits"))


def test_an_abandoned_message_comes_again_and_counts(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "again")
    with client.get_queue_receiver(queue) as receiver:
        (first,) = take(receiver, 1)
        receiver.abandon_message(first)
        (second,) = take(receiver, 1)
        assert str(second) == "again"
        assert second.delivery_count == 1
        assert second.lock_token != first.lock_token
        receiver.complete_message(second)
    assert is_empty(client, queue)


def test_a_dead_lettered_message_lies_in_the_dead_letter_queue(
    client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, "bad")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        receiver.dead_letter_message(message, reason="why", error_description="because")
    assert is_empty(client, queue)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = take(receiver, 1)
        assert str(dead) == "bad"
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("why", "because")
        assert dead.sequence_number == message.sequence_number
        receiver.complete_message(dead)
        assert not receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)


def test_a_message_abandoned_too_often_dies(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "poison")
    with client.get_queue_receiver(queue) as receiver:
        for _ in range(10):
            (message,) = take(receiver, 1)
            receiver.abandon_message(message)
        assert not receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = take(receiver, 1)
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_a_deferred_message_is_not_delivered(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "later")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        receiver.defer_message(message)
        assert not receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)


def test_receive_and_delete_removes_at_once(client: ServiceBusClient, queue: str) -> None:
    names = [f"{number:02}" for number in range(40)]
    send(client, queue, *names)
    with client.get_queue_receiver(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert bodies(take(receiver, 40)) == names
    assert is_empty(client, queue)


def test_prefetch_delivers_everything_once(client: ServiceBusClient, queue: str) -> None:
    names = [f"{number:03}" for number in range(200)]
    send(client, queue, *names)
    with client.get_queue_receiver(queue, prefetch_count=50) as receiver:
        messages = take(receiver, 200)
        for message in messages:
            receiver.complete_message(message)
    assert bodies(messages) == names
    assert is_empty(client, queue)


def test_the_iterator_ends_when_nothing_comes(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "a", "b", "c")
    seen = []
    with client.get_queue_receiver(queue, max_wait_time=1) as receiver:
        for message in receiver:
            seen.append(message)
            receiver.complete_message(message)
    assert bodies(seen) == ["a", "b", "c"]


def test_what_a_closed_receiver_held_is_not_lost(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(lock_duration=timedelta(seconds=5))
    send(client, queue, "held")
    with client.get_queue_receiver(queue) as receiver:
        (first,) = take(receiver, 1)
    with client.get_queue_receiver(queue) as receiver:
        (again,) = receiver.receive_messages(1, max_wait_time=8)
        assert str(again) == "held"
        assert again.delivery_count == 1
        with pytest.raises((MessageLockLostError, ValueError)):
            receiver.complete_message(first)
        receiver.complete_message(again)


def test_a_lock_can_be_renewed(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "slow")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        before = message.locked_until_utc
        until = receiver.renew_message_lock(message)
        assert before is not None
        assert until >= before
        receiver.complete_message(message)


def test_a_key_that_is_not_ours_is_refused(wrong_key_string: str, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(wrong_key_string, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("never"))


def test_a_rule_of_a_queue_gives_its_rights_on_that_queue_only(
    live_namespace: Any, queue: str, new_queue: Callable[..., str]
) -> None:
    text = live_namespace.create_access_rule("sender", "Send", queue=queue)
    # The client itself would refuse another queue than the string names.
    text = text.replace(f"EntityPath={queue};", "")
    other = new_queue()
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        send(client, queue, "allowed")
        with (
            pytest.raises(ServiceBusAuthorizationError),
            client.get_queue_receiver(queue) as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)
        with pytest.raises(ServiceBusAuthenticationError):
            send(client, other, "not allowed")


def test_an_unknown_queue_is_an_authentication_error_as_upstream_has_it(
    client: ServiceBusClient,
) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(client, "no-such-queue", "lost")


def test_a_dead_letter_queue_takes_no_messages(client: ServiceBusClient, queue: str) -> None:
    with pytest.raises(ServiceBusError):
        send(client, f"{queue}/$DeadLetterQueue", "no")


def test_a_session_receiver_needs_a_queue_with_sessions(
    client: ServiceBusClient, queue: str
) -> None:
    for session in ("s", NEXT_AVAILABLE_SESSION):
        with (
            pytest.raises(ServiceBusError, match="sessionful message receiver cannot be created"),
            client.get_queue_receiver(queue, session_id=session, max_wait_time=1) as receiver,
        ):
            receiver.receive_messages(1)
