"""Emptying an entity: all that nobody holds, in every fragment, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from partibus.broker.records import SubQueue
from partibus.runtime import purging
from partibus.runtime.counting import count
from partibus.runtime.purging import Purged, purge
from partibus.testing.namespace import Namespace

FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


def empty(namespace: Namespace, queue: str, subqueue: SubQueue = SubQueue.ACTIVE) -> Purged:
    async def run() -> Purged:
        node = namespace._running()
        return await purge(node, node.resolve(queue)[0], subqueue, node.clock.now_ms())

    return namespace._run(run())


def held(namespace: Namespace, queue: str) -> Any:
    async def run() -> Any:
        node = namespace._running()
        (counts,) = await count(node, [node.resolve(queue)[0]])
        return counts

    return namespace._run(run())


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_messages_in_every_state_go_but_what_is_locked(
    durable_servicebus_namespace: Namespace, partitioned: bool
) -> None:
    namespace = durable_servicebus_namespace
    queue = namespace.create_queue("q", enable_partitioning=partitioned)
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            for _ in range(5):
                # More than memory holds of one fragment.
                sender.send_messages([ServiceBusMessage(b"x", partition_key="k")] * 500)
            sender.send_messages([ServiceBusMessage(b"x")])
            sender.schedule_messages([ServiceBusMessage(b"later")], FAR_AWAY)
        with client.get_queue_receiver(queue, prefetch_count=0) as receiver:
            dead, late, kept = receiver.receive_messages(3, max_wait_time=5)[:3]
            receiver.dead_letter_message(dead)
            receiver.defer_message(late)
            purged = empty(namespace, queue)
            after = held(namespace, queue)
            # What else the receiver was sent is locked, too.
            assert purged.unfinished == ()
            assert (after.scheduled, after.dead_letters) == (0, 1)
            assert purged.deleted + after.active == 2501
            assert 1 <= after.active <= 3
            receiver.complete_message(kept)
        assert empty(namespace, queue, SubQueue.DEAD_LETTER).deleted == 1
        empty(namespace, queue)
        assert held(namespace, queue).messages == 0
        assert held(namespace, queue).size == 0
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(b"new"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            assert b"".join(message.body) == b"new"
            receiver.complete_message(message)
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            assert receiver.peek_messages(1) == []
    namespace.restart()
    assert held(namespace, queue).messages == 0


def test_messages_of_sessions_go_too(
    durable_servicebus_namespace: Namespace, partitioned: bool
) -> None:
    namespace = durable_servicebus_namespace
    queue = namespace.create_queue("q", enable_partitioning=partitioned, requires_session=True)
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            for session in "abcdefgh":
                sender.send_messages(
                    [ServiceBusMessage(b"x", session_id=session) for _ in range(20)]
                )
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            assert empty(namespace, queue).unfinished == ()
            receiver.complete_message(message)
        assert empty(namespace, queue).unfinished == ()
        assert held(namespace, queue).messages == 0
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(b"new", session_id="a"))
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            assert b"".join(message.body) == b"new"


def test_a_fragment_that_is_down_is_named_and_keeps_what_it_has(
    servicebus_namespace: Namespace,
) -> None:
    namespace = servicebus_namespace
    queue = namespace.create_queue("q", enable_partitioning=True)
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for number in range(64):
            sender.send_messages(ServiceBusMessage(b"x", partition_key=str(number)))
    namespace.fragment(queue, 3).down()
    purged = empty(namespace, queue)
    assert purged.unfinished == (3,)
    namespace.fragment(queue, 3).up()
    assert purged.deleted + held(namespace, queue).active == 64
    assert held(namespace, queue).active > 0


def test_a_purge_takes_only_so_long(
    servicebus_namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "PURGE_S_MAX", -1.0)
    queue = servicebus_namespace.create_queue("q")
    assert empty(servicebus_namespace, queue) == Purged(0, (0,))


def test_a_subscription_is_emptied_and_its_neighbour_keeps_its_copies(
    durable_servicebus_namespace: Namespace, partitioned: bool
) -> None:
    namespace = durable_servicebus_namespace
    topic = namespace.create_topic("t", enable_partitioning=partitioned)
    paths = [f"{topic}/Subscriptions/{name}" for name in ("one", "two")]
    for path in paths:
        namespace.create_subscription(topic, path.rpartition("/")[2])
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_topic_sender(topic) as sender,
    ):
        for number in range(20):
            sender.send_messages(ServiceBusMessage(b"x", partition_key=str(number)))
    assert empty(namespace, paths[0]) == Purged(20, ())
    assert (held(namespace, paths[0]).messages, held(namespace, paths[1]).messages) == (0, 20)
