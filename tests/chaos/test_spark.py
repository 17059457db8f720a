"""Streaming queries whose driver or broker is killed neither lose nor repeat a message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from partibus.pipeline.door import Door
from partibus.pipeline.options import Place
from partibus.testing.serve import LiveBroker

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")

QUERY = Path(__file__).parent / "spark_query.py"
MESSAGES = 1000
# Each kill costs the start of a Spark session.
KILLS = min(int(os.environ.get("CHAOS_ROUNDS", "0")), 5)
PATIENCE_S = 300.0
POLL_S = 0.05


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path) as running:
        running.create_queue("source", enable_partitioning=True)
        running.create_queue("target", enable_partitioning=True)
        yield running


class Query:
    """The driver in a process of its own."""

    def __init__(self, broker: LiveBroker, directory: Path, *, consumes: bool = False) -> None:
        arguments = [broker.connection_string, "source", "target", str(directory)]
        if consumes:
            arguments = ["consume", broker.connection_string, "source", str(directory)]
        self.process = subprocess.Popen(
            [sys.executable, str(QUERY), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """The driver with its JVM and workers, at the same moment."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def finish(self) -> str:
        return self.process.communicate(timeout=PATIENCE_S)[0]


def send(broker: LiveBroker) -> list[str]:
    ids = [f"m{number}" for number in range(MESSAGES)]
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender("source") as sender,
    ):
        for start in range(0, MESSAGES, 10):
            key = f"key {start % 170}"
            batch = [
                ServiceBusMessage(each, message_id=each, partition_key=key)
                for each in ids[start : start + 10]
            ]
            sender.send_messages(batch)
    return ids


def arrived(broker: LiveBroker) -> int:
    """How many messages were ever published to the target."""
    with Door(Place(broker.connection_string, "target")) as door:
        return sum(each.get("last", 0) for each in door.positions()["fragments"])


def wait_for(broker: LiveBroker, count: int, query: Query) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while arrived(broker) < count and query.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def received(broker: LiveBroker) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(
            "target", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while messages := receiver.receive_messages(500, max_wait_time=2):
            found += [str(message.message_id) for message in messages]
    return found


def captured(directory: Path) -> list[str]:
    """The rows of the files that Spark's own log names: others are of killed attempts."""
    import json

    import pyarrow.parquet as pq

    log = directory / "parquet" / "_spark_metadata"
    names: set[str] = set()
    for file in log.iterdir():
        if file.name.split(".")[0].isdigit():
            for line in file.read_text().splitlines()[1:]:
                names.add(json.loads(line)["path"].removeprefix("file://"))
    return [each for name in names for each in pq.read_table(name)["messageId"].to_pylist()]


@pytest.mark.skipif(not KILLS, reason="long; `make chaos` runs it")
def test_S2_no_kill_of_driver_or_node_loses_or_repeats_a_message(
    broker: LiveBroker, tmp_path: Path
) -> None:
    sent = send(broker)
    for number in range(1, KILLS + 1):
        query = Query(broker, tmp_path)
        wait_for(broker, MESSAGES * number // (KILLS + 2), query)
        query.kill()
    query = Query(broker, tmp_path)
    wait_for(broker, MESSAGES * (KILLS + 1) // (KILLS + 2), query)
    killed = broker.kill(0)

    assert query.finish().strip().endswith("done")

    broker.wait_for_successor(0, killed)
    assert sorted(received(broker)) == sorted(sent)
    assert sorted(captured(tmp_path)) == sorted(sent)


def left(broker: LiveBroker) -> int:
    """How many messages of the source are not completed."""
    with Door(Place(broker.connection_string, "source")) as door:
        return sum(each.get("active", 0) for each in door.positions()["fragments"])


@pytest.mark.skipif(not KILLS, reason="long; `make chaos` runs it")
def test_S2_no_kill_of_a_consuming_driver_loses_or_repeats_a_message(
    broker: LiveBroker, tmp_path: Path
) -> None:
    sent = send(broker)
    query = Query(broker, tmp_path, consumes=True)
    deadline = time.monotonic() + PATIENCE_S
    while left(broker) > MESSAGES * 2 // 3 and query.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    query.kill()
    query = Query(broker, tmp_path, consumes=True)
    while left(broker) > MESSAGES // 3 and query.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    killed = broker.kill(0)

    assert query.finish().strip().endswith("done")

    broker.wait_for_successor(0, killed)
    assert left(broker) == 0
    assert sorted(captured(tmp_path)) == sorted(sent)
