"""What docs/PIPELINE.md tells to paste does what it says there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode
from click.testing import CliRunner

from partibus.cli.commands import commands
from partibus.testing.serve import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "PIPELINE.md"


def received(broker: LiveBroker, queue: str) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while messages := receiver.receive_messages(10, max_wait_time=1):
            found += map(str, messages)
    return sorted(found)


def test_S1_the_tutorial_can_be_pasted(
    spark: SparkSession, broker: LiveBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.read_text().partition("## In five minutes")[2].partition("\n## ")[0]
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", broker.connection_string)
    for command in ("queue create orders", "queue create totals"):
        assert f"partibus {command}" in section
        CliRunner().invoke(commands, command.split(), catch_exceptions=False)
    for who in ("ada", "bob", "ada", "eve"):
        arguments = ["send", "orders", f"for {who}", "--key", who]
        CliRunner().invoke(commands, arguments, catch_exceptions=False)

    # Java stays in the directory that it was started in.
    section = re.sub(r'"(?=(orders|billing)[./])', f'"{tmp_path}/', section)
    names: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
        exec(compile(block, f"block {number}", "exec"), names)

    assert spark.read.parquet(str(tmp_path / "orders.parquet")).count() == 4
    assert spark.read.parquet(str(tmp_path / "billing" / "*")).count() == 4
    assert received(broker, "totals") == [
        '{"partitionKey":"ada","count":2}',
        '{"partitionKey":"bob","count":1}',
        '{"partitionKey":"eve","count":1}',
    ]
    # Consumed.
    assert received(broker, "orders") == []
    removed = CliRunner().invoke(commands, ["reader", "remove", "orders", "capture", "--yes"])
    assert removed.exit_code == 0, removed.output
