"""Everything dies at once, or ends in order: what was accepted is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.testing.serve import LiveBroker

KEYS = [f"key {n}" for n in range(40)]


def add_load(traffic: Any) -> None:
    for sender in range(3):
        traffic.add_sender(*KEYS[sender::3])
    traffic.add_sender(None)
    for _ in range(2):
        traffic.add_receiver()


def kill(broker: LiveBroker) -> None:
    broker.kill_all()


def terminate(broker: LiveBroker) -> None:
    assert broker.terminate() == 0


@pytest.mark.parametrize("end", [kill, terminate], ids=["SIGKILL of all", "SIGTERM"])
def test_a_broker_that_ends_under_load_loses_nothing_accepted_and_revives_nothing_completed(
    broker: LiveBroker,
    traffic: Any,
    conventional_traffic: Any,
    end: Callable[[LiveBroker], None],
) -> None:
    both = (traffic, conventional_traffic)
    for each in both:
        add_load(each)
    for each in both:
        each.flow(500)
    with traffic.record.disturbance(), conventional_traffic.record.disturbance():
        end(broker)
        broker.start()
    for each in both:
        each.flow(300)
        each.drain()
        assert list(map(str, each.record.faults())) == []
