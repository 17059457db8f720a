"""Topics, subscriptions and rules in the catalog: all of a change happens, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from partibus.broker import profiles
from partibus.broker.descriptions import InvalidDescription, QueueDescription
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    RuleDescription,
    SqlFilter,
    default_rule,
)
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.store.catalog import Catalog, NamespaceSettings

SETTINGS = NamespaceSettings("test", stores=16, profile_name="standard", namespace_id="n1")
NOW_MS = 1_700_000_000_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog.make(tmp_path / "catalog.sqlite", SETTINGS, lambda: "key")
    catalog.create_topic(TopicDescription("Topic", enable_partitioning=True), NOW_MS)
    yield catalog
    catalog.close()


def subscribe(catalog: Catalog, name: str, *rules: RuleDescription) -> None:
    catalog.create_subscription("topic", SubscriptionDescription(name), NOW_MS, rules or None)


def rules_of(catalog: Catalog, name: str) -> list[RuleDescription]:
    snapshot = catalog.load()
    found = snapshot.find_subscription("TOPIC", name)
    assert found is not None
    return list(snapshot.rules_of_subscription(found))


def test_P4_a_subscription_lies_where_its_topic_lies(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("between"), NOW_MS)
    subscribe(catalog, "Sub")
    snapshot = catalog.load()
    topic, found = snapshot.entities["topic"], snapshot.entities["topic/subscriptions/sub"]
    assert (found.name, found.kind, found.topic) == ("Topic/Subscriptions/Sub", "subscription", 1)
    assert found.fragments == 16
    places = [(topic.store_of(p, 16), found.store_of(p, 16)) for p in topic.partitions]
    assert all(one == other for one, other in places)
    assert snapshot.subscriptions_of(topic) == [found]


def test_a_new_subscription_takes_every_message_unless_rules_are_given(catalog: Catalog) -> None:
    subscribe(catalog, "a")
    subscribe(catalog, "b", RuleDescription("r", SqlFilter("x=1")))
    assert rules_of(catalog, "a") == [replace(default_rule(), created_ms=NOW_MS)]
    assert [rule.name for rule in rules_of(catalog, "b")] == ["r"]


def test_A1_rules_are_added_changed_and_removed(catalog: Catalog, tmp_path: Path) -> None:
    subscribe(catalog, "s")
    catalog.create_rule("topic", "s", RuleDescription("One", SqlFilter("x=1")), NOW_MS + 1)
    catalog.create_rule("topic", "s", RuleDescription("two", SqlFilter("x=2")), NOW_MS + 2)
    with pytest.raises(EntityAlreadyExists, match="ONE"):
        catalog.create_rule("topic", "s", RuleDescription("ONE"), NOW_MS)
    catalog.delete_rule("topic", "s", "$default", NOW_MS + 3)
    with pytest.raises(EntityNotFound, match="Default"):
        catalog.delete_rule("topic", "s", "$Default", NOW_MS + 3)
    catalog.update_rule("topic", "s", RuleDescription("one", SqlFilter("x=3")), NOW_MS + 4)
    wanted = [
        RuleDescription("one", SqlFilter("x=3"), created_ms=NOW_MS + 1),
        RuleDescription("two", SqlFilter("x=2"), created_ms=NOW_MS + 2),
    ]
    assert rules_of(catalog, "s") == wanted
    other = Catalog.open(tmp_path / "catalog.sqlite")
    assert rules_of(other, "s") == wanted
    assert other.load() == catalog.load()
    other.close()


def test_a_topic_goes_with_its_subscriptions_and_their_rules(catalog: Catalog) -> None:
    catalog.create_topic(TopicDescription("other"), NOW_MS)
    catalog.create_subscription("other", SubscriptionDescription("s"), NOW_MS)
    subscribe(catalog, "s")
    subscribe(catalog, "t")
    before = catalog.load()
    catalog.delete_topic("topic", NOW_MS)
    after = catalog.load()
    assert sorted(after.entities) == ["other", "other/subscriptions/s"]
    assert len(after.deleted) == 3
    assert len(after.subscription_rules) == 1
    assert list(after.subscriptions) == [before.entities["other"].id]
    catalog.create_topic(TopicDescription("topic"), NOW_MS)
    subscribe(catalog, "s")
    again = catalog.load().entities["topic/subscriptions/s"]
    assert (again.incarnation, again.fragments) == (2, 1)


def test_a_subscription_is_deleted_alone(catalog: Catalog) -> None:
    subscribe(catalog, "s")
    subscribe(catalog, "t")
    catalog.delete_subscription("topic", "s", NOW_MS)
    snapshot = catalog.load()
    assert [each.key for each in snapshot.subscriptions_of(snapshot.entities["topic"])] == [
        "topic/subscriptions/t"
    ]
    with pytest.raises(EntityNotFound):
        catalog.delete_subscription("topic", "s", NOW_MS)


def test_a_topic_decides_how_large_the_messages_of_its_subscriptions_are(tmp_path: Path) -> None:
    settings = replace(SETTINGS, profile_name="premium")
    catalog = Catalog.make(tmp_path / "other.sqlite", settings, lambda: "key")
    mb = 1024 * 1024
    catalog.create_topic(
        TopicDescription("topic", enable_partitioning=True, max_message_bytes=mb), NOW_MS
    )
    subscribe(catalog, "s")
    assert catalog.load().entities["topic/subscriptions/s"].description.max_message_bytes == mb
    catalog.update_topic("topic", {"MaxMessageSizeInKilobytes": 2048}, NOW_MS)
    assert catalog.load().entities["topic/subscriptions/s"].description.max_message_bytes == 2 * mb
    catalog.close()


def test_what_is_one_kind_is_not_another(catalog: Catalog) -> None:
    subscribe(catalog, "s")
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    with pytest.raises(EntityAlreadyExists):
        catalog.create_queue(QueueDescription("topic"), NOW_MS)
    with pytest.raises(EntityAlreadyExists):
        catalog.create_queue(QueueDescription("topic/subscriptions/S"), NOW_MS)
    with pytest.raises(EntityNotFound, match="queue"):
        catalog.delete_queue("topic", NOW_MS)
    with pytest.raises(EntityNotFound, match="topic"):
        catalog.create_subscription("q", SubscriptionDescription("s"), NOW_MS)
    with pytest.raises(InvalidDescription, match="EnablePartitioning"):
        catalog.update_topic("topic", {"EnablePartitioning": False}, NOW_MS)


def test_the_profile_bounds_subscriptions_and_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(
        profiles.PROFILES["standard"],
        subscriptions_max=2,
        sql_filters_max=2,
        correlation_filters_max=1,
        entities_max=1,
    )
    monkeypatch.setitem(profiles.PROFILES, "standard", small)
    catalog = Catalog.make(tmp_path / "small.sqlite", SETTINGS, lambda: "key")
    catalog.create_topic(TopicDescription("topic"), NOW_MS)
    subscribe(catalog, "s", RuleDescription("a", SqlFilter("x=1")))
    subscribe(catalog, "t", RuleDescription("b", CorrelationFilter(to="x")))
    before = catalog.load()
    with pytest.raises(QuotaExceeded, match="2 subscriptions"):
        subscribe(catalog, "u")
    with pytest.raises(QuotaExceeded, match="CorrelationFilter"):
        catalog.create_rule("topic", "s", RuleDescription("c", CorrelationFilter(to="y")), NOW_MS)
    assert catalog.load() is before
    catalog.create_rule("topic", "s", RuleDescription("c", SqlFilter("x=2")), NOW_MS)
    with pytest.raises(QuotaExceeded, match="SqlFilter"):
        catalog.create_rule("topic", "t", RuleDescription("c", SqlFilter("x=2")), NOW_MS)
    catalog.close()


def test_a_rule_that_is_no_sql_is_not_kept(catalog: Catalog) -> None:
    subscribe(catalog, "s")
    with pytest.raises(InvalidDescription, match="position 4"):
        catalog.create_rule("topic", "s", RuleDescription("a", SqlFilter("x =")), NOW_MS)
