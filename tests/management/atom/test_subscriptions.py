"""Subscriptions and rules over HTTP, as curl would do them, good and bad (A2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.rule_descriptions import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from partibus.testing.atom_client import ask, entry
from partibus.testing.http_world import World, in_world
from partibus.wire.values import Described, Int, Symbol, Timestamp

UPDATE = {"If_Match": "*"}
SCHEMA = "http://www.w3.org/2001/XMLSchema"


def subscription(inner: str = "", **elements: object) -> bytes:
    return entry("SubscriptionDescription", inner, **elements)


def rule(filter_type: str, inner: str = "", action: str = "") -> bytes:
    return entry("RuleDescription", f'<Filter i:type="{filter_type}">{inner}</Filter>{action}')


def value(key: str, kind: str, content: str) -> str:
    typed = f'<Value i:type="p:{kind}" xmlns:p="{SCHEMA}">{content}</Value>'
    return f"<KeyValueOfstringanyType><Key>{key}</Key>{typed}</KeyValueOfstringanyType>"


async def with_subscription(world: World) -> None:
    assert (await ask(world, "PUT", "/t", entry("TopicDescription"))).status == 201
    assert (await ask(world, "PUT", "/t/Subscriptions/s", subscription())).status == 201


def test_a_subscription_is_made_found_changed_listed_and_deleted(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await with_subscription(world)
        found = await ask(world, "GET", "/T/subscriptions/S")
        assert (found.status, found.root.text_of("title")) == (200, "s")
        assert found.description["AccessedAt"].startswith("0001-01-01")
        again = await ask(world, "PUT", "/t/subscriptions/s", subscription())
        assert (again.status, again.detail[:13]) == (409, "SubCode=40900")
        body = subscription(LockDuration="PT20S")
        changed = await ask(world, "PUT", "/t/subscriptions/s", body, **UPDATE)
        assert (changed.status, changed.description["LockDuration"]) == (200, "PT20S")
        await ask(world, "PUT", "/t/subscriptions/r", subscription())
        assert (await ask(world, "GET", "/t/subscriptions")).titles == ["r", "s"]
        topic = (await ask(world, "GET", "/t")).description
        assert topic["SubscriptionCount"] == "2"
        assert (await ask(world, "DELETE", "/t/subscriptions/s")).status == 200
        missing = await ask(world, "GET", "/t/subscriptions/s")
        assert missing.status == 404
        assert "Entity 'test:Topic:t|s' was not found" in missing.detail
        for method in ("DELETE", "PUT"):
            answer = await ask(world, method, "/t/subscriptions/s", subscription(), **UPDATE)
            assert answer.status == 404
        assert (await ask(world, "GET", "/none/subscriptions")).status == 404
        assert (await ask(world, "PUT", "/none/subscriptions/s", subscription())).status == 404
        fixed = subscription(RequiresSession="true")
        refused = await ask(world, "PUT", "/t/subscriptions/r", fixed, **UPDATE)
        assert (refused.status, "RequiresSession" in refused.detail) == (400, True)
        for name in ("x" * 51, "a%20b", "$x"):
            assert (
                await ask(world, "PUT", f"/t/subscriptions/{name}", subscription())
            ).status == 400

    in_world(tmp_path, use)


def test_a_subscription_begins_with_the_rule_that_it_was_given(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await with_subscription(world)
        assert (await ask(world, "GET", "/t/subscriptions/s/rules")).titles == ["$Default"]
        first = (
            '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a = 1'
            "</SqlExpression></Filter><Name>mine</Name></DefaultRuleDescription>"
        )
        assert (await ask(world, "PUT", "/t/subscriptions/r", subscription(first))).status == 201
        subscribed = world.node.snapshot.find_subscription("t", "r")
        assert subscribed is not None
        (made,) = world.node.snapshot.rules_of_subscription(subscribed)
        assert (made.name, made.filter) == ("mine", SqlFilter("a = 1"))
        bad = first.replace("a = 1", "a = ")
        assert (await ask(world, "PUT", "/t/subscriptions/x", subscription(bad))).status == 400
        assert world.node.snapshot.find_subscription("t", "x") is None

    in_world(tmp_path, use)


def test_rules_of_every_kind_are_kept_with_the_types_of_their_values(tmp_path: Path) -> None:
    values = (
        value("s", "string", "x &lt; y") + value("i", "int", "-2")
        + value("l", "long", "5000000000") + value("b", "boolean", "true")
        + value("d", "double", "1.5") + value("t", "dateTime", "2020-01-02T03:04:05Z")
        + value("p", "duration", "PT5M")
    )  # fmt: skip
    typed = (
        ("s", "x < y"), ("i", Int(-2)), ("l", 5_000_000_000), ("b", True), ("d", 1.5),
        ("t", Timestamp(1_577_934_245_000)),
        ("p", Described(Symbol("com.microsoft:timespan"), 3_000_000_000)),
    )  # fmt: skip
    made = {
        "yes": (rule("TrueFilter"), TrueFilter()),
        "no": (rule("FalseFilter"), FalseFilter()),
        "sql": (
            rule("SqlFilter", "<SqlExpression>a = @b</SqlExpression><Parameters>"
                 + value("@b", "int", "1") + "</Parameters>"),
            SqlFilter("a = @b", (("@b", Int(1)),)),
        ),
        "same": (
            rule("CorrelationFilter", f"<Label>x</Label><Properties>{values}</Properties>"),
            CorrelationFilter(label="x", properties=typed),
        ),
    }  # fmt: skip

    async def use(world: World) -> None:
        await with_subscription(world)
        for name, (body, _) in made.items():
            answer = await ask(world, "PUT", f"/t/subscriptions/s/rules/{name}", body)
            assert answer.status == 201, answer.body
        subscribed = world.node.snapshot.find_subscription("t", "s")
        assert subscribed is not None
        kept = {each.name: each for each in world.node.snapshot.rules_of_subscription(subscribed)}
        for name, (_, expected) in made.items():
            assert kept[name].filter == expected
        text = (await ask(world, "GET", "/t/subscriptions/s/rules/same")).body
        # What is written can be sent back, and means the same.
        again = await ask(world, "PUT", "/t/subscriptions/s/rules/again", text.encode())
        assert again.status == 201, again.body
        subscribed = world.node.snapshot.find_subscription("t", "s")
        assert subscribed is not None
        rules = world.node.snapshot.rules_of_subscription(subscribed)
        assert rules[-1].filter == kept["same"].filter
        # The literal prefixes that the JavaScript client looks for.
        assert 'i:type="d6p1:string"' in text
        yes = (await ask(world, "GET", "/t/subscriptions/s/rules/yes")).body
        assert "<SqlExpression>1=1</SqlExpression>" in yes

    in_world(tmp_path, use)


def test_a_rule_is_replaced_listed_and_removed(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await with_subscription(world)
        path = "/t/subscriptions/s/rules/r"
        action = '<Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>'
        made = await ask(world, "PUT", path, rule("TrueFilter", action=action))
        assert (made.status, "SET a = 1" in made.body) == (201, True)
        assert (await ask(world, "PUT", path, rule("TrueFilter"))).status == 409
        changed = await ask(world, "PUT", path, rule("FalseFilter"), **UPDATE)
        assert (changed.status, "SET a = 1" in changed.body) == (200, False)
        assert (await ask(world, "GET", "/t/subscriptions/s/rules")).titles == ["$Default", "r"]
        assert (await ask(world, "DELETE", "/t/subscriptions/s/rules/$Default")).status == 200
        assert (await ask(world, "GET", "/t/subscriptions/s/rules")).titles == ["r"]
        for method in ("GET", "DELETE"):
            missing = await ask(world, method, "/t/subscriptions/s/rules/none")
            assert missing.status == 404
        assert (await ask(world, "PUT", "/t/subscriptions/none/rules/r", rule("x"))).status == 404

    in_world(tmp_path, use)


@pytest.mark.parametrize(
    "body",
    [
        rule("OtherFilter"),
        rule("SqlFilter", "<SqlExpression></SqlExpression>"),
        rule("SqlFilter", "<SqlExpression>a = </SqlExpression>"),
        rule("SqlFilter", f"<SqlExpression>{'a' * 1025}</SqlExpression>"),
        rule("CorrelationFilter"),
        rule("CorrelationFilter", f"<Properties>{value('a', 'int', 'x')}</Properties>"),
        rule("CorrelationFilter", f"<Properties>{value('a', 'int', '3000000000')}</Properties>"),
        rule("CorrelationFilter", f"<Properties>{value('a', 'thing', '1')}</Properties>"),
        rule("CorrelationFilter", f"<Properties>{value('a', 'dateTime', 'now')}</Properties>"),
        rule("CorrelationFilter", f"<Properties>{value('', 'int', '1')}</Properties>"),
        rule("CorrelationFilter", f"<Properties>{value('a', 'int', '1') * 65}</Properties>"),
        rule("TrueFilter", action='<Action i:type="OtherAction"/>'),
        rule("TrueFilter", action='<Action i:type="SqlRuleAction"/>'),
    ],
)
def test_a_rule_that_is_none_is_refused(body: bytes, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await with_subscription(world)
        refused = await ask(world, "PUT", "/t/subscriptions/s/rules/r", body)
        assert (refused.status, refused.detail[:13]) == (400, "SubCode=40000"), refused.body
        assert (await ask(world, "GET", "/t/subscriptions/s/rules")).titles == ["$Default"]

    in_world(tmp_path, use)
