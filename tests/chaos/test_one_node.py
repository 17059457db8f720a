"""One of two nodes dies or stands still: the rest goes on (P3, K4, K5, M3)."""

from __future__ import annotations

import time
from typing import Any

from azure.servicebus.exceptions import ServiceBusServerBusyError

from partibus.broker.partitioning import index_of
from partibus.testing.serve import LiveBroker

KEYS = [f"key {n}" for n in range(64)]
# A keyless send must be done by then: the client's operation timeout is longer (K5).
KEYLESS_S_MAX = 15.0


class Homes:
    """Which node holds what, by the rules of placement."""

    def __init__(self, broker: LiveBroker, queue: str) -> None:
        snapshot = broker.snapshot()
        entity = snapshot.find(queue)
        assert entity is not None
        self._entity = entity
        self._stores = snapshot.settings.stores
        self._nodes = broker.nodes

    def of_key(self, key: str) -> int:
        entity = self._entity
        return self.of_partition(entity.partitions[index_of(key, entity.fragments)])

    def of_partition(self, partition: int) -> int:
        return self._entity.store_of(partition, self._stores) % self._nodes


def add_senders(traffic: Any) -> None:
    for _ in range(3):
        traffic.add_sender(None)
    for sender in range(4):
        # Without retries of its own, the client shows what the broker said.
        traffic.add_sender(*KEYS[sender::4], retries=0)


def test_P3_the_rest_goes_on_while_a_node_stands_still(broker: LiveBroker, traffic: Any) -> None:
    node = 1
    homes = Homes(broker, traffic.queue)
    add_senders(traffic)
    traffic.flow(1000)
    with traffic.record.disturbance():
        for _ in range(3):
            traffic.add_receiver()
        paused_s = time.monotonic()
        pid = broker.pause(node)
        # A new connection comes to the node that is awake, and gets what that node has.
        receiver = traffic.add_receiver()
        traffic.wait_until(lambda: len(traffic.received_by(receiver)) > 10)
        assert broker.node_pid(node) == pid
        assert {homes.of_partition(n >> 48) for n in traffic.received_by(receiver)} == {1 - node}
        broker.wait_for_successor(node, pid)
        traffic.flow(200)
    traffic.drain()
    assert list(map(str, traffic.record.faults())) == []
    check_sends(traffic, homes, node, since_s=paused_s)


def test_P3_the_rest_goes_on_while_a_node_dies_again_and_again(
    broker: LiveBroker, traffic: Any
) -> None:
    node = 0
    homes = Homes(broker, traffic.queue)
    add_senders(traffic)
    for _ in range(4):
        traffic.add_receiver()
    traffic.flow(500)
    with traffic.record.disturbance():
        killed_s = time.monotonic()
        for _ in range(3):
            pid = broker.kill(node)
            traffic.flow(100)
            broker.wait_for_successor(node, pid)
        traffic.flow(200)
    traffic.drain()
    assert list(map(str, traffic.record.faults())) == []
    check_sends(traffic, homes, node, since_s=killed_s)


def check_sends(traffic: Any, homes: Homes, node: int, since_s: float) -> None:
    """Sends without a key all succeeded in time (K5); keys failed only for their node (K4, M3)."""
    keyless = [attempt for attempt in traffic.attempts if attempt.key is None]
    assert [attempt for attempt in keyless if attempt.error] == []
    assert max(attempt.took_s for attempt in keyless) < KEYLESS_S_MAX
    # The broker says busy; a client whose own connection broke says something else.
    refused = {
        attempt.key for attempt in traffic.attempts if attempt.error is ServiceBusServerBusyError
    }
    assert {homes.of_key(key) for key in refused} <= {node}
    assert any(
        attempt.key is not None
        and homes.of_key(attempt.key) != node
        and attempt.error is None
        and attempt.began_s > since_s
        for attempt in traffic.attempts
    )
