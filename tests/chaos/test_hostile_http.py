"""While the HTTP door is attacked, clients that send and receive over AMQP notice nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)

from partibus.client.connection_string import read_connection_string
from partibus.testing.serve import LiveBroker

ATTACK = Path(__file__).with_name("http_attack.py")
ROUNDS = 40
# Times: as a ratio, because machines differ, and generous, because they are busy. An attacker takes
# a core or two of them; a client that had to wait for one attack to be over would wait much longer.
SLOWER_MAX = 10
PAUSE_S_MAX = 5.0
GROWTH_BYTES_MAX = 96 * 1024 * 1024

Answers = dict[str, dict[str, int]]


def memory_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


class Stranger:
    """An attacker in a process of its own."""

    def __init__(self, broker: LiveBroker) -> None:
        destination = read_connection_string(broker.connection_string)
        assert destination.credentials is not None
        now_ms = int(time.time() * 1000)
        token = destination.credentials.token("http://127.0.0.1/", now_ms).text
        self._process = subprocess.Popen(
            [sys.executable, ATTACK, str(broker.port), token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answered = threading.Thread(target=self._listen)
        self._answered.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.readline()

    @property
    def is_through(self) -> bool:
        """Whether every kind of attack was answered once (or the stranger failed)."""
        return not self._answered.is_alive()

    def stop(self) -> Answers:
        """What was answered."""
        said, _ = self._process.communicate(timeout=60)
        self._answered.join()
        answers: Answers = json.loads(said)
        return answers


def work(sender: ServiceBusSender, receiver: ServiceBusReceiver, label: str) -> list[float]:
    """Send, receive and complete, again and again; how long each took."""
    took = []
    for number in range(ROUNDS):
        began_s = time.monotonic()
        sender.send_messages(ServiceBusMessage(f"{label} {number}"))
        (message,) = receiver.receive_messages(1, max_wait_time=30)
        receiver.complete_message(message)
        assert str(message) == f"{label} {number}"
        took.append(time.monotonic() - began_s)
    return took


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_A4_bombs_floods_and_slow_senders_over_http_are_refused_and_amqp_goes_on(
    broker: LiveBroker,
) -> None:
    broker.create_queue("attacked")
    broker.create_queue("work")
    nodes = [broker.node_pid(node) for node in range(broker.nodes)]
    # Without retries: everything must succeed at once.
    with (
        ServiceBusClient.from_connection_string(broker.connection_string, retry_total=0) as client,
        client.get_queue_sender("work") as sender,
        client.get_queue_receiver("work") as receiver,
    ):
        work(sender, receiver, "first")
        quiet = work(sender, receiver, "quiet")
        before = [memory_of(pid) for pid in nodes]
        stranger = Stranger(broker)
        try:
            disturbed = work(sender, receiver, "attacked")
            while not stranger.is_through:
                disturbed += work(sender, receiver, "still")
            during = [memory_of(pid) for pid in nodes]
        finally:
            answers = stranger.stop()
    assert statistics.median(disturbed) < SLOWER_MAX * statistics.median(quiet)
    assert max(disturbed) < PAUSE_S_MAX + max(quiet)
    assert [broker.node_pid(node) for node in range(broker.nodes)] == nodes
    growth = [now - then for now, then in zip(during, before, strict=True)]
    assert max(growth) < GROWTH_BYTES_MAX, growth
    for name in ("bomb", "outside", "deep", "wide"):
        assert set(answers[name]) <= {"400", "not finished"}, answers
        assert answers[name]["400"] > 0
    for name in ("oversized", "endless", "endless message"):
        assert set(answers[name]) <= {"413", "cut", "not finished"}, answers
        assert answers[name].get("413", 0) + answers[name].get("cut", 0) > 0
    assert set(answers["endless head"]) <= {"400", "431", "cut", "not finished"}, answers
    assert broker.health()[0] == 200
