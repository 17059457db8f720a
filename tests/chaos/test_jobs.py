"""Jobs that are killed in their middle, as commands, go on when they are run again."""

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
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.testing.serve import LiveBroker

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")

KEYS, PER_KEY = 50, 100
PATIENCE_S = 300.0
POLL_S = 0.05
# Each kill costs the start of a Spark session.
pytestmark = pytest.mark.skipif(
    not int(os.environ.get("CHAOS_ROUNDS", "0")), reason="make chaos kills jobs"
)


class Jobs:
    """A broker, a queue with messages, and the commands."""

    def __init__(self, broker: LiveBroker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        client = ServiceBusClient.from_connection_string(broker.connection_string)
        with client, client.get_queue_sender("orders") as sender:
            for key in range(KEYS):
                sender.send_messages(
                    [
                        ServiceBusMessage("x", message_id=f"{key}-{n}", partition_key=f"k{key}")
                        for n in range(PER_KEY)
                    ]
                )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        variables = {"SERVICEBUS_CONNECTION_STRING": self.broker.connection_string}
        return subprocess.Popen(
            [sys.executable, "-m", "partibus", "pipeline", *arguments, "--output", "json"],
            env={**os.environ, **variables},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def kill(self, when: Callable[[], bool], *arguments: str) -> None:
        """Run a job, and kill it with its JVM and workers as soon as something is true."""
        process = self.start(*arguments)
        deadline_s = time.monotonic() + PATIENCE_S
        while not when() and process.poll() is None:
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
        assert process.poll() is None, "it was over before"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def run(self, *arguments: str) -> Any:
        """Run a job to its end."""
        process = self.start(*arguments)
        text, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, text
        return json.loads(text)

    def says(self, file: str, name: str) -> Any:
        """What a job has written down."""
        try:
            return json.loads((self.directory / file).read_text())[name]
        except (OSError, ValueError):
            return None


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    (tmp_path / "broker").mkdir()
    with LiveBroker(tmp_path / "broker") as running:
        running.create_queue("orders", enable_partitioning=True)
        running.create_queue("target", enable_partitioning=True)
        yield Jobs(running, tmp_path)


def test_S3_a_capture_and_a_replay_that_are_killed_have_each_message_once(jobs: Jobs) -> None:
    captured = jobs.directory / "captured"
    jobs.kill(
        lambda: any(captured.glob("date*/fragment*/*.parquet")), "capture", "orders", "captured"
    )
    jobs.run("capture", "orders", "captured")
    audited = jobs.run("audit", "orders", "--capture", "captured", "--all-captured")
    assert sum(each["captured"] or 0 for each in audited["accounts"]) == KEYS * PER_KEY

    replay = ("replay", "target", "--parquet", "captured", "--rate", "500", "--state", "state")
    jobs.kill(lambda: (jobs.says("state/replay.json", "done") or 0) >= PER_KEY, *replay)
    done = jobs.run(*replay)
    assert 0 < done["before"] < done["messages"] == KEYS * PER_KEY
    assert jobs.run("audit", "target")["totals"]["present"] == KEYS * PER_KEY


def test_M5_a_migration_that_is_killed_again_and_again_goes_on_or_back(jobs: Jobs) -> None:
    def reached(step: str) -> Callable[[], bool]:
        return lambda: jobs.says("state/migration.json", "step") == step

    migrate = ("migrate", "orders", "--to", "conventional", "--state", "state")
    jobs.kill(reached("fenced"), *migrate)
    jobs.kill(reached("sessions"), *migrate)
    jobs.kill(reached("undoing"), *migrate, "--undo")
    assert jobs.run(*migrate, "--undo")["step"] == "undone"
    assert jobs.run("audit", "orders")["totals"]["present"] == KEYS * PER_KEY

    migrate = (*migrate[:-1], "another")
    done = jobs.run(*migrate)
    assert (done["step"], done["messages"], done["left"]) == ("swapped", KEYS * PER_KEY, {})
    assert jobs.run("audit", "orders")["totals"]["present"] == KEYS * PER_KEY
