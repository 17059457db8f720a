"""Readers asked as Spark asks them, without a session: where batches begin and end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from partibus.store import cursors
from partibus.testing.namespace import Namespace

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")

from pyspark.sql.streaming.datasource import ReadMaxBytes

from partibus.pipeline.offsets import DataLoss
from partibus.pipeline.options import read_options
from partibus.pipeline.reading import BrowsingReader, BrowsingStreamReader, Ranges

_numbers = itertools.count()


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with Namespace(tmp_path_factory.mktemp("namespace")) as running:
        yield running


class Queue:
    """A conventional queue, and readers of it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.name = namespace.create_queue(f"q{next(_numbers)}")
        self._streams: list[Stream] = []

    def given(self, options: dict[str, str]) -> dict[str, str]:
        endpoint = f"http://127.0.0.1:{self.namespace.http_port}"
        where = {"connectionString": self.namespace.connection_string, "httpEndpoint": endpoint}
        return {**where, "queue": self.name, **options}

    def stream(self, **options: str) -> Stream:
        given = self.given({"startingOffsets": "earliest", **options})
        if "startingTimestamp" in options:
            del given["startingOffsets"]
        self._streams.append(Stream(BrowsingStreamReader(read_options(given), ["messageId"])))
        return self._streams[-1]

    def close(self) -> None:
        for each in self._streams:
            each.reader.stop()

    def batch(self, **options: str) -> list[str]:
        reader = BrowsingReader(read_options(self.given(options)), ["messageId"])
        return [each for part in reader.partitions() for each in _ids(reader, part)]

    def send(self, *ids: str, size: int = 1) -> None:
        with self._client() as client, client.get_queue_sender(self.name) as sender:
            sender.send_messages([ServiceBusMessage(b"x" * size, message_id=each) for each in ids])

    def complete_all(self) -> None:
        with (
            self._client() as client,
            client.get_queue_receiver(
                self.name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            while receiver.receive_messages(100, max_wait_time=0.3):
                pass

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.namespace.connection_string)


def _ids(reader: Any, part: Any) -> list[str]:
    assert isinstance(part, Ranges)
    return [each.as_py() for batch in reader.read(part) for each in batch["messageId"]]


class Stream:
    """A streaming query, one trigger after another."""

    def __init__(self, reader: BrowsingStreamReader) -> None:
        self.reader = reader
        self.at = reader.initialOffset()

    def trigger(self) -> list[str]:
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        if end == self.at:
            return []
        parts = self.reader.partitions(self.at, end)
        self.at = end
        return [each for part in parts for each in _ids(self.reader, part)]


@pytest.fixture
def queue(namespace: Namespace) -> Iterator[Queue]:
    made = Queue(namespace)
    yield made
    made.close()


def test_S1_a_batch_has_at_most_so_many_bytes(queue: Queue) -> None:
    sent = [f"m{number}" for number in range(30)]
    queue.send(*sent, size=1000)
    stream = queue.stream(maxBytesPerTrigger="10000")
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMaxBytes)
    batches = [stream.trigger() for _ in range(8)]
    assert [each for batch in batches for each in batch] == sent
    # Of about a thousand bytes each, with what comes with a message.
    assert all(len(batch) <= 10 for batch in batches)
    assert sum(1 for batch in batches if batch) <= 5
    # A message that is larger than the limit is a batch of its own.
    large = queue.stream(maxBytesPerTrigger="10")
    assert [large.trigger(), large.trigger()] == [["m0"], ["m1"]]
    # The smaller of two limits counts.
    both = queue.stream(maxBytesPerTrigger="10000", maxMessagesPerTrigger="3")
    assert len(both.trigger()) == 3


def test_S1_a_batch_waits_for_enough_messages_but_not_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    stream = queue.stream(minMessagesPerTrigger="3", maxTriggerDelay="30s")
    queue.send("a", "b")
    assert stream.trigger() == []
    now_s += 29
    assert stream.trigger() == []
    queue.send("c")
    now_s += 1
    assert stream.trigger() == ["a", "b", "c"]
    queue.send("d")
    now_s += 1
    assert stream.trigger() == []
    now_s += 30
    assert stream.trigger() == ["d"]
    # The wait begins anew.
    queue.send("e")
    now_s += 1
    assert stream.trigger() == []


def test_S2_a_stream_begins_at_a_time_and_a_batch_ends_at_one(queue: Queue) -> None:
    queue.send("before")
    middle = str(queue.namespace.clock.now_ms() + 500)
    queue.namespace.clock.advance(1)
    queue.send("after")
    assert queue.stream(startingTimestamp=middle).trigger() == ["after"]
    assert queue.batch(endingTimestamp=middle) == ["before"]
    assert queue.batch(startingTimestamp=middle) == ["after"]
    assert queue.batch(endingOffsets='{"0": 2}') == ["before"]
    assert queue.batch(startingOffsets='{"0": 2}') == ["after"]


def test_S2_a_reader_that_lost_its_place_is_told_or_goes_on_where_it_may(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = queue.stream(readerName="strict")
    lenient = queue.stream(readerName="lenient", failOnDataLoss="false")
    monkeypatch.setattr(cursors, "KEPT_BYTES_MAX", 100)
    queue.send(*(f"gone{number}" for number in range(5)), size=100)
    queue.complete_all()
    queue.send("there")

    for stream in (strict, lenient):
        # What was asked a moment ago is asked again.
        stream.reader._standing = None
    with pytest.raises(DataLoss, match="the reader 'strict' was so far behind"):
        strict.trigger()
    assert lenient.trigger() == ["there"]
