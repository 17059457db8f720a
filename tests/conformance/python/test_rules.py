"""Rules over AMQP, by our own client; the vendor's clients see what they do to messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.client import (
    Client,
    CorrelationFilter,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
)
from partibus.testing.namespace import Namespace

WAIT_S = 5
SHORT_WAIT_S = 0.2
PATH = "topic/Subscriptions/sub"


class Topic:
    """A topic with one subscription, seen by the vendor's client and by ours."""

    def __init__(self, namespace: Namespace, partitioned: bool) -> None:
        namespace.create_topic("topic", enable_partitioning=partitioned)
        namespace.create_subscription("topic", "sub")
        self.vendor = ServiceBusClient.from_connection_string(namespace.connection_string)
        self.ours = Client.from_connection_string(namespace.connection_string)
        self.rules = self.ours.rules(PATH)

    def send(self, *numbers: int) -> None:
        with self.vendor.get_topic_sender("topic") as sender:
            for number in numbers:
                properties: dict[Any, Any] = {"n": number, "color": "red" if number % 2 else "blue"}
                message = ServiceBusMessage(
                    str(number), application_properties=properties, subject=f"l{number}"
                )
                sender.send_messages(message)

    def received(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        """So many messages, and no more: their bodies and properties."""
        found: list[Any] = []
        with self.vendor.get_subscription_receiver("topic", "sub") as receiver:
            while got := receiver.receive_messages(
                10, max_wait_time=WAIT_S if len(found) < count else SHORT_WAIT_S
            ):
                for message in got:
                    receiver.complete_message(message)
                found += got
        assert len(found) == count
        return sorted((str(each), _plain(each.application_properties)) for each in found)

    def names(self) -> list[str]:
        return [rule.name for rule in self.rules.list()]

    def close(self) -> None:
        self.vendor.close()
        self.ours.close()


def _plain(properties: Any) -> dict[str, Any]:
    def text(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    return {text(key): text(value) for key, value in (properties or {}).items()}


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def topic(request: pytest.FixtureRequest, servicebus_namespace: Namespace) -> Iterator[Topic]:
    topic = Topic(servicebus_namespace, request.param)
    yield topic
    topic.close()


def test_A1_P4_rules_decide_from_the_moment_they_are_answered(topic: Topic) -> None:
    assert topic.names() == ["$Default"]
    topic.send(1)
    topic.rules.add("red", "color = 'red' AND n > 1")
    topic.rules.add("four", CorrelationFilter(label="l4", properties={"color": "blue"}))
    topic.rules.remove("$Default")
    topic.send(1, 2, 3, 4)
    topic.rules.add("acting", "n = 6", action="SET color = color + 'ish'; SET half = n / 2")
    topic.send(6)
    found = topic.received(4)
    assert [body for body, _ in found] == ["1", "3", "4", "6"]
    assert found[3][1] == {"n": 6, "color": "blueish", "half": 3, "RuleName": "acting"}
    listed = {rule.name: (rule.filter, rule.action) for rule in topic.rules.list()}
    assert listed["red"] == ("color = 'red' AND n > 1", None)
    four = listed["four"][0]
    assert isinstance(four, CorrelationFilter)
    assert (four.label, four.properties) == ("l4", {"color": "blue"})
    assert listed["acting"][1] == "SET color = color + 'ish'; SET half = n / 2"


def test_A1_mistakes_are_refused_and_change_nothing(topic: Topic) -> None:
    with pytest.raises(EntityAlreadyExists):
        topic.rules.add("$Default")
    with pytest.raises(EntityNotFound):
        topic.rules.remove("gone")
    with pytest.raises(InvalidArgument, match="position 8"):
        topic.rules.add("bad", "color =")
    with pytest.raises(InvalidArgument, match="position 1"):
        topic.rules.add("bad", "1=1", action="LET a = 1")
    assert topic.names() == ["$Default"]


def test_T7_rules_in_a_transaction(topic: Topic, request: pytest.FixtureRequest) -> None:
    if "partitioned" in request.node.name:
        with pytest.raises(InvalidOperation, match="partitioned"), topic.ours.transaction():
            topic.rules.add("red", "color = 'red'")
        topic.rules.add("red", "color = 'red'")
        topic.rules.remove("$Default")
    else:
        with topic.ours.transaction():
            topic.rules.remove("$Default")
            topic.rules.add("red", "color = 'red'")
        with topic.ours.transaction() as transaction:
            topic.rules.add("never", "1=1")
            transaction.rollback()
    assert topic.names() == ["red"]
    topic.send(1, 2)
    assert [body for body, _ in topic.received(1)] == ["1"]
