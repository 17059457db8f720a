"""A1: scheduled, cancelled and deferred messages against SIGKILL.

Clients schedule, cancel and defer while all processes are killed. Whatever was answered before is
there after, under its number; what was in doubt is there or not, but never half.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from partibus.client import Client, Message, MessagingError, Receiver, RetryPolicy
from partibus.testing.serve import LiveBroker

QUEUES = ("conventional", "partitioned")
# So many of each kind are acknowledged before the kill; more are under way.
AIM = 8
PATIENCE_S = 60
POLL_S = 0.02


class Work:
    """One queue's clients, and what they were told."""

    def __init__(self, connection_string: str, queue: str) -> None:
        self.queue = queue
        self._connection_string = connection_string
        self.scheduled: dict[int, bytes] = {}
        self.cancelled: list[int] = []
        self.deferred: dict[int, bytes] = {}
        self.soon: set[bytes] = set()
        self.is_over = threading.Event()

    def client(self) -> Client:
        return Client.from_connection_string(self._connection_string, retry=RetryPolicy(attempts=1))

    def schedule(self) -> None:
        """Schedule for much later, and for soon; take every third of the former back."""
        number = 0
        much_later = datetime.now(UTC) + timedelta(hours=1)
        with suppress(MessagingError, OSError), self.client() as client:
            sender = client.sender(self.queue)
            while not self.is_over.is_set():
                number += 1
                later, soon = b"later %d" % number, b"soon %d" % number
                sequence = sender.schedule(Message(later), much_later)
                if number % 3:
                    self.scheduled[sequence] = later
                else:
                    sender.cancel_scheduled(sequence)
                    self.cancelled.append(sequence)
                sender.schedule(Message(soon), datetime.now(UTC) + timedelta(seconds=1))
                self.soon.add(soon)

    def defer(self) -> None:
        """Send, receive and defer; what becomes active meanwhile is left alone."""
        number = 0
        with suppress(MessagingError, OSError), self.client() as client:
            sender, receiver = client.sender(self.queue), client.receiver(self.queue)
            while not self.is_over.is_set():
                number += 1
                sender.send(Message(b"deferred %d" % number))
                for message in receiver.receive(1, timeout=1):
                    if not bytes(message.body).startswith(b"deferred"):
                        receiver.abandon(message)
                        continue
                    receiver.defer(message)
                    self.deferred[message.sequence_number] = message.body

    @property
    def is_enough(self) -> bool:
        return min(map(len, (self.scheduled, self.deferred, self.soon))) >= AIM

    def check(self) -> None:
        """All that was answered is so, after the kill."""
        with self.client() as client:
            sender, receiver = client.sender(self.queue), client.receiver(self.queue)
            shown: dict[int, bytes] = {}
            while part := receiver.peek(100, from_sequence_number=max(shown, default=-1) + 1):
                shown.update((each.sequence_number, each.body) for each in part)
            assert self.scheduled.items() <= shown.items()
            assert shown.keys().isdisjoint(self.cancelled)
            # Each can be taken back, once: it is the same message still.
            for number in self.scheduled:
                sender.cancel_scheduled(number)
            for number, body in self.deferred.items():
                (message,) = receiver.receive_deferred([number])
                assert message.body == body
                receiver.complete(message)
            self._check_soon(receiver)

    def _check_soon(self, receiver: Receiver) -> None:
        missing = set(self.soon)
        end_s = time.monotonic() + PATIENCE_S
        while missing and time.monotonic() < end_s:
            got = receiver.receive(50, timeout=1)
            receiver.complete(got)
            missing -= {message.body for message in got}
        assert not missing


@pytest.mark.slow
def test_A1_no_kill_undoes_what_was_scheduled_cancelled_or_deferred(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, nodes=2) as broker:
        works = [
            Work(
                broker.connection_string,
                broker.create_queue(
                    name, enable_partitioning=name == "partitioned",
                    lock_duration=timedelta(seconds=5), max_delivery_count=1000,
                ),
            )
            for name in QUEUES
        ]  # fmt: skip
        threads = [
            threading.Thread(target=target, daemon=True)
            for work in works
            for target in (work.schedule, work.defer)
        ]
        for thread in threads:
            thread.start()
        end_s = time.monotonic() + PATIENCE_S
        while not all(work.is_enough for work in works):
            assert time.monotonic() < end_s, "too little was done"
            time.sleep(POLL_S)
        broker.kill_all()
        for work in works:
            work.is_over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        broker.start()
        for work in works:
            work.check()
