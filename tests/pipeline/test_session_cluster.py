"""Spark as on a cluster: a driver and executors in processes of their own, which are killed.

One run of many seconds, whose results are checked one by one. First two executors are killed in
the middle of two streams, then the driver with all that belongs to it; another driver finishes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from partibus.pipeline.door import Door
from partibus.pipeline.options import Place
from partibus.testing.processes import children_of, command_line_of
from partibus.testing.serve import LiveBroker

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")

DRIVER = Path(__file__).parent / "cluster_driver.py"
pytestmark = pytest.mark.slow

CLUSTER = "local-cluster[2,1,1024]"
MESSAGES = 240
BATCH = 20
PATIENCE_S = 420.0
POLL_S = 0.2
# Processes that live for seconds are compiled only a little.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR = "CoarseGrainedExecutorBackend"


class Driver:
    """A driver in a process of its own, with its Java and its executors."""

    def __init__(self, broker: LiveBroker, directory: Path, master: str) -> None:
        self.said: list[Any] = []
        self._broker = broker
        self.log = directory / f"{master.partition('[')[0]}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), broker.connection_string, str(directory), master],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_HOME": str(_spark_home(directory)),
                    "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
                },
            )

    def executors(self) -> list[int]:
        below = [each for java in children_of(self.process.pid) for each in children_of(java)]
        return sorted(each for each in below if EXECUTOR in command_line_of(each))

    def kill(self) -> None:
        """All of it, at the same moment."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.said += _lines(self.process.communicate()[0])

    def finish(self) -> None:
        self.said += _lines(self.process.communicate(timeout=PATIENCE_S)[0])
        assert self.process.returncode == 0, self.log.read_text()[-4000:]

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline_s, self.log.read_text()[-4000:]
            time.sleep(POLL_S)


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def _spark_home(directory: Path) -> Path:
    """Spark as it is installed, but for where a cluster on one machine keeps its work."""
    import pyspark

    home = directory / "spark"
    if not home.exists():
        home.mkdir()
        for each in Path(pyspark.__file__).parent.iterdir():
            if each.name != "work":
                (home / each.name).symlink_to(each)
    return home


def arrived(broker: LiveBroker) -> int:
    """How many messages were ever published to the target."""
    with Door(Place(broker.connection_string, "target")) as door:
        return sum(each.get("last", 0) for each in door.positions()["fragments"])


class Ran:
    """What is left when all is over."""

    def __init__(self, broker: LiveBroker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.sent = sorted(f"m{number}" for number in range(MESSAGES))

    def send(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self.broker.connection_string) as client,
            client.get_queue_sender("source") as sender,
        ):
            for start in range(0, MESSAGES, 10):
                ids = self.sent[start : start + 10]
                sender.send_messages(
                    [ServiceBusMessage(i, message_id=i, partition_key=f"k{start}") for i in ids]
                )

    def run(self) -> None:
        broker = self.broker
        first = Driver(broker, self.directory, CLUSTER)
        killed: list[int] = []
        for part in (1, 2):
            first.until(lambda part=part: self.progress() >= part / 4)  # type: ignore[misc]
            executor = next(each for each in first.executors() if each not in killed)
            os.kill(executor, signal.SIGKILL)
            killed.append(executor)
        first.until(lambda: self.progress() >= 3 / 4)
        first.kill()
        second = Driver(broker, self.directory, "local[2]")
        second.finish()
        self.said = first.said + second.said
        self.log = first.log.read_text()
        logs = (second.log, broker.log, *(self.directory / "spark").glob("work/*/*/std*"))
        self.all_logs = self.log + "".join(each.read_text() for each in logs)

    def progress(self) -> float:
        """Which part of both streams is done, about."""
        batches = list((self.directory / "parquet" / "_spark_metadata").glob("[0-9]*"))
        return (arrived(self.broker) + len(batches) * BATCH) / (2 * MESSAGES)

    def received(self, queue: str) -> list[str]:
        found: list[str] = []
        with (
            ServiceBusClient.from_connection_string(self.broker.connection_string) as client,
            client.get_queue_receiver(
                queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=500
            ) as receiver,
        ):
            while messages := receiver.receive_messages(500, max_wait_time=1):
                found += [str(message.message_id) for message in messages]
        return sorted(found)

    def captured(self) -> list[str]:
        """The rows of the files that Spark's own log names: others are of killed attempts."""
        import pyarrow.parquet as pq

        names: set[str] = set()
        for file in (self.directory / "parquet" / "_spark_metadata").iterdir():
            if file.name.split(".")[0].isdigit():
                for line in file.read_text().splitlines()[1:]:
                    names.add(json.loads(line)["path"].removeprefix("file://"))
        tables = [pq.read_table(name) for name in names]
        return sorted(each for table in tables for each in table["messageId"].to_pylist())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    directory = tmp_path_factory.mktemp("cluster")
    with LiveBroker(directory) as broker:
        for name in ("source", "target", "written"):
            broker.create_queue(name, enable_partitioning=True)
        found = Ran(broker, directory)
        found.send()
        found.run()
        yield found


def test_S4_executors_read_a_queue_as_a_batch(ran: Ran) -> None:
    assert sorted(ran.said[0]["read"]) == ran.sent


def test_S4_executors_write_a_batch_to_a_queue(ran: Ran) -> None:
    assert ran.said[1] == {"written": 300}
    assert ran.received("written") == sorted(f"w{number}" for number in range(300))


def test_S2_S4_killed_executors_and_drivers_lose_and_repeat_nothing_in_a_capture(ran: Ran) -> None:
    assert ran.said[-1] == "done"
    assert ran.captured() == ran.sent


def test_S2_killed_executors_and_drivers_lose_and_repeat_nothing_in_a_queue(ran: Ran) -> None:
    assert ran.received("target") == ran.sent


def test_S2_the_driver_tells_that_its_stream_has_no_name(ran: Ran) -> None:
    # The job says that it needs none.
    assert ran.log.count("the stream from 'source' has no readerName") == 1


def test_A4_the_key_is_in_no_log_of_driver_executors_and_broker(ran: Ran) -> None:
    key = ran.broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert "Executor" in ran.all_logs
    assert key
    assert key not in ran.all_logs
