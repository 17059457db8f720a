"""Readers that consume in bulk, over HTTP, with the pipeline's own client and without Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver

from partibus.pipeline.door import Door, DoorRefused, Range
from partibus.pipeline.options import Place
from partibus.testing.namespace import Namespace

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One for all tests: its side process takes a second to start."""
    with Namespace(tmp_path_factory.mktemp("namespace")) as running:
        yield running


_numbers = itertools.count()


@pytest.fixture
def queue(namespace: Namespace) -> str:
    """A conventional queue of the test's own."""
    return namespace.create_queue(f"q{next(_numbers)}")


class Reader:
    """A reader that consumes a conventional queue."""

    def __init__(self, namespace: Namespace, entity: str, name: str = "spark") -> None:
        endpoint = f"http://127.0.0.1:{namespace.http_port}"
        self.door = Door(Place(namespace.connection_string, entity, endpoint))
        self.path = f"/consumers/{name}"
        self.name = name
        self.epoch = 0

    def begin(self) -> dict[str, Any]:
        told = self.ask("POST")
        self.epoch = told["epoch"]
        (fragment,) = told["fragments"]
        return dict(fragment)

    def advance(self, done: int, most: int = 100) -> dict[str, Any]:
        query = {"epoch": str(self.epoch), "most": str(most)}
        told = self.ask("PUT", query, json.dumps({0: done}).encode())
        (fragment,) = told["fragments"]
        return dict(fragment)

    def read(self, after: int, upto: int) -> list[str]:
        with self.door:
            batches = self.door.reserved(Range(0, after, upto), ["messageId", "state"], self.name)
            table = pa.Table.from_batches(batches)
        assert set(table["state"].to_pylist()) <= {"active"}
        return list(table["messageId"].to_pylist())

    def remove(self) -> None:
        self.ask("DELETE")

    def ask(
        self, method: str, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> Any:
        with self.door:
            return self.door.ask(method, self.path, query, body)


def client(namespace: Namespace) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(namespace.connection_string)


def send(namespace: Namespace, queue: str, *ids: str, **properties: Any) -> None:
    with client(namespace) as opened, opened.get_queue_sender(queue) as sender:
        for start in range(0, len(ids), 1000):
            sender.send_messages(
                [
                    ServiceBusMessage(b"x", message_id=each, **properties)
                    for each in ids[start:][:1000]
                ]
            )


def taken(receiver: ServiceBusReceiver, count: int, wait_s: float = 1) -> list[str]:
    """The ids of what a receiver gets and completes."""
    found = []
    while len(found) < count:
        messages = receiver.receive_messages(count - len(found), max_wait_time=wait_s)
        if not messages:
            break
        for message in messages:
            receiver.complete_message(message)
            found.append(str(message.message_id))
    return found


def counted(namespace: Namespace, queue: str) -> int:
    reader = Reader(namespace, queue)
    with reader.door:
        return int(reader.door.positions()["fragments"][0].get("active", 0))


def test_S2_what_is_reserved_is_the_readers_until_it_is_done(
    namespace: Namespace, queue: str
) -> None:
    send(namespace, queue, "a", "b", "c", "d")
    reader = Reader(namespace, queue)
    reader.begin()

    assert reader.advance(0, most=3) == {"fragment": 0, "done": 0, "last": 3, "free": 1}
    assert reader.read(0, 3) == ["a", "b", "c"]
    assert reader.read(1, 2) == ["b"]
    # Asking again gives the same again, and not more.
    assert reader.advance(0, most=3)["last"] == 3
    with client(namespace) as opened, opened.get_queue_receiver(queue) as receiver:
        assert [each.message_id for each in receiver.peek_messages(10)] == ["d"]
        assert taken(receiver, 2) == ["d"]
    assert counted(namespace, queue) == 3

    assert reader.advance(3) == {"fragment": 0, "done": 3, "last": 3, "free": 0}
    assert counted(namespace, queue) == 0
    with pytest.raises(DoorRefused, match="has what is behind 3"):
        reader.read(0, 3)


def test_S2_a_restarted_broker_knows_what_it_has_reserved(namespace: Namespace, queue: str) -> None:
    send(namespace, queue, "a", "b", "c")
    reader = Reader(namespace, queue)
    reader.begin()
    reader.advance(0, most=2)
    namespace.restart()

    again = Reader(namespace, queue)
    assert again.begin() == {"fragment": 0, "done": 0, "last": 2, "free": 1}
    assert again.read(0, 2) == ["a", "b"]
    assert again.advance(2)["last"] == 3
    assert again.read(2, 3) == ["c"]


def test_S2_a_newer_start_of_a_reader_fences_the_older_one(
    namespace: Namespace, queue: str
) -> None:
    send(namespace, queue, "a", "b")
    old, new = Reader(namespace, queue), Reader(namespace, queue)
    old.begin()
    old.advance(0, most=1)
    new.begin()

    with pytest.raises(DoorRefused, match="was started anew elsewhere"):
        old.advance(1)
    assert new.advance(0)["last"] == 1
    with pytest.raises(DoorRefused, match="The reader 'spark' consumes it"):
        Reader(namespace, queue, "another").begin()
    with pytest.raises(DoorRefused, match="No batch of the reader 'spark' ends at 2"):
        new.advance(2)


def test_S2_a_removed_reader_gives_its_messages_back_in_order(
    namespace: Namespace, queue: str
) -> None:
    ids = [f"m{n}" for n in range(3000)]
    send(namespace, queue, *ids)
    reader = Reader(namespace, queue)
    reader.begin()
    # More than is held in memory.
    assert reader.advance(0, most=2500)["last"] == 2500
    assert reader.read(0, 2500) == ids[:2500]

    reader.remove()

    reader.remove()
    with client(namespace) as opened, opened.get_queue_receiver(queue) as receiver:
        assert [each.message_id for each in receiver.peek_messages(3)] == ids[:3]
        assert taken(receiver, 20) == ids[:20]
    assert Reader(namespace, queue, "another").begin()["done"] == 0


def test_S2_what_others_hold_is_reserved_when_they_give_it_back(
    namespace: Namespace, queue: str
) -> None:
    send(namespace, queue, "a", "b", "c")
    reader = Reader(namespace, queue)
    reader.begin()
    with client(namespace) as opened, opened.get_queue_receiver(queue) as receiver:
        (held,) = receiver.receive_messages(1, max_wait_time=5)
        assert reader.advance(0)["last"] == 2
        assert reader.read(0, 2) == ["b", "c"]
        receiver.abandon_message(held)
    assert reader.advance(2)["last"] == 3
    assert reader.read(2, 3) == ["a"]


def test_S1_dead_letters_and_subscriptions_are_consumed_too(namespace: Namespace) -> None:
    topic = namespace.create_topic("t")
    namespace.create_subscription(topic, "s")
    with client(namespace) as opened, opened.get_topic_sender(topic) as sender:
        sender.send_messages([ServiceBusMessage("x", message_id=each) for each in "abc"])
    path = f"{topic}/subscriptions/s"
    with client(namespace) as opened, opened.get_subscription_receiver(topic, "s") as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.dead_letter_message(first)

    with pytest.raises(DoorRefused, match="consume one of its subscriptions"):
        Reader(namespace, topic).begin()
    for entity, ids in ((path, ["b", "c"]), (f"{path}/$deadletterqueue", ["a"])):
        reader = Reader(namespace, entity)
        reader.begin()
        assert reader.advance(0)["last"] == len(ids)
        assert reader.read(0, len(ids)) == ids
        assert reader.advance(len(ids))["free"] == 0
        assert counted(namespace, entity) == 0


def test_S1_scheduled_and_deferred_messages_and_sessions_are_left_alone(
    namespace: Namespace, queue: str
) -> None:
    send(namespace, queue, "deferred", "plain")
    with client(namespace) as opened, opened.get_queue_receiver(queue) as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.defer_message(first)
    reader = Reader(namespace, queue)
    reader.begin()
    assert reader.advance(0)["last"] == 1
    assert reader.read(0, 1) == ["plain"]

    sessions = namespace.create_queue("sessions", requires_session=True)
    with pytest.raises(DoorRefused, match="has sessions"):
        Reader(namespace, sessions).begin()
