"""A file over existing data: create what is missing, update what may change, never delete."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from partibus.broker.access import ALL_RIGHTS, AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import QuotaExceeded
from partibus.broker.rule_descriptions import SqlFilter
from partibus.config import ConfigurationError, parse_configuration
from partibus.store.catalog import Catalog, NamespaceSettings
from partibus.store.configuration import Applied, apply_configuration, declare

NOW_MS = 1_700_000_000_000
QUEUES = "UserConfig.Namespaces[0].Queues"


class Keys:
    """Keys that can be told apart."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def __call__(self) -> str:
        return f"key-{next(self.numbers)}"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    settings = NamespaceSettings("new", 16, "emulator", namespace_id="n1")
    catalog = Catalog.make(tmp_path / "catalog.sqlite", settings, Keys())
    yield catalog
    catalog.close()


def apply(catalog: Catalog, *queues: object, **namespace: object) -> Applied:
    content = {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": queues, **namespace}]}}
    declaration = declare(parse_configuration(json.dumps(content).encode()))
    return apply_configuration(catalog, declaration, NOW_MS, Keys())


def refused(catalog: Catalog, *queues: object, **namespace: object) -> ConfigurationError:
    before = catalog.load()
    with pytest.raises(ConfigurationError) as error:
        apply(catalog, *queues, **namespace)
    assert catalog.load() is before, "a refused file must change nothing"
    return error.value


def queue(name: str, **properties: object) -> dict[str, object]:
    return {"Name": name, "Properties": properties}


def test_what_is_missing_is_created_and_what_may_change_is_updated(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("old", max_delivery_count=7), NOW_MS)
    catalog.create_queue(QueueDescription("elsewhere"), NOW_MS)
    applied = apply(
        catalog,
        queue("new", EnablePartitioning=True),
        queue("OLD", LockDuration="PT10S"),
    )
    assert (applied.created, applied.updated) == (("new",), ("OLD",))
    snapshot = catalog.load()
    assert snapshot.settings.name == "ns"
    assert snapshot.entities["new"].fragments == 16
    assert snapshot.entities["old"].description.lock_ms == 10_000
    assert snapshot.entities["old"].description.max_delivery_count == 7
    assert snapshot.find("elsewhere")


def test_the_same_file_again_changes_nothing(catalog: Catalog) -> None:
    rules = [{"KeyName": "s", "Rights": ["Send"]}]
    file = queue("q", MaxDeliveryCount=3, ForwardTo=""), queue("p", EnablePartitioning=True)
    apply(catalog, *file, AuthorizationRules=rules)
    before = catalog.load()
    assert apply(catalog, *file, AuthorizationRules=rules) == Applied((), ())
    assert catalog.load() is before


def test_what_may_not_change_is_refused_by_its_path(catalog: Catalog) -> None:
    catalog.create_queue(QueueDescription("q"), NOW_MS)
    error = refused(catalog, queue("new"), queue("q", EnablePartitioning=True))
    assert error.path == f"{QUEUES}[1].Properties.EnablePartitioning"
    assert "cannot change" in error.problem


@pytest.mark.parametrize(
    ("wrong", "path", "problem"),
    [
        (queue("q", LockDuration="PT1S"), "Properties.LockDuration", "PT5S to PT5M"),
        (queue("q", LockDuraton="PT1M"), "Properties.LockDuraton", "did you mean LockDuration?"),
        (queue("a b"), "Name", "letters, digits"),
        (queue("q", ForwardTo="none"), "Properties.ForwardTo", "no queue or topic named 'none'"),
        (queue("q", MaxSizeInMegabytes=7), "Properties.MaxSizeInMegabytes", "1024, 2048"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path_with_what_is_allowed(
    catalog: Catalog, wrong: object, path: str, problem: str
) -> None:
    error = refused(catalog, queue("first"), wrong)
    assert error.path == f"{QUEUES}[1].{path}"
    assert problem in error.problem


def test_two_entities_of_one_name_are_refused(catalog: Catalog) -> None:
    error = refused(catalog, queue("q"), Topics=[{"Name": "Q"}])
    assert error.path == "UserConfig.Namespaces[0].Topics[0].Name"
    assert f"{QUEUES}[0] has the same name" in error.problem


def test_more_than_the_profile_allows_is_refused_where_it_is_reached(catalog: Catalog) -> None:
    many = [queue(f"p{number}", EnablePartitioning=True) for number in range(101)]
    assert refused(catalog, *many).path == f"{QUEUES}[100]"


def test_a_queue_may_forward_to_one_that_stands_below_it(catalog: Catalog) -> None:
    apply(catalog, queue("a", ForwardTo="b"), queue("b"))
    assert catalog.load().entities["a"].description.forward_to == "b"


def test_keys_are_taken_from_the_file_else_kept_else_made(catalog: Catalog) -> None:
    rule = {"KeyName": "s", "Rights": ["Send", "Listen"], "PrimaryKey": "mine"}
    entity = {**queue("q"), "AuthorizationRules": [rule]}
    apply(catalog, entity)
    first = catalog.load()
    assert first.rules_of(first.entities["q"]) == (
        AccessRule("s", "mine", "key-1", Right.SEND | Right.LISTEN),
    )
    del rule["PrimaryKey"]
    rule["Rights"] = ["Send"]
    apply(catalog, entity)
    second = catalog.load()
    assert second.rules_of(second.entities["q"]) == (AccessRule("s", "mine", "key-1", Right.SEND),)


def test_the_root_rule_can_be_given_known_keys(catalog: Catalog) -> None:
    rule = {"KeyName": "RootManageSharedAccessKey", "Rights": ["Manage", "Send", "Listen"],
            "PrimaryKey": "known"}  # fmt: skip
    apply(catalog, AuthorizationRules=[rule])
    (root,) = catalog.load().rules_of()
    assert (root.primary_key, root.rights) == ("known", ALL_RIGHTS)


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ({"KeyName": "s", "Rights": ["Send"], "PrimaryKey": "secret;x"}, "PrimaryKey"),
        ({"KeyName": "s", "Rights": ["Write"]}, "Rights"),
        ({"KeyName": "s", "Rights": []}, "Rights"),
        ({"KeyName": "s", "Rights": ["Manage"]}, "Rights"),
        ({"KeyName": "a b", "Rights": ["Send"]}, "KeyName"),
    ],
)
def test_a_wrong_access_rule_is_refused_without_repeating_its_key(
    catalog: Catalog, rule: object, key: str
) -> None:
    error = refused(catalog, AuthorizationRules=[rule])
    assert error.path == f"UserConfig.Namespaces[0].AuthorizationRules[0].{key}"
    assert "secret" not in str(error)


def topic(*subscriptions: object, **properties: object) -> dict[str, object]:
    return {"Name": "T", "Properties": properties, "Subscriptions": list(subscriptions)}


def subscription(name: str, *rules: object, **properties: object) -> dict[str, object]:
    return {"Name": name, "Properties": properties, "Rules": list(rules)}


def sql(name: str, expression: str) -> dict[str, object]:
    properties = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    return {"Name": name, "Properties": properties}


def test_M4_a_file_makes_topics_with_subscriptions_and_rules(catalog: Catalog) -> None:
    declared = topic(
        subscription("all"), subscription("red", sql("r", "c='red'"), MaxDeliveryCount=3)
    )
    applied = apply(catalog, Topics=[declared])
    assert applied.created == ("T", "T/Subscriptions/all", "T/Subscriptions/red")
    snapshot = catalog.load()
    every, red = snapshot.subscriptions_of(snapshot.entities["t"])
    assert [each.name for each in snapshot.rules_of_subscription(every)] == ["$Default"]
    (rule,) = snapshot.rules_of_subscription(red)
    assert (rule.name, rule.filter) == ("r", SqlFilter("c='red'"))
    assert red.description.max_delivery_count == 3
    assert apply(catalog, Topics=[declared]) == Applied((), ())
    assert catalog.load() is snapshot


def test_a_file_adds_and_changes_rules_and_removes_none(catalog: Catalog) -> None:
    apply(catalog, Topics=[topic(subscription("s", sql("a", "x=1"), sql("b", "x=2")))])
    applied = apply(
        catalog,
        Topics=[topic(subscription("s", sql("B", "x=3"), sql("c", "x=4"), LockDuration="PT9S"))],
    )
    assert applied == Applied((), ("T/Subscriptions/s",))
    snapshot = catalog.load()
    found = snapshot.find_subscription("t", "S")
    assert found is not None
    rules = snapshot.rules_of_subscription(found)
    assert [(r.name, r.filter.expression) for r in rules if isinstance(r.filter, SqlFilter)] == [
        ("a", "x=1"), ("B", "x=3"), ("c", "x=4")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (topic(subscription("a/b")), "Subscriptions[0].Name"),
        (topic(subscription("a"), subscription("A")), "Subscriptions[1].Name"),
        (topic(subscription("a", sql("r", ""))), "Rules[0].Properties.SqlExpression"),
        (topic(subscription("a", sql("r", "x ="))), "Rules[0].Properties.SqlExpression"),
        (topic(subscription("a", sql("r", "1=1"), sql("R", "1=1"))), "Rules[1].Name"),
        (topic(subscription("a", MaxDeliveryCount=0)), "Properties.MaxDeliveryCount"),
        (topic(subscription("a", ForwardTo="nowhere")), "Properties.ForwardTo"),
        (topic(MaxSizeInMegabytes=7), "Topics[0].Properties.MaxSizeInMegabytes"),
    ],
)
def test_a_topic_that_could_not_work_is_refused_by_its_path(
    catalog: Catalog, declared: object, path: str
) -> None:
    assert refused(catalog, Topics=[declared]).path.endswith(path)


def test_a_queue_is_not_made_a_topic(catalog: Catalog) -> None:
    apply(catalog, queue("t"))
    assert "exists already" in str(refused(catalog, Topics=[topic()]))


def test_the_profile_of_the_file_becomes_the_namespaces(catalog: Catalog) -> None:
    apply(catalog, queue("q"), Profile="premium", Partitions=4)
    assert catalog.load().entities["q"].fragments == 4
    # A file that does not say leaves it: the next queue is partitioned too.
    apply(catalog, queue("q2"))
    assert catalog.load().entities["q2"].fragments == 4


def test_P9_limits_in_the_file_take_the_place_of_the_profiles(catalog: Catalog) -> None:
    apply(catalog, queue("one"), Limits={"Entities": 2, "PartitionedEntities": 0})
    assert catalog.load().settings.profile.entities_max == 2
    apply(catalog, queue("two", EnablePartitioning=True))
    # They stay while a file says nothing of them, also for who asks at a door.
    with pytest.raises(QuotaExceeded):
        catalog.create_queue(QueueDescription("three"), NOW_MS)
    apply(catalog, Limits={})
    catalog.create_queue(QueueDescription("three"), NOW_MS)
    error = refused(catalog, Limits={"Entitys": 1})
    assert error.path == "UserConfig.Namespaces[0].Limits.Entitys"
    assert "did you mean Entities?" in error.problem


PIPELINES = "UserConfig.Namespaces[0].Pipelines"
COPY = {"Source": "orders", "Sql": "SELECT body FROM messages", "Target": "news"}


def with_pipelines(*pipelines: tuple[str, dict[str, object]]) -> dict[str, object]:
    return {
        "Queues": [{"Name": "orders"}],
        "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all"}]}],
        "Pipelines": [{"Name": name, "Properties": properties} for name, properties in pipelines],
    }


@pytest.mark.parametrize(
    "properties",
    [
        COPY,
        {**COPY, "Source": "ORDERS/$DeadLetterQueue"},
        {**COPY, "Source": "news/subscriptions/all", "Target": "orders"},
    ],
)
def test_S5_a_pipeline_reads_and_writes_what_is_there(
    catalog: Catalog, properties: dict[str, object]
) -> None:
    apply(catalog, **with_pipelines(("copy", properties)))


@pytest.mark.parametrize(
    ("pipelines", "path", "said"),
    [
        ([("p", {**COPY, "Source": "none"})], "[0].Properties.Source", "no queue or subscr"),
        ([("p", {**COPY, "Source": "news"})], "[0].Properties.Source", "TOPIC/subscriptions/NAME"),
        ([("p", {**COPY, "Target": "none"})], "[0].Properties.Target", "no queue or topic"),
        (
            [("p", {**COPY, "Target": "news/subscriptions/all"})],
            "[0].Properties.Target",
            "no queue",
        ),
        ([("p", COPY), ("P", COPY)], "[1].Name", "same name"),
        ([("a b", COPY)], "[0].Name", "letters, digits"),
        ([("p", {**COPY, "Trigger": "soon"})], "[0].Properties.Trigger", "PT10S"),
    ],
)
def test_S5_a_pipeline_that_cannot_work_is_refused_by_its_path(
    catalog: Catalog, pipelines: list[tuple[str, dict[str, object]]], path: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        apply(catalog, **with_pipelines(*pipelines))
    assert refused.value.path == PIPELINES + path
    assert said in refused.value.problem
    assert catalog.load().find("orders") is None
