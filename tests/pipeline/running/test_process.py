"""Pipelines of a namespace, for real: `partibus serve`, Spark beside it, and a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from click.testing import CliRunner

from partibus.cli.commands import commands
from partibus.testing.processes import children_of, command_line_of, exists
from partibus.testing.serve import LiveBroker

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.slow

# Spark starts twice here, perhaps on a busy machine.
PATIENCE_S = 240.0
POLL_S = 0.25
REGIONS = ("north", "south", "east")
FUNCTIONS = """
def copies(messages):
    return messages.selectExpr("messageId", "CAST(body AS STRING) AS body")
"""
SUMS = """
SELECT region AS subject,
       to_json(struct(region, unix_seconds(window.start) AS start, orders, total)) AS body
FROM (SELECT order.region AS region, window(enqueuedTime, '1 second') AS window,
             count(*) AS orders, sum(order.amount) AS total
      FROM (SELECT enqueuedTime,
                   from_json(CAST(body AS STRING), 'region STRING, amount BIGINT') AS order
            FROM messages)
      GROUP BY order.region, window(enqueuedTime, '1 second'))
"""
PIPELINES = {
    "sums": {"Sql": SUMS.splitlines(), "Watermark": "PT0.1S", "Target": "sums"},
    "copies": {"Function": "shop:copies", "TargetDirectory": "copies"},
    "broken": {"Sql": "SELECT nothing FROM messages", "Target": "sums"},
}


def configuration() -> str:
    declared = [
        {"Name": name, "Properties": {"Source": "orders", "Trigger": "PT0.2S", **properties}}
        for name, properties in PIPELINES.items()
    ]
    namespace = {
        "Name": "shop",
        "Queues": [{"Name": "orders", "Properties": {"EnablePartitioning": True}}],
        "Topics": [{"Name": "sums", "Subscriptions": [{"Name": "all"}]}],
        "Pipelines": declared,
    }
    return json.dumps({"UserConfig": {"Namespaces": [namespace]}})


@dataclass
class Shop:
    """A broker with pipelines, who orders, and who reads the sums."""

    broker: LiveBroker
    sent: int = 0
    amount: int = 0
    sums: list[dict[str, int]] = field(default_factory=list)

    def order(self, count: int) -> None:
        with self._client() as client, client.get_queue_sender("orders") as sender:
            for number in range(self.sent, self.sent + count):
                body = json.dumps({"region": REGIONS[number % 3], "amount": number})
                key = REGIONS[number % 3]
                sender.send_messages(
                    ServiceBusMessage(body, message_id=f"order-{number}", partition_key=key)
                )
                self.amount += number
        self.sent += count

    def consume(self, count: int) -> None:
        """Who works on the orders completes them, whether or not Spark has seen them."""
        with self._client() as client, client.get_queue_receiver("orders") as receiver:
            while count > 0:
                messages = receiver.receive_messages(100, max_wait_time=5)
                for message in messages:
                    receiver.complete_message(message)
                count -= len(messages)

    def let_time_pass(self) -> None:
        """An order of nobody's, so that the windows before it are done."""
        with self._client() as client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage('{"region": "none", "amount": 0}'))

    def take_sums(self) -> None:
        with (
            self._client() as client,
            client.get_subscription_receiver(
                "sums", "all", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            while messages := receiver.receive_messages(100, max_wait_time=1):
                found = (json.loads(str(message)) for message in messages)
                self.sums += [each for each in found if each["region"] != "none"]

    @property
    def summed(self) -> int:
        return sum(each["orders"] for each in self.sums)

    def partibus(self, *arguments: str) -> str:
        environment = {"SERVICEBUS_CONNECTION_STRING": self.broker.connection_string}
        ran = CliRunner(env=environment).invoke(commands, ["pipeline", *arguments])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    def states(self) -> dict[str, str]:
        found = json.loads(self.partibus("list", "--output", "json"))
        return {each["name"]: each["state"] for each in found}

    def shown(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.partibus("show", name, "--output", "json"))
        return found

    def spark_pid(self) -> int:
        pids = children_of(self.broker.pid)
        (found,) = (pid for pid in pids if " pipelines " in f"{command_line_of(pid)} ")
        return found

    def copied(self) -> list[str]:
        """The ids in the Parquet files that count: those that Spark has written down."""
        directory = self.broker.data / "copies"
        logs = sorted(directory.glob("_spark_metadata/[0-9]*"))
        lines = [line for log in logs for line in log.read_text().splitlines()[1:]]
        names = {Path(json.loads(line)["path"]).name for line in lines}
        tables = [pq.read_table(directory / name, columns=["messageId"]) for name in names]
        ids = [each for table in tables for each in table.column("messageId").to_pylist()]
        return sorted(each for each in ids if each.startswith("order-"))

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.broker.connection_string)

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, (
                self.partibus("list", "--output", "json") + self.broker.log.read_text()[-6000:]
            )
            time.sleep(POLL_S)


def test_S5_pipelines_run_beside_the_nodes_and_a_kill_neither_loses_nor_repeats(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    (tmp_path / "Config.json").write_text(configuration())
    options = ("--config", str(tmp_path / "Config.json"))
    with LiveBroker(tmp_path, options=options) as broker:
        shop = Shop(broker)
        # Ready is who serves messages, with or without Spark.
        shop.order(60)
        assert set(shop.states()) == set(PIPELINES)
        shop.until(lambda: shop.shown("sums")["messages"] == 60)
        shop.until(lambda: shop.shown("copies")["messages"] == 60)

        # One that fails is told of, and is nobody else's failure.
        shop.until(lambda: shop.states()["broken"] == "failed")
        assert "nothing" in str(shop.shown("broken")["error"])
        health = json.loads(broker.health()[1])
        assert health["status"] == "healthy"
        assert "broken" in health["pipelines"]["down"]

        killed = shop.spark_pid()
        os.kill(killed, signal.SIGKILL)
        shop.order(60)
        shop.consume(120)

        def all_summed() -> bool:
            shop.let_time_pass()
            shop.take_sums()
            return shop.summed >= shop.sent

        shop.until(all_summed)
        assert shop.spark_pid() != killed
        assert (shop.summed, sum(each["total"] for each in shop.sums)) == (120, shop.amount)
        windows = [(each["region"], each["start"]) for each in shop.sums]
        assert len(windows) == len(set(windows))
        shop.until(lambda: len(shop.copied()) >= 120)
        assert shop.copied() == sorted(f"order-{number}" for number in range(120))

        shop.partibus("pause", "copies")
        shop.until(lambda: shop.states()["copies"] == "paused")
        shop.until(lambda: shop.states()["sums"] == "running")
        # What waits for it is told all the same, and grows.
        shop.until(lambda: shop.shown("copies")["lag"] == 0)
        shop.order(10)
        shop.until(lambda: shop.shown("copies")["lag"] == 10)
        shop.partibus("resume", "COPIES")
        shop.until(lambda: shop.states()["copies"] == "running")

        spark = shop.spark_pid()
        assert broker.terminate() == 0
        assert not exists(spark)
