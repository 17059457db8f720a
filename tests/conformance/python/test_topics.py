"""Topics by the vendor's clients: published once, received by every subscription that wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusError

from partibus.testing.namespace import Namespace

WAIT_S = 5
SHORT_WAIT_S = 0.2
ACTING = {
    "FilterType": "Sql",
    "SqlFilter": {"SqlExpression": "n > 1"},
    "Action": {"SqlExpression": "SET n = n + 1; SET sys.Label = 'changed'; REMOVE gone"},
}


class Topic:
    """A topic, and a client with a receiver for each subscription that is asked for."""

    def __init__(self, namespace: Namespace, partitioned: bool) -> None:
        self.namespace = namespace
        self.partitioned = partitioned
        self.name = "topic"
        self.client = ServiceBusClient.from_connection_string(
            namespace.connection_string, retry_total=1, retry_backoff_factor=0.1
        )
        self._sender: Any = None
        self._receivers: dict[Any, Any] = {}

    def make(self, **properties: Any) -> None:
        self.namespace.create_topic(self.name, enable_partitioning=self.partitioned, **properties)

    def subscribe(self, name: str, rules: Any = None, **properties: Any) -> None:
        self.namespace.create_subscription(self.name, name, rules, **properties)

    @property
    def sender(self) -> Any:
        if self._sender is None:
            self._sender = self.client.get_topic_sender(self.name)
        return self._sender

    def send(self, *messages: Any) -> None:
        for each in messages:
            self.sender.send_messages(each)

    def receiver(self, name: str, **how: Any) -> Any:
        key = (name, *how.items())
        if key not in self._receivers:
            made = self.client.get_subscription_receiver(self.name, name, **how)
            # Opened now: later it would take part of the time for which a message is waited for.
            self._receivers[key] = made.__enter__()
        return self._receivers[key]

    def receive(self, name: str, count: int, **how: Any) -> list[Any]:
        """Receive so many and complete them."""
        receiver = self.receiver(name, **how)
        found: list[Any] = []
        while len(found) < count:
            got = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
            assert got, f"only {bodies(found)} came"
            if "receive_mode" not in how:
                for message in got:
                    receiver.complete_message(message)
            found += got
        return found

    def dead(self, name: str, count: int) -> dict[str, str]:
        """Receive dead letters; their reasons."""
        found = self.receive(name, count, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        return {str(each): each.dead_letter_reason for each in found}

    def has_nothing(self, name: str) -> bool:
        return not self.receiver(name).receive_messages(1, max_wait_time=SHORT_WAIT_S)

    def close(self) -> None:
        # Each takes the client half a second.
        links = [*self._receivers.values(), self._sender]
        with ThreadPoolExecutor(len(links)) as pool:
            list(pool.map(lambda link: link and link.close(), links))
        self._receivers, self._sender = {}, None

    def restart(self) -> None:
        self.close()
        self.namespace.restart()


def bodies(messages: list[Any]) -> list[str]:
    return sorted(str(message) for message in messages)


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def topic(
    request: pytest.FixtureRequest, durable_servicebus_namespace: Namespace
) -> Iterator[Topic]:
    topic = Topic(durable_servicebus_namespace, request.param)
    yield topic
    topic.close()
    topic.client.close()


def test_P4_every_subscription_gets_the_copies_that_its_rules_make(topic: Topic) -> None:
    topic.make()
    topic.subscribe("all")
    topic.subscribe("red", {"r": "color = 'red'"})
    topic.subscribe("none", {"never": "1 = 0"})
    everything = {"FilterType": "True"}
    topic.subscribe("acts", {"p": everything, "also": "n > 0", "one": ACTING, "two": ACTING})
    colors = ["red", "blue", "red"]
    topic.send([ServiceBusMessage(each, application_properties={"color": each}) for each in colors])
    properties: dict[Any, Any] = {"n": 5, "gone": "x"}
    topic.send(
        ServiceBusMessage(b"body" * 100, application_properties=properties, subject="original")
    )
    topic.restart()
    assert bodies(topic.receive("red", 2)) == ["red", "red"]
    assert bodies(topic.receive("ALL", 4)) == ["blue", "body" * 100, "red", "red"]
    copies = [each for each in topic.receive("acts", 6) if str(each).startswith("body")]
    by_rule = {
        (each.application_properties.get(b"RuleName") or b"").decode(): each for each in copies
    }
    assert sorted(by_rule) == ["", "one", "two"]
    assert by_rule[""].subject == "original"
    assert by_rule[""].application_properties == {b"n": 5, b"gone": b"x"}
    for name in ("one", "two"):
        assert by_rule[name].subject == "changed"
        assert by_rule[name].application_properties == {b"n": 6, b"RuleName": name.encode()}
        assert str(by_rule[name]) == "body" * 100
    assert len({each.enqueued_sequence_number for each in copies}) == 1
    assert len({each.sequence_number for each in copies}) == 3
    assert all(topic.has_nothing(name) for name in ("red", "acts", "none"))


def test_P4_what_is_done_in_one_subscription_is_not_seen_in_another(topic: Topic) -> None:
    topic.make()
    topic.subscribe("a", max_delivery_count=2)
    topic.subscribe("b")
    topic.send([ServiceBusMessage(each) for each in ("defer", "dead", "abandon")])
    receiver = topic.receiver("a")
    assert len(receiver.peek_messages(10)) == 3
    deferred, seen = [], 0
    while seen < 4:
        for message in receiver.receive_messages(3, max_wait_time=WAIT_S):
            seen += 1
            if str(message) == "defer":
                receiver.defer_message(message)
                deferred.append(message.sequence_number)
            elif str(message) == "dead":
                receiver.dead_letter_message(message, reason="why", error_description="so")
            else:
                receiver.abandon_message(message)
    (found,) = receiver.receive_deferred_messages(deferred)
    receiver.complete_message(found)
    assert topic.dead("a", 2) == {"dead": "why", "abandon": "MaxDeliveryCountExceeded"}
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    received = topic.receive("b", 3, receive_mode=mode)
    assert bodies(received) == ["abandon", "dead", "defer"]
    topic.namespace.delete_subscription(topic.name, "b")
    topic.send(ServiceBusMessage("after"))
    assert bodies(topic.receive("a", 1)) == ["after"]


def test_P4_F2_a_topic_schedules_drops_duplicates_and_lets_messages_expire(topic: Topic) -> None:
    minutes = timedelta(minutes=1)
    topic.make(requires_duplicate_detection=True, default_message_time_to_live=60 * minutes)
    topic.subscribe("early")
    topic.subscribe(
        "short",
        default_message_time_to_live=2 * minutes,
        dead_lettering_on_message_expiration=True,
    )
    topic.subscribe("broken", {"r": "1 / zero = 1"})
    topic.subscribe("off", status="ReceiveDisabled")
    due = datetime.now(UTC) + 5 * minutes
    later = [
        ServiceBusMessage(each, message_id=each, partition_key="k", application_properties={"n": 1})
        for each in ("go", "stop")
    ]
    numbers = topic.sender.schedule_messages(later, due)
    topic.sender.cancel_scheduled_messages(numbers[1])
    for _ in range(2):
        topic.send(ServiceBusMessage("now", message_id="1", application_properties={"zero": 0}))
    assert bodies(topic.receive("early", 1)) == ["now"]
    assert topic.has_nothing("early")
    assert topic.receiver("early").peek_messages(5) == []
    assert topic.dead("broken", 1) == {"now": "FilterException"}
    with pytest.raises(ServiceBusError):
        topic.receive("off", 1)
    topic.subscribe("late", {"r": "n = 1"})
    topic.namespace.clock.advance(6 * 60)
    assert topic.dead("short", 1) == {"now": "TTLExpiredException"}
    for name in ("early", "late"):
        (message,) = topic.receive(name, 1)
        assert (str(message), message.time_to_live) == ("go", 60 * minutes)
    topic.namespace.update_subscription(topic.name, "off", status="Active")
    assert bodies(topic.receive("off", 2)) == ["go", "now"]


@pytest.mark.parametrize("partitioned", [False, True], ids=["conventional", "partitioned"])
def test_P4_sessions_of_a_subscription_with_the_async_client(
    partitioned: bool, servicebus_namespace: Namespace
) -> None:
    namespace = servicebus_namespace
    namespace.create_topic("t", enable_partitioning=partitioned)
    namespace.create_subscription("t", "s", requires_session=True)
    namespace.create_subscription("t", "plain")

    async def run() -> None:
        async with AsyncClient.from_connection_string(namespace.connection_string) as client:
            sender = client.get_topic_sender("t")
            for n in range(6):
                await sender.send_messages(ServiceBusMessage(f"{n}", session_id=f"s{n % 2}"))
            await sender.send_messages(ServiceBusMessage("without"))
            receiver = client.get_subscription_receiver("t", "s", session_id="s1")
            await receiver.__aenter__()
            await receiver.session.set_state(b"state")
            got: list[Any] = []
            while len(got) < 3:
                got += await receiver.receive_messages(3 - len(got), max_wait_time=WAIT_S)
            assert [str(each) for each in got] == ["1", "3", "5"]
            for each in got:
                await receiver.complete_message(each)
            assert await receiver.session.get_state() == b"state"
            dead = client.get_subscription_receiver(
                "t", "s", sub_queue=ServiceBusSubQueue.DEAD_LETTER
            )
            (without,) = await dead.receive_messages(1, max_wait_time=WAIT_S)
            assert (str(without), without.dead_letter_reason) == ("without", "Session id is null.")
            plain = client.get_subscription_receiver("t", "plain")
            received: list[Any] = []
            while len(received) < 7:
                received += await plain.receive_messages(7, max_wait_time=WAIT_S)
            await asyncio.gather(*(each.close() for each in (sender, receiver, dead, plain)))

    asyncio.run(run())
