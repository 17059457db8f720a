"""Bulk writes over HTTP: staged unseen, published once, whatever is repeated or goes missing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from partibus.pipeline.door import Door, DoorRefused, Range
from partibus.pipeline.options import Place
from partibus.testing.namespace import Namespace

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("namespace")


@pytest.fixture(scope="module")
def namespace(directory: Path) -> Iterator[Namespace]:
    """One for all tests: its side process takes a second to start. Each has a queue of its own."""
    with Namespace(directory) as running:
        yield running


_numbers = itertools.count()


class Writer:
    """A bulk writer of one queue."""

    def __init__(self, namespace: Namespace, queue: str, connection_string: str = "") -> None:
        self.namespace = namespace
        self.queue = queue
        self.place = Place(
            connection_string or namespace.connection_string, queue,
            f"http://127.0.0.1:{namespace.http_port}",
        )  # fmt: skip

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        with Door(self.place) as door:
            return door.ask(method, f"/writers/w/{path}", None, body)

    def stage(self, batch: int, attempt: str, **columns: list[Any]) -> dict[str, int]:
        sink = pa.BufferOutputStream()
        rows = pa.RecordBatch.from_pydict(columns)
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        told = self.ask("PUT", f"{batch}/{attempt}", sink.getvalue().to_pybytes())
        found: dict[str, int] = told["fragments"]
        return found

    def publish(self, batch: int, **attempts: dict[str, int]) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("POST", str(batch), json.dumps(attempts).encode())
        return found

    def received(self) -> list[str]:
        with (
            ServiceBusClient.from_connection_string(self.namespace.connection_string) as client,
            client.get_queue_receiver(
                self.queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            found: list[str] = []
            while messages := receiver.receive_messages(500, max_wait_time=0.3):
                found += [str(message) for message in messages]
            return found


@pytest.fixture
def writer(namespace: Namespace) -> Writer:
    return Writer(namespace, namespace.create_queue(f"q{next(_numbers)}", enable_partitioning=True))


def test_S1_staged_messages_are_unseen_until_they_are_published(writer: Writer) -> None:
    counts = writer.stage(0, "a", body=["one", "two"], partitionKey=["k", "k"])
    assert list(counts.values()) == [2]
    assert writer.received() == []
    assert writer.publish(0, a=counts) == {"published": 2, "replayed": False}
    assert writer.received() == ["one", "two"]


def test_S1_a_replay_publishes_nothing_again_though_it_staged_anew(writer: Writer) -> None:
    first = writer.stage(0, "a", body=["one"], partitionKey=["k"])
    writer.publish(0, a=first)
    assert writer.publish(0, a=first)["replayed"]
    again = writer.stage(0, "b", body=["one again"], partitionKey=["k"])
    assert writer.publish(0, b=again)["replayed"]
    assert writer.received() == ["one"]


def test_S1_only_the_attempts_that_won_are_published(writer: Writer) -> None:
    lost = writer.stage(0, "lost", body=["lost"])
    won = writer.stage(0, "won", body=["won"])
    assert lost
    writer.publish(0, won=won)
    assert writer.received() == ["won"]


def test_S1_batches_of_a_writer_follow_each_other(writer: Writer) -> None:
    for batch in range(3):
        counts = writer.stage(batch, "a", body=[f"batch {batch}"], partitionKey=["k"])
        writer.publish(batch, a=counts)
    assert writer.received() == ["batch 0", "batch 1", "batch 2"]


def test_S1_a_publication_that_was_cut_off_is_finished_after_a_restart(writer: Writer) -> None:
    """One fragment is down: the others are published; then the same is asked for again."""
    keys = [f"key {n}" for n in range(64)]
    counts = writer.stage(0, "a", body=keys, partitionKey=keys)
    down = int(next(iter(counts)))
    fragment = writer.namespace.fragment(writer.queue, down)
    fragment.down()
    with Door(writer.place) as door, pytest.raises(Exception, match="unavailable"):
        door._request("POST", "/writers/w/0", None, json.dumps({"a": counts}).encode(), 1)
    fragment.up()
    writer.namespace.restart()
    other = writer.stage(0, "b", body=["another choice"])

    assert writer.publish(0, b=other) == {"published": 64, "replayed": True}
    assert sorted(writer.received()) == sorted(keys)


def test_S1_many_messages_of_a_key_come_in_their_order(writer: Writer) -> None:
    """So many that nobody looks at them one by one on their way in."""
    bodies = [str(number) for number in range(6000)]
    for batch, begin in enumerate((0, 3000)):
        part = bodies[begin : begin + 3000]
        counts = writer.stage(batch, "a", body=part, partitionKey=["k"] * len(part))
        assert writer.publish(batch, a=counts)["published"] == 3000
    assert writer.received() == bodies


def test_S1_keyless_rows_are_spread(writer: Writer) -> None:
    counts = writer.stage(0, "a", body=[str(n) for n in range(4096)])
    assert sorted(counts.values()) == [256] * 16


def test_S1_text_times_and_properties_are_written(writer: Writer) -> None:
    counts = writer.stage(
        0, "a", body=["x"], scheduledEnqueueTime=[32503680000000000], timeToLive=[1000]
    )
    assert writer.publish(0, a=counts)["published"] == 1
    assert writer.received() == []


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"colour": ["red"]}, "no column 'colour'"),
        ({"body": ["x"], "sessionId": ["a"], "partitionKey": ["b"]}, "Row 1: .* differ"),
        ({"body": ["x", "y" * 300_000]}, "Row 2: .* larger"),
        ({"body": ["x"], "timeToLive": ["soon"]}, "'timeToLive' cannot be read as long"),
    ],
)
def test_S1_rows_that_are_no_messages_are_refused(
    writer: Writer, columns: dict[str, list[Any]], text: str
) -> None:
    with pytest.raises(DoorRefused, match=text):
        writer.stage(0, "a", **columns)


def test_S1_what_is_no_arrow_or_no_name_is_refused(writer: Writer) -> None:
    with pytest.raises(DoorRefused, match="no Arrow stream"):
        writer.ask("PUT", "0/a", b"nonsense")
    with pytest.raises(DoorRefused, match="letters, digits and dashes"):
        writer.ask("PUT", "0/a.b", b"")
    with pytest.raises(DoorRefused, match="was not staged"):
        writer.publish(0, nobody={"1": 5})
    with pytest.raises(DoorRefused, match="names attempts"):
        writer.ask("POST", "0", b"[]")


def test_S1_sessions_are_asked_for(namespace: Namespace) -> None:
    writer = Writer(namespace, namespace.create_queue("s", requires_session=True))
    with pytest.raises(DoorRefused, match="requires a sessionId"):
        writer.stage(0, "a", body=["x"])
    assert writer.stage(0, "a", body=["x"], sessionId=["me"]) == {"0": 1}


def test_A4_the_right_to_send_is_needed(namespace: Namespace) -> None:
    namespace.create_queue("closed")
    listener = namespace.create_access_rule("listener", "Listen", queue="closed")
    with pytest.raises(DoorRefused, match="'Send' claim"):
        Writer(namespace, "closed", listener).stage(0, "a", body=["x"])


def test_S1_an_attempt_can_be_taken_back(writer: Writer, directory: Path) -> None:
    writer.stage(0, "taken-back", body=["x"])
    assert list(directory.glob("staging/*/0/taken-back.*"))
    writer.ask("DELETE", "0/taken-back")
    assert not list(directory.glob("staging/*/0/taken-back.*"))


def test_S1_a_topic_is_written_and_its_subscription_read(namespace: Namespace) -> None:
    namespace.create_topic("news", enable_partitioning=True)
    namespace.create_subscription("news", "all")
    writer = Writer(namespace, "news")
    counts = writer.stage(0, "a", body=["one", "two"], partitionKey=["k", "k"])
    assert writer.publish(0, a=counts) == {"published": 2, "replayed": False}
    assert writer.publish(0, a=counts)["replayed"]
    place = Place(
        namespace.connection_string, "news/subscriptions/all",
        f"http://127.0.0.1:{namespace.http_port}",
    )  # fmt: skip
    with Door(place) as door:
        told = door.positions()["fragments"]
        (found,) = [each for each in told if each["last"]]
        table = pa.Table.from_batches(door.messages(Range(found["fragment"], 0, 9), ["body"]))
    assert table["body"].to_pylist() == [b"one", b"two"]
