"""One Spark session and one broker for all tests of the pipeline: both take seconds to start."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from partibus.testing.serve import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PATIENCE_S = 120
STARTS_MAX = 3


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")
    from partibus.pipeline import local_session

    session = local_session("tests", "local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker with two nodes."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")
    with LiveBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


_numbers = itertools.count()


class Queue:
    """A queue of a test's own, and what Spark needs to find it."""

    def __init__(self, broker: LiveBroker, name: str) -> None:
        self.broker = broker
        self.name = name

    @property
    def options(self) -> dict[str, str]:
        return {
            "connectionString": self.broker.connection_string,
            "queue": self.name,
        }

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.broker.connection_string)

    def send(self, *texts: str, key: str | None = None, **properties: object) -> None:
        messages = [
            ServiceBusMessage(text, message_id=text, partition_key=key, **properties)  # type: ignore[arg-type]
            for text in texts
        ]
        with self.client() as client, client.get_queue_sender(self.name) as sender:
            for start in range(0, len(messages), 500):
                sender.send_messages(messages[start : start + 500])

    def send_spread(self, count: int, prefix: str = "m") -> set[str]:
        """Messages under many keys; returns their ids."""
        ids: set[str] = set()
        with self.client() as client, client.get_queue_sender(self.name) as sender:
            for key in range(20):
                texts = [f"{prefix}-{key}-{n}" for n in range(count // 20)]
                batch = [
                    ServiceBusMessage(text, message_id=text, partition_key=f"key {key}")
                    for text in texts
                ]
                sender.send_messages(batch)
                ids.update(texts)
        return ids

    def received(self) -> list[str]:
        """The ids of all messages, taken out of the queue in the order they come."""
        found: list[str] = []
        with (
            self.client() as client,
            client.get_queue_receiver(
                self.name,
                receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
                prefetch_count=500,
            ) as receiver,
        ):
            while messages := receiver.receive_messages(500, max_wait_time=1):
                found += [str(message.message_id) for message in messages]
        return found


@pytest.fixture
def make_queue(broker: LiveBroker) -> Callable[..., Queue]:
    def make(**properties: object) -> Queue:
        return Queue(broker, broker.create_queue(f"queue-{next(_numbers)}", **properties))

    return make


@pytest.fixture
def queue(make_queue: Callable[..., Queue]) -> Queue:
    """A partitioned queue."""
    return make_queue(enable_partitioning=True)


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query that ends by itself.

    Spark gives the Python process of a stream ten seconds to start and cannot be told otherwise;
    on a machine that is busy with other things that may need a second try.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(STARTS_MAX - 1):
        query = start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    query = start()
    assert query.awaitTermination(PATIENCE_S)
    return query


@pytest.fixture
def finish() -> Callable[[Callable[[], StreamingQuery]], StreamingQuery]:
    return run_to_end
