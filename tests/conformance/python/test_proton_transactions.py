"""Transactions with another AMQP implementation, Apache Qpid Proton (T1, T2, T5)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient

proton = pytest.importorskip("proton")
handlers = pytest.importorskip("proton.handlers")
reactor = pytest.importorskip("proton.reactor")

PATIENCE_S = 20
WAIT_S = 1
KEY = proton.symbol("x-opt-partition-key")


def message(body: str, key: str | None = "k") -> Any:
    annotations = {KEY: key} if key else None
    return proton.Message(body=body.encode(), inferred=True, annotations=annotations)


class Onward(reactor.LinkOption):  # type: ignore[misc]
    """The property by which a link sends via its target."""

    def __init__(self, destination: str) -> None:
        self.destination = destination

    def apply(self, link: Any) -> None:
        name = proton.symbol("com.microsoft:transfer-destination-address")
        link.properties = {name: self.destination}


def scheduling(each: Any) -> Any:
    """The request to have a message enqueued in an hour."""
    at = proton.timestamp(round((time.time() + 3600) * 1000))
    each.annotations = {
        **(each.annotations or {}),
        proton.symbol("x-opt-scheduled-enqueue-time"): at,
    }
    return proton.Message(
        id=str(uuid4()),
        reply_to="us",
        properties={"operation": "com.microsoft:schedule-message"},
        body={"messages": [{"message-id": "x", "message": each.encode()}]},
    )


class Work(handlers.MessagingHandler, handlers.TransactionHandler):  # type: ignore[misc]
    """Receives some messages, sends others, and discharges: all in one transaction."""

    def __init__(
        self,
        url: str,
        queue: str,
        sends: list[Any],
        receives: int = 0,
        commit: bool = True,
        onward: str | None = None,
        schedules: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.queue, self.sends = url, queue, sends
        self.receives, self.commit = receives, commit
        # What is sent goes there, via the queue.
        self.onward = onward
        self.seen: list[str] = []
        self.rejected: list[str] = []
        # Requests to schedule, and what was answered: the status, and the numbers.
        self.schedules = [scheduling(each) for each in schedules]
        self.answers: list[tuple[int, list[int]]] = []
        self.open = len(sends) + receives + len(schedules)
        self.transaction: Any = None

    def run(self) -> str:
        self.outcome = "nothing"
        reactor.Container(self).run()
        return self.outcome

    def on_start(self, event: Any) -> None:
        self.guard = event.container.schedule(PATIENCE_S, self)
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN", reconnect=False)
        options = Onward(self.onward) if self.onward else None
        self.sender = event.container.create_sender(self.connection, self.queue, options=options)
        event.container.declare_transaction(self.connection, handler=self)

    def on_timer_task(self, event: Any) -> None:
        self.outcome = "too late"
        self.connection.close()

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        if self.receives:
            receiver = event.container.create_receiver(self.connection, self.queue)
            receiver.flow(self.receives)
        for each in self.sends:
            self.transaction.send(self.sender, each)
        if self.schedules:
            management = f"{self.queue}/$management"
            self.responses = event.container.create_receiver(self.connection, management)
            self.responses.flow(len(self.schedules))
            requests = event.container.create_sender(self.connection, management)
            for each in self.schedules:
                self.transaction.send(requests, each)

    def on_message(self, event: Any) -> None:
        if self.schedules and event.link == self.responses:
            body = event.message.body
            numbers = list(body["sequence-numbers"].elements) if body else []
            self.answers.append((event.message.properties["statusCode"], numbers))
            self.done()
            return
        self.seen.append(bytes(event.message.body).decode())
        self.transaction.accept(event.delivery)
        self.done()

    def on_rejected(self, event: Any) -> None:
        self.rejected.append(event.delivery.remote.condition.name)

    def on_settled(self, event: Any) -> None:
        if event.link == self.sender:
            self.done()

    def done(self) -> None:
        self.open -= 1
        if not self.open:
            if self.commit:
                self.transaction.commit()
            else:
                self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.end("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self.end("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.end("failed")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.end("not declared")

    def end(self, outcome: str) -> None:
        self.outcome = outcome
        self.guard.cancel()
        self.connection.close()


@pytest.fixture
def url(live_namespace: Any) -> str:
    text = live_namespace.connection_string
    (name,) = re.findall("SharedAccessKeyName=([^;]*)", text)
    (key,) = re.findall("SharedAccessKey=([^;]*)", text)
    return f"amqp://{name}:{quote(key, safe='')}@127.0.0.1:{live_namespace.port}"


@pytest.fixture
def left(live_namespace: Any) -> Callable[[str], list[str]]:
    def take(queue: str) -> list[str]:
        string = live_namespace.connection_string
        with (
            ServiceBusClient.from_connection_string(string) as client,
            client.get_queue_receiver(
                queue, max_wait_time=WAIT_S, receive_mode="receiveanddelete"
            ) as receiver,
        ):
            return sorted(str(message) for message in receiver)

    return take


def test_T5_a_committed_transaction_is_there(
    url: str, queue: str, left: Callable[[str], list[str]]
) -> None:
    work = Work(url, queue, [message(str(number)) for number in range(10)])
    assert work.run() == "committed"
    assert left(queue) == [str(number) for number in range(10)]


def test_T5_an_aborted_transaction_is_not(
    url: str, queue: str, left: Callable[[str], list[str]]
) -> None:
    assert Work(url, queue, [message("x")], commit=False).run() == "aborted"
    assert left(queue) == []


def test_T5_receiving_and_sending_are_one_transaction(
    url: str, queue: str, left: Callable[[str], list[str]]
) -> None:
    assert Work(url, queue, [message("old")]).run() == "committed"
    work = Work(url, queue, [message("new")], receives=1)
    assert work.run() == "committed"
    assert work.seen == ["old"]
    assert left(queue) == ["new"]


def test_T1_T2_the_key_rules_reject_the_send_alone(
    url: str, new_queue: Callable[..., str], left: Callable[[str], list[str]]
) -> None:
    queue = new_queue(enable_partitioning=True)
    sends = [message("no key", None), message("1"), message("other key", "l"), message("2")]
    work = Work(url, queue, sends)
    assert work.run() == "committed"
    assert work.rejected == ["amqp:not-allowed", "amqp:not-allowed"]
    assert left(queue) == ["1", "2"]


def test_T5_receiving_and_sending_via_are_one_transaction(
    url: str, queue: str, new_queue: Callable[..., str], left: Callable[[str], list[str]]
) -> None:
    target = new_queue(enable_partitioning=True)
    assert Work(url, queue, [message("old")]).run() == "committed"
    moved = message("moved", None)
    moved.annotations = {proton.symbol("x-opt-via-partition-key"): "k"}
    work = Work(url, queue, [moved], receives=1, onward=target)
    assert work.run() == "committed"
    assert work.seen == ["old"]
    assert left(target) == ["moved"]
    assert left(queue) == []


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_T5_scheduling_is_part_of_a_transaction(
    url: str, queue: str, left: Callable[[str], list[str]], live_namespace: Any, commit: bool
) -> None:
    work = Work(url, queue, [message("now")], commit=commit, schedules=(message("later"),))
    assert work.run() == ("committed" if commit else "aborted")
    [(status, [number])] = work.answers
    assert status == 200
    with (
        ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        seen = {each.sequence_number: str(each) for each in receiver.peek_messages(10)}
    assert seen.get(number) == ("later" if commit else None)
    assert left(queue) == (["now"] if commit else [])
