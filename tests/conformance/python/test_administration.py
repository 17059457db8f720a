"""The vendor's administration client, unmodified, over TLS on the port that serves messages too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from partibus.testing.serve import LiveBroker

VALUES = {
    "text": "x", "int": 1, "long": 2**40, "double": 1.5, "flag": True,
    "time": datetime(2020, 1, 1, tzinfo=UTC), "span": timedelta(minutes=5),
}  # fmt: skip


@pytest.fixture(scope="module")
def admin(live_namespace: LiveBroker) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        live_namespace.tls_connection_string, connection_verify=str(live_namespace.authority)
    ) as client:
        yield client


def test_A2_A3_a_queue_lives(admin: ServiceBusAdministrationClient) -> None:
    own = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=["Send", "Listen"], key_name="own", primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
    )  # fmt: skip
    made = admin.create_queue(
        "admin-queue",
        enable_partitioning=True,
        lock_duration=timedelta(seconds=30),
        default_message_time_to_live="P1D",
        authorization_rules=[own],
        max_size_in_megabytes=2048,
    )
    assert (made.enable_partitioning, made.max_size_in_megabytes) == (True, 16 * 2048)
    assert (made.lock_duration, made.status) == (timedelta(seconds=30), "Active")
    found = admin.get_queue("admin-queue")
    assert (found.authorization_rules or [])[0].primary_key == "cHJpbWFyeQ=="
    found.max_delivery_count = 3
    found.dead_lettering_on_message_expiration = True
    admin.update_queue(found)
    changed = admin.get_queue("admin-queue")
    assert (changed.max_delivery_count, changed.dead_lettering_on_message_expiration) == (3, True)
    assert changed.default_message_time_to_live == timedelta(days=1)
    changed.requires_session = True
    with pytest.raises(HttpResponseError, match="RequiresSession"):
        admin.update_queue(changed)
    with pytest.raises(ResourceExistsError):
        admin.create_queue("ADMIN-queue")
    admin.delete_queue("admin-queue")
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("admin-queue")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue("admin-queue")


def test_M1_what_was_made_is_there_for_who_connects_to_any_node(
    admin: ServiceBusAdministrationClient, live_namespace: LiveBroker
) -> None:
    for number in range(6):
        name = f"admin-fresh-{number}"
        admin.create_queue(name)
        # Whichever node takes the connection.
        with (
            ServiceBusClient.from_connection_string(live_namespace.connection_string) as client,
            client.get_queue_sender(name) as sender,
        ):
            sender.send_messages(ServiceBusMessage(b"x"))
        assert admin.get_queue_runtime_properties(name).active_message_count == 1
        admin.delete_queue(name)


def test_M2_counts_are_those_of_all_fragments_on_all_nodes(
    admin: ServiceBusAdministrationClient, live_namespace: LiveBroker
) -> None:
    began = datetime.now(UTC) - timedelta(seconds=2)
    admin.create_queue("admin-counts", enable_partitioning=True)
    with ServiceBusClient.from_connection_string(live_namespace.connection_string) as client:
        with client.get_queue_sender("admin-counts") as sender:
            sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(50)])
            sender.send_messages([ServiceBusMessage(b"x", partition_key="k")])
        with client.get_queue_receiver("admin-counts") as receiver:
            receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=5)[0])
    found = admin.get_queue_runtime_properties("admin-counts")
    assert (found.active_message_count, found.dead_letter_message_count) == (50, 1)
    assert found.total_message_count == 51
    assert (found.size_in_bytes or 0) > 5_000
    assert found.accessed_at_utc is not None
    assert found.accessed_at_utc > began
    assert found.created_at_utc is not None
    assert found.created_at_utc > began
    assert admin.get_queue("admin-counts").availability_status == "Available"


def test_M2_a_topic_is_as_large_as_what_its_subscriptions_hold_on_all_nodes(
    admin: ServiceBusAdministrationClient, live_namespace: LiveBroker
) -> None:
    for name, partitioned in (("admin-held", False), ("admin-held-spread", True)):
        admin.create_topic(name, enable_partitioning=partitioned)
        for subscription in ("all", "dead"):
            admin.create_subscription(name, subscription)
        admin.create_subscription(name, "none")
        admin.update_rule(name, "none", _never(admin, name))
        assert admin.get_topic_runtime_properties(name).size_in_bytes == 0
        with ServiceBusClient.from_connection_string(live_namespace.connection_string) as client:
            with client.get_topic_sender(name) as sender:
                for number in range(20):
                    message = ServiceBusMessage(b"x" * 1000, partition_key=str(number))
                    sender.send_messages(message)
                later = datetime.now(UTC) + timedelta(hours=1)
                sender.schedule_messages([ServiceBusMessage(b"x" * 1000) for _ in range(3)], later)
            with client.get_subscription_receiver(name, "dead") as receiver:
                # Dead letters are held, too; what is completed is not.
                dead, done = receiver.receive_messages(2, max_wait_time=5)
                receiver.dead_letter_message(dead)
                receiver.complete_message(done)
        found = admin.get_topic_runtime_properties(name)
        assert 42_000 < (found.size_in_bytes or 0) < 55_000
        assert (found.subscription_count, found.scheduled_message_count) == (3, 3)
        (listed,) = [each for each in admin.list_topics_runtime_properties() if each.name == name]
        assert listed.size_in_bytes == found.size_in_bytes
        counts = admin.get_subscription_runtime_properties(name, "dead")
        assert (counts.active_message_count, counts.dead_letter_message_count) == (18, 1)
        admin.delete_subscription(name, "all")
        left = admin.get_topic_runtime_properties(name)
        assert 22_000 < (left.size_in_bytes or 0) < 30_000
        assert left.subscription_count == 2
        admin.delete_topic(name)


def _never(admin: ServiceBusAdministrationClient, topic: str) -> RuleProperties:
    rule = admin.get_rule(topic, "none", "$Default")
    rule.filter = FalseRuleFilter()
    return rule


def test_A2_A3_lists_are_complete_over_pages(admin: ServiceBusAdministrationClient) -> None:
    names = [f"admin-list-{number:02}" for number in range(7)]
    for name in names:
        admin.create_queue(name)
    found = [each.name for each in admin.list_queues(max_page_size=3)]
    assert [name for name in found if name.startswith("admin-list")] == names
    assert len(set(found)) == len(found)
    runtime = [each.name for each in admin.list_queues_runtime_properties()]
    assert sorted(runtime) == sorted(found)


def test_A2_A3_topics_subscriptions_and_rules_live(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("admin-topic", enable_partitioning=True)
    admin.create_subscription("admin-topic", "sub", lock_duration=timedelta(seconds=20))
    assert [each.name for each in admin.list_subscriptions("admin-topic")] == ["sub"]
    (first,) = admin.list_rules("admin-topic", "sub")
    assert (first.name, type(first.filter)) == ("$Default", TrueRuleFilter)
    admin.create_rule(
        "admin-topic", "sub", "same",
        filter=CorrelationRuleFilter(label="x", properties=VALUES),
        action=SqlRuleAction("SET priority = @high", parameters={"@high": 3}),
    )  # fmt: skip
    same = admin.get_rule("admin-topic", "sub", "same")
    assert dict(same.filter.properties) == VALUES
    assert same.action.sql_expression == "SET priority = @high"
    assert dict(same.action.parameters) == {"@high": 3}
    admin.create_rule("admin-topic", "sub", "sql", filter=SqlRuleFilter("a > @b", {"@b": 2}))
    assert dict(admin.get_rule("admin-topic", "sub", "sql").filter.parameters) == {"@b": 2}
    same.filter = FalseRuleFilter()
    admin.update_rule("admin-topic", "sub", same)
    assert isinstance(admin.get_rule("admin-topic", "sub", "same").filter, FalseRuleFilter)
    admin.delete_rule("admin-topic", "sub", "$Default")
    assert [each.name for each in admin.list_rules("admin-topic", "sub")] == ["same", "sql"]
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        admin.create_rule("admin-topic", "sub", "bad", filter=SqlRuleFilter("a >"))
    runtime = admin.get_topic_runtime_properties("admin-topic")
    assert runtime.subscription_count == 1
    subscription = admin.get_subscription("admin-topic", "sub")
    subscription.max_delivery_count = 5
    admin.update_subscription("admin-topic", subscription)
    assert admin.get_subscription("admin-topic", "sub").max_delivery_count == 5
    assert admin.get_subscription_runtime_properties("admin-topic", "sub").total_message_count == 0
    admin.delete_subscription("admin-topic", "sub")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription("admin-topic", "sub")
    topic = admin.get_topic("admin-topic")
    topic.user_metadata = "kept"
    admin.update_topic(topic)
    assert admin.get_topic("admin-topic").user_metadata == "kept"
    assert "admin-topic" in [each.name for each in admin.list_topics()]
    admin.delete_topic("admin-topic")
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic("admin-topic")


def test_F1_a_forwarding_queue_names_its_target(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("admin-target")
    made = admin.create_queue("admin-source", forward_to="admin-target")
    assert (made.forward_to or "").endswith("/admin-target")
    admin.update_queue(made)
    with pytest.raises(HttpResponseError, match="ForwardTo"):
        admin.create_queue("admin-lost", forward_to="nowhere")


def test_A4_who_may_not_manage_is_told_so(live_namespace: LiveBroker) -> None:
    allowed = live_namespace.create_access_rule(f"user-{time.monotonic_ns()}", "Send", "Listen")
    options = {"connection_verify": str(live_namespace.authority)}
    with (
        ServiceBusAdministrationClient.from_connection_string(allowed, **options) as client,
        pytest.raises(HttpResponseError, match="Unauthorized"),
    ):
        client.create_queue("admin-denied")


def test_A2_A3_the_asynchronous_client_does_the_same(live_namespace: LiveBroker) -> None:
    async def run() -> None:
        async with AsyncAdministrationClient.from_connection_string(
            live_namespace.tls_connection_string, connection_verify=str(live_namespace.authority)
        ) as client:
            namespace = await client.get_namespace_properties()
            assert (namespace.messaging_sku, namespace.namespace_type) == ("Standard", "Messaging")
            made = await client.create_queue("admin-async", enable_partitioning=True)
            made.max_delivery_count = 4
            await client.update_queue(made)
            assert (await client.get_queue("admin-async")).max_delivery_count == 4
            await client.create_topic("admin-async-topic")
            await client.create_subscription("admin-async-topic", "sub")
            await client.create_rule(
                "admin-async-topic", "sub", "r", filter=CorrelationRuleFilter(properties=VALUES)
            )
            rule = await client.get_rule("admin-async-topic", "sub", "r")
            assert dict(rule.filter.properties) == VALUES
            names = [each.name async for each in client.list_queues(max_page_size=2)]
            assert "admin-async" in names
            runtime = await client.get_queue_runtime_properties("admin-async")
            assert runtime.total_message_count == 0
            await client.delete_topic("admin-async-topic")
            await client.delete_queue("admin-async")
            with pytest.raises(ResourceNotFoundError):
                await client.get_queue("admin-async")

    asyncio.run(run())
