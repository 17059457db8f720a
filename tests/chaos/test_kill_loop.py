"""The kill loop: round after round something is done to a broker under load (`make chaos`).

CHAOS_ROUNDS says how many rounds; CHAOS_SEED repeats a run's choices. The record is judged after
every round, so the first round that broke something is named.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from partibus.testing.serve import LiveBroker

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or time.time_ns() % 1_000_000
KEYS = [f"key {n}" for n in range(60)]
PAUSE_S = (0.5, 3.0)
# Longer than locks last.
QUIET_S = 7.0


def kill_all(broker: LiveBroker, chance: random.Random) -> None:
    broker.kill_all()
    broker.start()


def end_in_order(broker: LiveBroker, chance: random.Random) -> None:
    assert broker.terminate() == 0
    broker.start()


def kill_one(broker: LiveBroker, chance: random.Random) -> None:
    node = chance.randrange(broker.nodes)
    broker.wait_for_successor(node, broker.kill(node))


def pause_until_killed(broker: LiveBroker, chance: random.Random) -> None:
    node = chance.randrange(broker.nodes)
    broker.wait_for_successor(node, broker.pause(node))


def pause_and_resume(broker: LiveBroker, chance: random.Random) -> None:
    pid = broker.pause(chance.randrange(broker.nodes))
    time.sleep(chance.uniform(*PAUSE_S))
    broker.resume(pid)
    broker.wait_until_healthy()


WAYS: list[Callable[[LiveBroker, random.Random], None]] = [
    kill_all,
    kill_one,
    pause_and_resume,
    pause_until_killed,
    end_in_order,
]


@pytest.mark.skipif(not ROUNDS, reason="long; `make chaos` runs it")
def test_nothing_that_is_done_to_the_broker_makes_it_break_its_word(
    broker: LiveBroker, traffic: Any, conventional_traffic: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)
    both = (traffic, conventional_traffic)
    for each in both:
        for sender in range(2):
            each.add_sender(*KEYS[sender::2])
        each.add_sender(None)
        each.add_receiver()
        each.add_receiver()
    for number in range(1, ROUNDS + 1):
        way = chance.choice(WAYS)
        for each in both:
            each.flow(chance.randrange(50, 400))
        with traffic.record.disturbance(), conventional_traffic.record.disturbance():
            way(broker, chance)
            for each in both:
                each.flow(20)
        with capsys.disabled():
            accepted = sum(each.accepted for each in both)
            print(f"seed {SEED} round {number}: {way.__name__}, {accepted} accepted so far")
        for each in both:
            assert not list(map(str, each.record.faults(drained=False))), (
                f"seed {SEED}, round {number}"
            )
    for each in both:
        each.drain(quiet_s=QUIET_S)
        assert not list(map(str, each.record.faults())), f"seed {SEED}"
