"""Migrations: a queue of another kind under the same name, with every message in its order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from azure.servicebus import ServiceBusMessage

from partibus.client import Client
from partibus.client.administration import Administration, Description
from partibus.pipeline.jobs import Broker, Discrepancy, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue

    from partibus.pipeline.jobs.migration import Migrated

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


class Stopped(BaseException):
    """As a kill: nobody may catch it and tidy up."""


class Faulty(Administration):
    """Stops behind the first change that it makes, of those that it has not stopped behind."""

    seen: ClassVar[set[str]] = set()

    def create(self, kind: str, path: str, properties: Mapping[str, object]) -> Description:
        return self._stop(super().create(kind, path, properties), "create", path)

    def update(self, kind: str, path: str, properties: Mapping[str, object]) -> Description:
        return self._stop(super().update(kind, path, properties), "update", path, properties)

    def delete(self, path: str) -> None:
        self._stop({}, super().delete(path), "delete", path)

    def extension(self, method: str, path: str, body: object = None) -> dict[str, object]:
        found = super().extension(method, path, body)
        return found if method == "GET" else self._stop(found, path, body)

    def _stop(self, found: dict[str, object], *change: object) -> dict[str, object]:
        if str(change) not in self.seen:
            self.seen.add(str(change))
            raise Stopped
        return found


@dataclass(frozen=True, slots=True)
class FaultyBroker(Broker):
    """A broker whose every change is the last thing that a migration does."""

    def administration(self) -> Administration:
        return Faulty.from_connection_string(self.connection_string)


def _quick(seconds: float) -> None:
    time.sleep(min(seconds, 0.3))


def _until_done(run: Callable[[], Migrated], stops_max: int = 20) -> tuple[Migrated, int]:
    for stops in range(stops_max):
        try:
            return run(), stops
        except Stopped:
            pass
    raise AssertionError("it does not come to an end")


def _kept_in_order(queue: Queue, number: int) -> None:
    found = queue.received()
    assert sorted(found) == sorted(f"{key}-{n}" for key in "abc" for n in range(number))
    for key in "abc":
        ours = [each for each in found if each.startswith(key)]
        assert ours == [f"{key}-{n}" for n in range(number)]


def _queue_with(make_queue: MakeQueue, number: int, **properties: object) -> Queue:
    queue = make_queue(**properties)
    for key in "abc":
        queue.send(*(f"{key}-{n}" for n in range(number)), key=key)
    return queue


def test_M5_a_migration_that_is_stopped_behind_every_change_goes_on(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.migrate import migrate

    queue = _queue_with(make_queue, 20)
    broker = FaultyBroker(queue.broker.connection_string)
    Faulty.seen.clear()
    state = str(tmp_path / "state")

    done, stops = _until_done(
        lambda: migrate(spark, broker, queue.name, partitioned=True, state=state, sleep=_quick)
    )

    # New queue, stub, swap, forwarding, swap, forwarding, and two that are deleted.
    assert stops == 8
    assert (done.messages, done.left) == (60, {})
    _kept_in_order(queue, 20)


@pytest.mark.parametrize("step", ["known", "moved", "verified", "swapped"])
def test_M5_a_migration_is_undone_wherever_it_was_stopped(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, step: str
) -> None:
    from partibus.pipeline.jobs.migrate import migrate, undo_migration

    queue = _queue_with(make_queue, 8)
    later = datetime.now(UTC) + timedelta(hours=1)
    with queue.client() as client, client.get_queue_sender(queue.name) as sender:
        sender.schedule_messages(ServiceBusMessage("later", message_id="later"), later)
    broker = Broker(queue.broker.connection_string)
    state = str(tmp_path / "state")

    def stop(what: str, done: int, total: int | None) -> None:
        if what == step:
            raise Stopped

    with pytest.raises(Stopped):
        migrate(
            spark, broker, queue.name, partitioned=True, state=state, progress=stop, sleep=_quick
        )
    if step == "verified":
        # The way back is stopped, too.
        faulty = FaultyBroker(queue.broker.connection_string)
        Faulty.seen.clear()
        done, _ = _until_done(
            lambda: undo_migration(
                spark, faulty, queue.name, partitioned=True, state=state, sleep=_quick
            )
        )
    else:
        done = undo_migration(
            spark, broker, queue.name, partitioned=True, state=state, sleep=_quick
        )

    assert (done.step, done.notes) == ("undone", [])
    with broker.administration() as admin:
        found = admin.get(queue.name)
        assert (found["EnablePartitioning"], found["Status"]) == ("false", "Active")
        assert not found.get("ForwardTo")
        names = {each["Name"] for each in admin.list("$Resources/queues")}
        assert not {f"{queue.name}.before", f"{queue.name}.migrating"} & names
    with queue.client() as client, client.get_queue_receiver(queue.name) as receiver:
        assert {each.message_id for each in receiver.peek_messages(30)} >= {"later", "a-0"}
    _kept_in_order(queue, 8)
    with pytest.raises(JobFailed, match="was undone"):
        migrate(spark, broker, queue.name, partitioned=True, state=state)


def test_M5_where_what_arrived_is_not_what_was_there_it_says_how_to_go_on_or_back(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.migrate import migrate, undo_migration

    queue = _queue_with(make_queue, 5)
    broker = Broker(queue.broker.connection_string)
    state = str(tmp_path / "state")
    moving: dict[str, Any] = {"partitioned": True, "state": state, "sleep": _quick}

    def take_one(what: str, done: int, total: int | None) -> None:
        if what == "verified":
            # Somebody receives from the queue that nobody should know.
            new = f"{queue.name}.migrating"
            with queue.client() as client, client.get_queue_receiver(new) as receiver:
                (message,) = receiver.receive_messages(1, max_wait_time=10)
                receiver.complete_message(message)

    with pytest.raises(Discrepancy, match=r"of 15 messages 1\d arrived.*--undo to go back"):
        migrate(spark, broker, queue.name, progress=take_one, **moving)
    with pytest.raises(Discrepancy, match="stays disabled"):
        migrate(spark, broker, queue.name, **moving)
    with pytest.raises(Discrepancy, match=r"is itself again, but of 15 messages .* keys differ"):
        undo_migration(spark, broker, queue.name, **moving)
    assert len(queue.received()) == 14


def test_M5_messages_that_the_new_queue_would_take_for_duplicates_are_not_moved(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    from partibus.pipeline.jobs.migrate import migrate, undo_migration

    # In a partitioned queue each fragment knows its own duplicates.
    queue = make_queue(enable_partitioning=True, requires_duplicate_detection=True)
    broker = Broker(queue.broker.connection_string)
    for key in "abcd":
        queue.send("same", key=key)
    sent = _count(broker, queue)
    assert sent > 1
    state = str(tmp_path / "state")
    moving: dict[str, Any] = {"partitioned": False, "state": state, "sleep": _quick}

    with pytest.raises(JobFailed, match=r"same id \(same\).*--undo to go back"):
        migrate(spark, broker, queue.name, **moving)
    undo_migration(spark, broker, queue.name, **moving)
    assert _count(broker, queue) == sent


def _count(broker: Broker, queue: Queue) -> int:
    with broker.administration() as admin:
        return int(str(admin.get(queue.name)["MessageCount"]))


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
    # What comes behind all others is told apart.
    late = compare(spark, kept, spark.createDataFrame(rows(1, 2, 3, 4), SCHEMA))
    assert (late.keys_different, late.late) == (0, 1)
    keyless = [(*row[:4], None, *row[5:]) for row in rows(1, 1, 2)]
    assert keep(spark.createDataFrame(keyless, SCHEMA), kept) == 3
    assert compare(spark, kept, spark.createDataFrame(keyless[::-1], SCHEMA)).is_none
    lost = compare(spark, kept, spark.createDataFrame(keyless[1:] + rows(9), SCHEMA))
    assert (lost.keys, lost.late, lost.messages_after) == (["(none)"], 1, 3)
