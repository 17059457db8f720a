"""Access rules from the shell: what is made opens, what is rotated or deleted closes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from partibus.client import Client
from partibus.testing.serve import LiveBroker


def test_A4_a_rule_opens_what_it_says_until_it_is_deleted(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("cli-access")
    options = ("--entity", queue, "--output", "json")
    made = json.loads(partibus("access-rule", "create", "sender", "--right", "Send", *options).out)
    own = made["connectionString"]
    assert partibus("send", queue, "x", connection=own).code == 0
    assert partibus("receive", queue, "--wait", "1", connection=own).code == 8
    rotated = json.loads(partibus("access-rule", "rotate", "sender", *options).out)
    assert rotated["secondaryKey"] == made["primaryKey"]
    assert partibus("send", queue, "y", connection=own).code == 0
    assert partibus("send", queue, "z", connection=rotated["connectionString"]).code == 0
    listed = json.loads(partibus("access-rule", "list", *options).out)
    assert listed == [{"name": "sender", "rights": ["Send"]}]
    assert rotated["primaryKey"] in partibus("access-rule", "list", "--keys", *options).out
    assert json.loads(partibus("access-rule", "show", "sender", *options).out) == rotated
    assert partibus("access-rule", "delete", "sender", "--entity", queue, "--yes").code == 0
    assert partibus("send", queue, "x", connection=rotated["connectionString"]).code == 8
    root = partibus("access-rule", "list").out
    assert "RootManageSharedAccessKey" in root


def test_purge_leaves_an_empty_queue(partibus: Callable[..., Any], broker: LiveBroker) -> None:
    queue = broker.create_queue("cli-purge", enable_partitioning=True)
    partibus("send", queue, "--lines", stdin="a\nb\nc\n")
    assert partibus("queue", "purge", queue, "--yes").code == 0
    assert partibus("peek", queue, "--output", "json").out == "[]\n"
    assert partibus("queue", "purge", "there-is-none", "--yes").code == 8


def test_a_topic_is_purged_with_all_its_subscriptions(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    topic = broker.create_topic("cli-purge-topic", enable_partitioning=True)
    for name in ("a", "b"):
        broker.create_subscription(topic, name)
    partibus("send", topic, "--lines", stdin="1\n2\n3\n")
    partibus("send", topic, "later", "--at", "1h")
    purged = json.loads(partibus("topic", "purge", topic, "--yes", "--output", "json").out)
    assert purged == {"deleted": 7}
    for name in ("a", "b"):
        assert partibus("peek", f"{topic}/Subscriptions/{name}", "--output", "json").out == "[]\n"
    shown = json.loads(partibus("topic", "show", topic, "--output", "json").out)
    assert (shown["SizeInBytes"], shown["CountDetails"]["ScheduledMessageCount"]) == ("0", "0")


def test_a_purge_says_how_many_it_deleted_and_leaves_what_is_locked(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("cli-purge-locked")
    partibus("send", queue, "--lines", stdin="1\n2\n3\n")
    with (
        Client.from_connection_string(broker.connection_string) as client,
        client.receiver(queue) as receiver,
    ):
        (held,) = receiver.receive(timeout=10)
        assert partibus("queue", "purge", queue, "--yes").err == "2 deleted\n"
        receiver.complete(held)
