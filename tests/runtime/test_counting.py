"""Counts and sizes: added up over fragments, without those that do not answer (M2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.broker.descriptions import Entity, QueueDescription
from partibus.runtime import counting
from partibus.runtime.counting import EntityCounts, count
from partibus.runtime.peers import Peer
from partibus.runtime.requests import Reply, Request
from partibus.testing.namespace import Namespace

FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


def counts_of(namespace: Namespace, queue: str) -> EntityCounts:
    async def ask() -> EntityCounts:
        node = namespace._running()
        (found,) = await count(node, [node.resolve(queue)[0]])
        return found

    return namespace._run(ask())


def test_M2_counts_and_sizes_are_summed_over_all_fragments(
    servicebus_namespace: Namespace,
) -> None:
    namespace = servicebus_namespace
    for name, partitioned in (("plain", False), ("spread", True)):
        queue = namespace.create_queue(name, enable_partitioning=partitioned)
        assert counts_of(namespace, queue).used_ms == 0
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            with client.get_queue_sender(queue) as sender:
                keyed = [ServiceBusMessage(b"x" * 100, partition_key=str(n)) for n in range(40)]
                for message in keyed:
                    sender.send_messages(message)
                sender.schedule_messages([ServiceBusMessage(b"later")], FAR_AWAY)
            with client.get_queue_receiver(queue) as receiver:
                (dead, late) = receiver.receive_messages(2, max_wait_time=5)[:2]
                receiver.dead_letter_message(dead, reason="test")
                receiver.defer_message(late)
        found = counts_of(namespace, queue)
        assert (found.active, found.scheduled, found.dead_letters) == (39, 1, 1)
        assert found.messages == 41
        assert found.size > 40 * 100
        assert found.is_whole
        assert found.used_ms > 0
        assert len(found.fragments) == (16 if partitioned else 1)


def test_M2_an_unhealthy_fragment_is_left_out_and_named(servicebus_namespace: Namespace) -> None:
    namespace = servicebus_namespace
    queue = namespace.create_queue("q", enable_partitioning=True)
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for number in range(64):
            sender.send_messages(ServiceBusMessage(b"x", partition_key=str(number)))
    held = counts_of(namespace, queue).fragments[2].active
    assert held
    namespace.fragment(queue, 3).down()
    found = counts_of(namespace, queue)
    assert [each.partition for each in found.fragments if not each.is_up] == [3]
    assert (found.is_whole, found.active) == (False, 64 - held)
    namespace.fragment(queue, 3).up()
    assert counts_of(namespace, queue).active == 64


class Silent:
    """A node that never answers."""

    up = True

    def call(self, request: Request, answer: Callable[[Reply], None]) -> None:
        """Nobody there."""

    def tell(self, request: Request) -> None:
        """Nobody there."""


class Alone:
    """A namespace whose one node is silent."""

    stores = 1

    def nodes_of(self, entity: Entity) -> list[int]:
        return [0]

    def peer(self, index: int) -> Peer:
        return Silent()

    def takes_work(self, store: int) -> bool:
        return True


def test_a_node_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "COUNT_S_MAX", 0.01)
    entity = Entity(1, 1, "q", QueueDescription("q"), 1, 0)
    (found,) = asyncio.run(count(Alone(), [entity]))
    assert (found.is_whole, found.messages) == (False, 0)
