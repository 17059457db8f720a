"""F1: forwarding against SIGKILL. What was accepted arrives once, whichever node dies when."""

from __future__ import annotations

from typing import Any

from partibus.testing.serve import LiveBroker

KEYS = [f"key {n}" for n in range(40)]


def test_F1_no_kill_loses_or_doubles_what_is_forwarded(
    broker: LiveBroker, forwarded_traffic: Any
) -> None:
    traffic = forwarded_traffic
    for sender in range(3):
        traffic.add_sender(*KEYS[sender::3], None)
    traffic.add_receiver()
    for node in (0, 1, None):
        traffic.flow(200)
        with traffic.record.disturbance():
            if node is None:
                broker.kill_all()
                broker.start()
            else:
                broker.wait_for_successor(node, broker.kill(node))
    traffic.flow(200)
    traffic.drain()
    assert list(map(str, traffic.record.faults())) == []
