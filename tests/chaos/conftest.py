"""Load on a live broker while something is done to it, and a record of what clients saw."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from partibus.testing.checker import Record
from partibus.testing.serve import LiveBroker

# Short, so that what a lost receiver held comes back within a test.
LOCK = timedelta(seconds=5)
PREFETCH = 20
WAIT_S = 0.5
# How long a client may need to find out and to come back, with the retries it has.
RECOVERY_S = 60.0
POLL_S = 0.02
WORKERS_MAX = 16


@dataclass(frozen=True)
class Attempt:
    """One call to send."""

    key: str | None
    began_s: float
    took_s: float
    # Only its kind: the client's exceptions keep the sockets of their frames alive.
    error: type[Exception] | None


class Traffic:
    """Senders and receivers of one queue, each with a connection of its own."""

    def __init__(self, broker: LiveBroker, queue: str, entrance: str | None = None) -> None:
        self.queue = queue
        # What is sent there comes to the queue.
        self.entrance = entrance or queue
        self.record = Record()
        self.attempts: list[Attempt] = []
        # How many sends were answered well.
        self.accepted = 0
        self._connection_string = broker.connection_string
        self._numbers = itertools.count()
        self._counting = threading.Lock()
        self._sending_over = threading.Event()
        self._receiving_over = threading.Event()
        self._pool = ThreadPoolExecutor(WORKERS_MAX)
        self._senders: list[Future[None]] = []
        self._receivers: list[Future[None]] = []

    # Load -------------------------------------------------------------------------------------

    def add_sender(self, *keys: str | None, retries: int = 3) -> None:
        """One more sender; its messages carry these keys in turn, None for no key."""
        self._senders.append(self._pool.submit(self._send, keys or (None,), retries))

    def add_receiver(self) -> str:
        """One more receiver; returns its name."""
        name = f"receiver {len(self._receivers)}"
        self._receivers.append(self._pool.submit(self._receive, name))
        return name

    def flow(self, messages: int) -> None:
        """Wait until so many more were accepted, from now on."""
        aim = self.accepted + messages
        self.wait_until(lambda: self.accepted >= aim)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Poll until it is so, while something happens at all; a worker that failed fails it."""
        events, deadline_s = -1, 0.0
        while not is_so():
            for worker in (*self._senders, *self._receivers):
                if worker.done():
                    worker.result()
            if self.record.now != events:
                events, deadline_s = self.record.now, time.monotonic() + RECOVERY_S
            assert time.monotonic() < deadline_s, f"{len(self.record.missing())} are missing"
            time.sleep(POLL_S)

    def received_by(self, receiver: str) -> list[int]:
        """The sequence numbers that one receiver got so far."""
        return [
            delivery.sequence_number
            for life in list(self.record.lives.values())
            for delivery in list(life.deliveries)
            if delivery.receiver == receiver
        ]

    def stop_sending(self) -> None:
        """End the senders, each after the call it is in."""
        self._sending_over.set()
        for sender in self._senders:
            sender.result(RECOVERY_S)

    def drain(self, quiet_s: float = 0) -> None:
        """End the senders; receive until nothing accepted is missing; end the receivers.

        Then nothing more may have come for so long: what should not come back has had its time.
        """
        self.stop_sending()
        self.wait_until(lambda: not self.record.missing())
        events, since_s = self.record.now, time.monotonic()
        while time.monotonic() - since_s < quiet_s:
            time.sleep(POLL_S)
            if self.record.now != events:
                events, since_s = self.record.now, time.monotonic()
        self._receiving_over.set()
        for receiver in self._receivers:
            receiver.result(RECOVERY_S)

    def close(self) -> None:
        """End everything."""
        self._sending_over.set()
        self._receiving_over.set()
        self._pool.shutdown()

    # Workers ----------------------------------------------------------------------------------

    def _client(self, retries: int = 3) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string, retry_total=retries)

    def _send(self, keys: tuple[str | None, ...], retries: int) -> None:
        with self._client(retries) as client, client.get_queue_sender(self.entrance) as sender:
            for key in itertools.cycle(keys):
                if self._sending_over.is_set():
                    return
                message_id = str(next(self._numbers))
                self.record.sending(message_id, key)
                began_s = time.monotonic()
                error: type[Exception] | None = None
                try:
                    sender.send_messages(
                        ServiceBusMessage(b"x" * 200, message_id=message_id, partition_key=key)
                    )
                    self.record.accepted(message_id)
                    with self._counting:
                        self.accepted += 1
                except (ServiceBusError, ValueError) as failure:
                    error = type(failure)
                took_s = time.monotonic() - began_s
                self.attempts.append(Attempt(key, began_s, took_s, error))

    def _receive(self, name: str) -> None:
        """Receive and complete; a receiver whose connection is beyond help is made anew."""
        while not self._receiving_over.is_set():
            try:
                with (
                    self._client() as client,
                    client.get_queue_receiver(self.queue, prefetch_count=PREFETCH) as receiver,
                ):
                    while not self._receiving_over.is_set():
                        self._take(receiver, name)
            except (ServiceBusError, ValueError):
                # What it had prefetched comes back when its locks end.
                with self.record.disturbance():
                    continue

    def _take(self, receiver: ServiceBusReceiver, name: str) -> None:
        for message in receiver.receive_messages(PREFETCH, max_wait_time=WAIT_S):
            delivery = self.record.received(
                name,
                message.message_id or "",
                message.sequence_number or 0,
                message.delivery_count or 0,
            )
            try:
                receiver.complete_message(message)
                self.record.completed(delivery)
            except MessageLockLostError:
                self.record.lock_lost(delivery)
            except (ServiceBusError, ValueError):
                self.record.let_go(delivery)


@pytest.fixture(autouse=True)
def _forgive_the_client() -> Iterator[None]:
    """The vendor's client leaves sockets open whose connection was lost; that is not our test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    """Two nodes on a data directory of their own."""
    with LiveBroker(tmp_path, nodes=2) as broker:
        yield broker


@pytest.fixture
def traffic(broker: LiveBroker) -> Iterator[Traffic]:
    """Traffic on a partitioned queue; the test adds senders and receivers."""
    queue = broker.create_queue("disturbed", enable_partitioning=True, lock_duration=LOCK)
    traffic = Traffic(broker, queue)
    yield traffic
    traffic.close()


@pytest.fixture
def conventional_traffic(broker: LiveBroker) -> Iterator[Traffic]:
    """The same on a conventional queue."""
    traffic = Traffic(broker, broker.create_queue("conventional", lock_duration=LOCK))
    yield traffic
    traffic.close()


@pytest.fixture
def forwarded_traffic(broker: LiveBroker) -> Iterator[Traffic]:
    """Traffic that is sent to one queue and received from another, by way of a third."""
    exit_queue = broker.create_queue("exit", enable_partitioning=True, lock_duration=LOCK)
    relay = broker.create_queue("relay", forward_to=exit_queue)
    entrance = broker.create_queue("entrance", enable_partitioning=True, forward_to=relay)
    traffic = Traffic(broker, exit_queue, entrance)
    yield traffic
    traffic.close()
