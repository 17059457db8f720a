"""Migrations: a queue of another kind under the same name, with every message in its order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage

from partibus.client import Client
from partibus.pipeline.jobs import Broker, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue

MakeQueue = Callable[..., "Queue"]


def test_M5_a_queue_becomes_partitioned_with_its_messages_in_order(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.migrate import migrate

    queue = make_queue(lock_duration="PT1M")
    broker = Broker(queue.broker.connection_string)
    with queue.client() as client, client.get_queue_sender(queue.name) as sender:
        for number in range(60):
            sender.send_messages(
                ServiceBusMessage(
                    str(number),
                    message_id=f"m-{number}",
                    partition_key=f"key {number % 4}" if number % 5 else None,
                    application_properties={"n": number},
                )
            )
        later = datetime.now(UTC) + timedelta(hours=1)
        sender.schedule_messages(ServiceBusMessage("later", message_id="later"), later)

    class Interrupted(Exception):
        pass

    def interrupt(what: str, done: int, total: int | None) -> None:
        if what == "moved" and done == 4:
            raise Interrupted

    state = str(tmp_path / "state")
    with pytest.raises(Interrupted):
        migrate(spark, broker, queue.name, partitioned=True, state=state, progress=interrupt)
    done = migrate(spark, broker, queue.name, partitioned=True, state=state)

    assert (done.step, done.messages, done.left) == ("swapped", 60, {"scheduled": 1})
    with broker.administration() as admin:
        found = admin.get(queue.name)
        assert (found["EnablePartitioning"], found["LockDuration"]) == ("true", "PT1M")
        assert found["Status"] == "Active"
        # What is scheduled follows when its time comes.
        assert str(admin.get(f"{queue.name}.before")["ForwardTo"]).endswith(queue.name)
    order: dict[str | None, list[int]] = {}
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        left = 60
        while left:
            for each in receiver.receive_messages(left, max_wait_time=10):
                assert each.application_properties is not None
                number = each.application_properties[b"n"]
                # Numbers are numbers still.
                assert isinstance(number, int)
                order.setdefault(each.partition_key, []).append(number)
                receiver.complete_message(each)
                left -= 1
    assert sorted(order.pop(None)) == list(range(0, 60, 5))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert sum(map(len, order.values())) == 48
    with pytest.raises(JobFailed, match="partitioned already"):
        migrate(spark, broker, queue.name, partitioned=True, state=str(tmp_path / "other"))


def test_M5_sessions_keep_their_state_and_an_empty_old_queue_goes(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.migrate import migrate

    queue = make_queue(enable_partitioning=True, requires_session=True)
    broker = Broker(queue.broker.connection_string)
    queue.send("a", "b", session_id="s")
    with (
        Client.from_connection_string(broker.connection_string) as client,
        client.accept_session(queue.name, "s") as session,
    ):
        session.set_state(b"half way")

    done = migrate(spark, broker, queue.name, partitioned=False, state=str(tmp_path / "state"))

    assert (done.messages, done.left) == (2, {})
    with broker.administration() as admin:
        names = {each["Name"] for each in admin.list("$Resources/queues")}
        assert queue.name in names
        assert not {f"{queue.name}.before", f"{queue.name}.migrating"} & names
    with (
        Client.from_connection_string(broker.connection_string) as client,
        client.accept_session(queue.name, "s") as session,
    ):
        assert session.state() == b"half way"
        found = []
        while len(found) < 2:
            found += [str(each.message_id) for each in session.receive(2, timeout=10)]
        assert found == ["a", "b"]


def test_M5_what_is_lost_or_out_of_order_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    from partibus.pipeline.jobs.fingerprints import SCHEMA, compare, keep

    def rows(*numbers: int) -> list[tuple[object, ...]]:
        return [
            (1, at, f"m-{n}", None, "k", *[None] * 5, "active", {"n": str(n)}, b"x")
            for at, n in enumerate(numbers)
        ]  # fmt: skip

    kept = (tmp_path / "kept").as_uri()
    assert keep(spark.createDataFrame(rows(1, 2, 3), SCHEMA), kept) == 3
    assert compare(spark, kept, spark.createDataFrame(rows(1, 2, 3), SCHEMA)).is_none
    lost = compare(spark, kept, spark.createDataFrame(rows(1, 3), SCHEMA))
    assert (lost.messages_before, lost.messages_after, lost.keys) == (3, 2, ["k"])
    assert not compare(spark, kept, spark.createDataFrame(rows(2, 1, 3), SCHEMA)).is_none
