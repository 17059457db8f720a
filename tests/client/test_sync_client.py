"""The blocking client against our broker: what an application does, on both kinds of queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.client import (
    Client,
    ConnectionLost,
    EntityNotFound,
    InvalidOperation,
    Message,
    MessageLockLost,
    MessageSizeExceeded,
    RetryPolicy,
    ServerBusy,
    Unauthorized,
)
from partibus.testing.namespace import Namespace

QUEUE = "orders"
# Long enough for a slow machine; only a test that is red waits for it.
PATIENCE_S = 20.0
# Nothing is there: long enough to be sure, short enough to be waited for.
MOMENT_S = 0.3
QUICK = RetryPolicy(attempts=6, delay_s=0.05, busy_delay_s=0.05)


@pytest.fixture(params=["conventional", "partitioned"])
def namespace(request: pytest.FixtureRequest, servicebus_namespace: Namespace) -> Namespace:
    partitioned = request.param == "partitioned"
    servicebus_namespace.create_queue(QUEUE, enable_partitioning=partitioned)
    return servicebus_namespace


@pytest.fixture
def client(namespace: Namespace) -> Iterator[Client]:
    with Client.from_connection_string(namespace.connection_string, retry=QUICK) as client:
        yield client


def test_a_message_comes_as_it_was_sent(client: Client) -> None:
    sent = Message(
        "hello",
        message_id="m-1",
        partition_key="customer-7",
        subject="greeting",
        correlation_id="c",
        content_type="text/plain",
        time_to_live=timedelta(hours=1),
        properties={"n": 7, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    )
    with client.sender(QUEUE) as sender, client.receiver(QUEUE) as receiver:
        sender.send(sent)
        (message,) = receiver.receive(timeout=PATIENCE_S)
        assert message.text == "hello"
        assert message.message_id == "m-1"
        assert message.partition_key == "customer-7"
        assert (message.subject, message.correlation_id) == ("greeting", "c")
        assert message.content_type == "text/plain"
        assert message.properties == sent.properties
        assert message.time_to_live == timedelta(hours=1)
        assert message.sequence_number is not None
        assert message.enqueued_time is not None
        assert message.locked_until is not None
        assert message.delivery_count == 0
        receiver.complete(message)
        assert receiver.receive(timeout=MOMENT_S) == []


def test_a_message_without_an_id_gets_one(client: Client) -> None:
    message = Message("x")
    client.sender(QUEUE).send(message)
    (received,) = client.receiver(QUEUE).receive(timeout=PATIENCE_S)
    assert message.message_id is not None
    assert received.message_id == message.message_id


def test_a_receive_takes_what_is_there_up_to_what_it_asks_for(client: Client) -> None:
    client.sender(QUEUE).send([Message(str(n)) for n in range(250)])
    with client.receiver(QUEUE) as receiver:
        bodies = []
        while messages := receiver.receive(100, timeout=MOMENT_S):
            assert len(messages) <= 100
            bodies += [message.text for message in messages]
            receiver.complete(messages)
    assert sorted(bodies, key=int) == [str(n) for n in range(250)]


def test_messages_of_one_key_come_in_the_order_they_were_sent(client: Client) -> None:
    client.sender(QUEUE).send([Message(str(n), partition_key="k") for n in range(50)])
    with client.receiver(QUEUE, max_wait=MOMENT_S, prefetch=20) as receiver:
        bodies = []
        for message in receiver:
            bodies.append(message.text)
            receiver.complete(message)
    assert bodies == [str(n) for n in range(50)]


def test_a_batch_is_accepted_as_a_whole_and_keeps_its_order(client: Client) -> None:
    client.sender(QUEUE).send_batch([Message(str(n), partition_key="k") for n in range(20)])
    messages = client.receiver(QUEUE).receive(100, timeout=PATIENCE_S)
    assert [message.text for message in messages] == [str(n) for n in range(20)]


def test_a_batch_over_the_link_s_limit_is_refused_with_its_messages(client: Client) -> None:
    batch = [Message(b"x" * 60_000) for _ in range(6)]
    with pytest.raises(MessageSizeExceeded) as refusal:
        client.sender(QUEUE).send_batch(batch)
    assert refusal.value.unsent == tuple(batch)


def test_a_large_message_passes_whole(client: Client) -> None:
    body = bytes(range(256)) * 900
    client.sender(QUEUE).send(Message(body))
    (message,) = client.receiver(QUEUE).receive(timeout=PATIENCE_S)
    assert message.body == body


def test_receive_and_delete_deletes(client: Client) -> None:
    client.sender(QUEUE).send([Message("a"), Message("b")])
    with client.receiver(QUEUE, mode="receive-and-delete") as receiver:
        received = []
        while messages := receiver.receive(10, timeout=MOMENT_S):
            received += messages
        assert sorted(message.text for message in received) == ["a", "b"]
        with pytest.raises(InvalidOperation, match="no lock"):
            receiver.complete(received[0])


def test_an_abandoned_message_comes_again_and_counts(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    with client.receiver(QUEUE) as receiver:
        (message,) = receiver.receive(timeout=PATIENCE_S)
        receiver.abandon(message, {"why": "not today"})
        (again,) = receiver.receive(timeout=PATIENCE_S)
        assert again.delivery_count == 1
        assert again.properties["why"] == "not today"
        assert again.lock_token != message.lock_token


def test_a_dead_letter_tells_why(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    with client.receiver(QUEUE) as receiver:
        (message,) = receiver.receive(timeout=PATIENCE_S)
        receiver.dead_letter(message, "bad address", "no such street", {"tried": 3})
    with client.receiver(QUEUE, sub_queue="dead-letter") as receiver:
        (dead,) = receiver.receive(timeout=PATIENCE_S)
        assert dead.dead_letter_reason == "bad address"
        assert dead.dead_letter_description == "no such street"
        assert dead.properties["tried"] == 3
        receiver.complete(dead)


def test_a_lock_can_be_renewed(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    with client.receiver(QUEUE) as receiver:
        (message,) = receiver.receive(timeout=PATIENCE_S)
        before = message.locked_until
        after = receiver.renew_lock(message)
        assert before is not None
        assert after is not None
        assert message.locked_until == after >= before


def test_a_message_is_settled_once(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    with client.receiver(QUEUE) as receiver:
        (message,) = receiver.receive(timeout=PATIENCE_S)
        receiver.complete(message)
        with pytest.raises(MessageLockLost):
            receiver.complete(message)


def test_a_message_can_be_settled_when_its_link_is_gone(client: Client) -> None:
    client.sender(QUEUE).send(Message("x"))
    receiver = client.receiver(QUEUE)
    (message,) = receiver.receive(timeout=PATIENCE_S)
    receiver.close()
    receiver.complete(message)
    assert receiver.receive(timeout=MOMENT_S) == []


def test_what_was_fetched_and_not_seen_is_given_back(client: Client) -> None:
    client.sender(QUEUE).send([Message(str(n), partition_key="k") for n in range(10)])
    with client.receiver(QUEUE, prefetch=10) as receiver:
        first = next(iter(receiver))
        receiver.complete(first)
    rest = client.receiver(QUEUE).receive(20, timeout=PATIENCE_S)
    assert [message.text for message in rest] == [str(n) for n in range(1, 10)]
    assert {message.delivery_count for message in rest} == {0}


def test_a_received_message_can_be_sent_on(client: Client) -> None:
    client.sender(QUEUE).send(Message("x", message_id="m", partition_key="k"))
    with client.receiver(QUEUE) as receiver:
        (message,) = receiver.receive(timeout=PATIENCE_S)
        receiver.complete(message)
        client.sender(QUEUE).send(message)
        (again,) = receiver.receive(timeout=PATIENCE_S)
    assert (again.text, again.message_id, again.partition_key) == ("x", "m", "k")
    assert again.sequence_number != message.sequence_number


def test_the_official_client_reads_what_we_send_and_we_what_it_sends(
    client: Client, namespace: Namespace
) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    client.sender(QUEUE).send(
        Message("ours", message_id="1", subject="s", partition_key="k", properties={"at": at})
    )
    with ServiceBusClient.from_connection_string(namespace.connection_string) as official:
        with official.get_queue_receiver(QUEUE, max_wait_time=PATIENCE_S) as theirs:
            (message,) = theirs.receive_messages()
            assert (str(message), message.message_id, message.subject) == ("ours", "1", "s")
            assert message.partition_key == "k"
            assert message.application_properties[b"at"] == int(at.timestamp() * 1000)
            theirs.complete_message(message)
        with official.get_queue_sender(QUEUE) as sender:
            sender.send_messages(
                ServiceBusMessage(
                    "theirs",
                    message_id="2",
                    partition_key="k",
                    time_to_live=timedelta(minutes=5),
                    application_properties={"n": 7, "text": "x"},
                )
            )
    with client.receiver(QUEUE) as receiver:
        (ours,) = receiver.receive(timeout=PATIENCE_S)
        assert (ours.text, ours.message_id, ours.partition_key) == ("theirs", "2", "k")
        assert ours.time_to_live == timedelta(minutes=5)
        assert ours.properties == {"n": 7, "text": "x"}


def test_a_session_id_and_a_partition_key_that_differ_are_refused(client: Client) -> None:
    with pytest.raises(InvalidOperation):
        client.sender(QUEUE).send(Message("x", session_id="a", partition_key="b"))


def test_one_bad_message_of_many_is_named(client: Client) -> None:
    bad = Message("bad", session_id="a", partition_key="b")
    with pytest.raises(InvalidOperation) as refusal:
        client.sender(QUEUE).send([Message("good"), bad, Message("good too")])
    assert refusal.value.unsent == (bad,)
    received = []
    with client.receiver(QUEUE) as receiver:
        while messages := receiver.receive(10, timeout=MOMENT_S):
            received += messages
    assert sorted(message.text for message in received) == ["good", "good too"]


def test_threads_may_share_a_client(client: Client) -> None:
    def send(name: str) -> None:
        sender = client.sender(QUEUE)
        for n in range(20):
            sender.send(Message(f"{name}{n}"))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    bodies = set()
    with client.receiver(QUEUE) as receiver:
        while messages := receiver.receive(100, timeout=MOMENT_S):
            bodies |= {message.text for message in messages}
    assert bodies == {f"{name}{n}" for name in "abcd" for n in range(20)}


def test_an_unknown_queue_is_named(client: Client) -> None:
    with pytest.raises(EntityNotFound, match="nowhere"):
        client.sender("nowhere").send(Message("x"))
    with pytest.raises(EntityNotFound, match="nowhere"):
        client.receiver("nowhere").receive(timeout=MOMENT_S)


def test_a_wrong_key_is_refused_at_once(namespace: Namespace) -> None:
    wrong = namespace.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with Client.from_connection_string(wrong) as client, pytest.raises(Unauthorized):
        client.sender(QUEUE).send(Message("x"))


def test_who_may_only_listen_cannot_send(namespace: Namespace) -> None:
    listening = namespace.create_access_rule("ears", "Listen", queue=QUEUE)
    with Client.from_connection_string(listening) as client:
        # The string names its queue.
        assert client.receiver().receive(timeout=MOMENT_S) == []
        with pytest.raises(Unauthorized, match="Send"):
            client.sender().send(Message("x"))


def test_the_client_finds_back_after_the_service_was_away(tmp_path: Path) -> None:
    with Namespace(tmp_path) as namespace:
        namespace.create_queue(QUEUE, enable_partitioning=True)
        with Client.from_connection_string(namespace.connection_string, retry=QUICK) as client:
            sender, receiver = client.sender(QUEUE), client.receiver(QUEUE)
            sender.send(Message("before"))
            (message,) = receiver.receive(timeout=PATIENCE_S)
            namespace.restart()
            sender.send(Message("after"))
            bodies = set()
            while messages := receiver.receive(10, timeout=MOMENT_S):
                bodies |= {each.text for each in messages}
                receiver.complete(messages)
            # Locks end with the service; what was not completed comes again.
            assert bodies == {"before", "after"}
            with pytest.raises(MessageLockLost):
                receiver.complete(message)


def test_a_service_that_is_not_there_is_told_after_the_attempts() -> None:
    with Namespace() as namespace:
        nowhere = namespace.connection_string
    quick = RetryPolicy(attempts=2, delay_s=0.01)
    with (
        Client.from_connection_string(nowhere, retry=quick) as client,
        pytest.raises(ConnectionLost, match="cannot be reached"),
    ):
        client.sender(QUEUE).send(Message("x"))


def test_a_pinned_message_waits_for_its_fragment_and_others_do_not(
    servicebus_namespace: Namespace,
) -> None:
    servicebus_namespace.create_queue(QUEUE, enable_partitioning=True)
    quick = RetryPolicy(attempts=2, delay_s=0.01, busy_delay_s=0.01)
    with Client.from_connection_string(
        servicebus_namespace.connection_string, retry=quick
    ) as client:
        sender, receiver = client.sender(QUEUE), client.receiver(QUEUE)
        sender.send(Message("first", partition_key="pinned"))
        (message,) = receiver.receive(timeout=PATIENCE_S)
        assert message.partition_id is not None
        servicebus_namespace.fragment(QUEUE, message.partition_id).down()
        with pytest.raises(ServerBusy):
            sender.send(Message("second", partition_key="pinned"))
        sender.send([Message(str(n)) for n in range(32)])
        servicebus_namespace.fragment(QUEUE, message.partition_id).up()
        sender.send(Message("third", partition_key="pinned"))


def test_a_closed_client_says_so(namespace: Namespace) -> None:
    client = Client.from_connection_string(namespace.connection_string)
    sender = client.sender(QUEUE)
    sender.send(Message("x"))
    client.close()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        sender.send(Message("y"))


def test_a_call_that_names_no_entity_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="names an entity"):
        client.sender()
    with pytest.raises(ValueError, match="prefetch"):
        client.receiver(QUEUE, mode="receive-and-delete", prefetch=5)
    with pytest.raises(ValueError, match="one message"):
        client.receiver(QUEUE).receive(0)
