"""Queues and topics over HTTP, as curl would do them, good and bad (A2, M1, M2, P5 to P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.management.atom.bodies import BODY_BYTES_MAX
from partibus.management.atom.description_xml import ORDER, SERVICE
from partibus.testing.atom_client import Answer, ask, entry, queue
from partibus.testing.http_world import KEY, World, in_world

UPDATE = {"If_Match": "*"}
Use = Callable[[World], Awaitable[None]]


def rule(name: str, *rights: str, primary: str = "a2V5", secondary: str = "") -> str:
    claims = "".join(f"<AccessRights>{each}</AccessRights>" for each in rights)
    keys = f"<PrimaryKey>{primary}</PrimaryKey><SecondaryKey>{secondary}</SecondaryKey>"
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        f"<Rights>{claims}</Rights><KeyName>{name}</KeyName>{keys}</AuthorizationRule>"
    )


def rules(*each: str) -> str:
    return f"<AuthorizationRules>{''.join(each)}</AuthorizationRules>"


def test_M4_a_queue_is_made_found_changed_and_deleted(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        made = await ask(world, "PUT", "/orders", queue(LockDuration="PT30S"))
        assert made.status == 201
        assert made.headers["content-type"] == "application/atom+xml;type=entry;charset=utf-8"
        assert "etag" not in made.headers
        assert (made.description["LockDuration"], made.description["MaxDeliveryCount"]) == (
            "PT30S",
            "10",
        )
        assert {"AccessedAt", "CountDetails"}.isdisjoint(made.description)
        assert world.node.resolve("ORDERS")[0].description.lock_ms == 30_000

        found = await ask(world, "GET", "/Orders")
        assert (found.status, found.root.text_of("title")) == (200, "orders")
        assert "CountDetails" in found.description
        identity = found.root.text_of("id") or ""
        assert identity == "http://test/orders?api-version=2024-05"

        changed = await ask(world, "PUT", "/orders", queue(MaxDeliveryCount=3), **UPDATE)
        assert (changed.status, changed.root.child("published")) == (200, None)
        # What was not named stayed.
        assert (changed.description["MaxDeliveryCount"], changed.description["LockDuration"]) == (
            "3",
            "PT30S",
        )

        gone = await ask(world, "DELETE", "/orders")
        assert (gone.status, gone.body) == (200, "")
        missing = await ask(world, "GET", "/orders")
        assert (missing.status, missing.root.name) == (200, "feed")
        assert missing.root.text_of("title") == "Publicly Listed Services"

    in_world(tmp_path, use)


def test_elements_come_in_their_order_and_each_version_has_its_own(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for path, kind in (("/q", QueueDescription), ("/t", TopicDescription)):
            await ask(world, "PUT", path, entry(kind.__name__, UserMetadata="x"))
            newest = list((await ask(world, "GET", path)).description)
            assert newest == [name for name in ORDER[kind] if name in newest]
            older = (await ask(world, "GET", path, version="2017-04")).description
            assert "MaxMessageSizeInKilobytes" in newest
            assert "MaxMessageSizeInKilobytes" not in older
            assert "EnablePartitioning" in older
            oldest = (await ask(world, "GET", path, version="2012-03")).description
            assert {"EnablePartitioning", "EntityAvailabilityStatus"}.isdisjoint(oldest)
            # Missing, and unknown, is 2017-04.
            for version in (None, "latest"):
                assert list((await ask(world, "GET", path, version=version)).description) == list(
                    older
                )

    in_world(tmp_path, use)


# All that clients were ever made for, with what came with each.
VERSIONS = {
    "2013-10": {"EnablePartitioning", "EntityAvailabilityStatus"},
    "2014-05": set(),
    "2015-01": set(),
    "2016-07": set(),
    "2017-04": set(),
    "2021-05": {"MaxMessageSizeInKilobytes", "IsClientAffine"},
    "2024-05": {"SqlFilterCount", "CorrelationFilterCount"},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_A2_every_version_makes_changes_and_shows_what_it_knows(
    version: str, tmp_path: Path
) -> None:
    later = set().union(*(each for name, each in VERSIONS.items() if name > version))
    places = {
        "/q": QueueDescription,
        "/t": TopicDescription,
        "/t/subscriptions/s": SubscriptionDescription,
    }

    async def use(world: World) -> None:
        for path, kind in places.items():
            name = kind.__name__
            made = await ask(world, "PUT", path, entry(name, UserMetadata="x"), version=version)
            assert made.status == 201, made.detail
            found = await ask(world, "GET", path, version=version)
            known = [each for each in ORDER[kind] if each not in later]
            assert list(found.description) == [each for each in known if each in found.description]
            # What is shown can be sent back as it is, with one thing changed.
            body = found.body.replace("<UserMetadata>x<", "<UserMetadata>y<").encode()
            changed = await ask(world, "PUT", path, body, version=version, **UPDATE)
            assert changed.status == 200, changed.detail
            assert changed.description["UserMetadata"] == "y"
            # What came later is no part of it; where it was shown, it would be refused.
            if "MaxMessageSizeInKilobytes" in later and kind is QueueDescription:
                asked = entry(name, MaxMessageSizeInKilobytes="256")
                refused = await ask(world, "PUT", "/late", asked, version=version)
                assert (refused.status, "2021-05" in refused.detail) == (400, True)
        assert (await ask(world, "GET", "/$Resources/queues", version=version)).titles == ["q"]
        rules = await ask(world, "GET", "/t/subscriptions/s/rules", version=version)
        assert rules.titles == ["$Default"]
        for path in reversed(places):
            assert (await ask(world, "DELETE", path, version=version)).status == 200

    in_world(tmp_path, use)


def test_P8_partitioning_needs_a_version_that_knows_it(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        body = queue(EnablePartitioning="true")
        refused = await ask(world, "PUT", "/old", body, version="2013-08")
        assert refused.status == 400
        assert "EnablePartitioning: needs api-version 2013-10 or later" in refused.detail
        assert world.catalog.load().find("old") is None
        unasked = queue(EnablePartitioning="false")
        assert (await ask(world, "PUT", "/plain", unasked, version="2013-08")).status == 201
        assert (await ask(world, "PUT", "/new", body, version="2013-10")).status == 201
        assert (await ask(world, "PUT", "/missing", body, version=None)).status == 201

    in_world(tmp_path, use)


def test_P6_the_size_is_reported_sixteenfold_and_may_be_sent_back_so(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        body = queue(EnablePartitioning="true", MaxSizeInMegabytes=5120)
        made = await ask(world, "PUT", "/q", body)
        assert made.description["MaxSizeInMegabytes"] == "81920"
        back = queue(MaxSizeInMegabytes=81920, UserMetadata="x")
        assert (await ask(world, "PUT", "/q", back, **UPDATE)).status == 200
        assert world.node.resolve("q")[0].description.max_size_mb == 5120

    in_world(tmp_path, use)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LockDuration", "PT4S"), ("LockDuration", "PT6M"), ("LockDuration", "a minute"),
        ("LockDuration", ""), ("MaxDeliveryCount", "0"), ("MaxDeliveryCount", "many"),
        ("MaxDeliveryCount", "9" * 5000), ("DefaultMessageTimeToLive", "PT0.5S"),
        ("AutoDeleteOnIdle", "PT4M"), ("DuplicateDetectionHistoryTimeWindow", "P8D"),
        ("DuplicateDetectionHistoryTimeWindow", "PT19S"), ("MaxSizeInMegabytes", "1000"),
        ("MaxMessageSizeInKilobytes", "1024"), ("UserMetadata", "x" * 1025),
        ("EnablePartitioning", "yes"), ("RequiresSession", ""), ("Status", "Deleting"),
        ("ForwardTo", "not there"), ("ForwardTo", "missing"), ("ForwardTo", "bad"),
    ],
)  # fmt: skip
def test_A2_a_bad_value_is_refused_by_name_and_nothing_is_made(
    name: str, value: str, tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        refused = await ask(world, "PUT", "/bad", queue(**{name: value}))
        assert refused.status == 400
        assert refused.detail.startswith(f"SubCode=40000. {name}: ")
        assert world.catalog.load().find("bad") is None

    in_world(tmp_path, use)


def test_P5_what_cannot_change_is_refused_by_name(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await ask(world, "PUT", "/q", queue())
        for name in ("EnablePartitioning", "RequiresSession", "RequiresDuplicateDetection"):
            body = queue(**{name: "true", "UserMetadata": "changed"})
            refused = await ask(world, "PUT", "/q", body, **UPDATE)
            assert refused.status == 400
            assert f"{name}: True is not allowed" in refused.detail
        assert world.node.resolve("q")[0].description.user_metadata == ""

    in_world(tmp_path, use)


def test_names_are_checked_shared_and_may_have_slashes(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert (await ask(world, "PUT", "/a%2Fb", queue())).status == 201
        assert (await ask(world, "GET", "/a/b")).root.text_of("title") == "a/b"
        taken = await ask(world, "PUT", "/A/B", entry("TopicDescription"))
        assert (taken.status, taken.detail[:13]) == (409, "SubCode=40900")
        for path in ("/", "/x%20y", "/x%00y", "/a%2F..%2Fb", "/x@y", "/" + "x" * 261):
            assert (await ask(world, "PUT", path, queue())).status == 400
        assert (await ask(world, "PUT", "/$own", queue())).status == 404
        assert (await ask(world, "GET", "/" + "x" * 2000)).status == 400
        missing = await ask(world, "PUT", "/none", queue(), **UPDATE)
        assert (missing.status, missing.detail[:13]) == (404, "SubCode=40400")
        assert (await ask(world, "DELETE", "/none")).status == 404
        assert (await ask(world, "PATCH", "/a/b")).status == 405
        # A queue is not updated as a topic.
        assert (await ask(world, "PUT", "/a/b", entry("TopicDescription"), **UPDATE)).status == 404

    in_world(tmp_path, use)


def test_who_saw_an_older_state_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await ask(world, "PUT", "/q", queue())
        seen = (await ask(world, "GET", "/q")).headers["etag"]
        await asyncio.sleep(0.002)
        assert (await ask(world, "PUT", "/q", queue(), If_Match=seen)).status == 200
        assert (await ask(world, "PUT", "/q", queue(), If_Match=seen)).status == 412
        assert (await ask(world, "DELETE", "/q", If_Match=seen)).status == 412

    in_world(tmp_path, use)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not xml", 400),
        (b"<entry/>", 400),
        (queue() + b"x", 400),
        (entry("RuleDescription"), 400),
        (b'<!DOCTYPE x [<!ENTITY e "e">]>' + queue(), 400),
        (b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><entry>&e;</entry>', 400),
        (queue(UserMetadata="x" * BODY_BYTES_MAX), 413),
        (queue().decode().encode("utf-16"), 201),
        (f'<QueueDescription xmlns="{SERVICE}"/>'.encode(), 201),
    ],
)  # fmt: skip
def test_A2_bodies_are_read_with_care(body: bytes, status: int, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        answer = await ask(world, "PUT", "/q", body)
        assert answer.status == status, answer.body
        assert (world.catalog.load().find("q") is not None) == (status == 201)

    in_world(tmp_path, use)


def test_A4_management_needs_the_right_to_manage(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await ask(world, "PUT", "/q", queue())
        world.catalog.put_access_rule(AccessRule("user", KEY, "", Right.SEND | Right.LISTEN))
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "q")
        user, own = world.token(rule="user"), world.token("q", "own")
        paths = ("/q", "/$namespaceinfo", "/$Resources/queues", "/q/subscriptions")
        for path in paths:
            assert (await ask(world, "GET", path, Authorization=user)).status == 401
            assert Answer(*await world.ask("GET", path)).status == 401
        assert (await ask(world, "GET", "/q", Authorization=own)).status == 200
        for path in ("/$Resources/queues", "/$namespaceinfo", "/other", "/q/below"):
            assert (await ask(world, "GET", path, Authorization=own)).status == 401
        assert (await ask(world, "PUT", "/q/below", queue(), Authorization=own)).status == 401
        assert (await ask(world, "DELETE", "/q", Authorization=user)).status == 401
        assert (await ask(world, "DELETE", "/q", Authorization=own)).status == 200

    in_world(tmp_path, use)


def test_A4_a_token_for_the_whole_url_of_a_request_opens_it(tmp_path: Path) -> None:
    """As the clients for JavaScript and Go sign them."""

    async def use(world: World) -> None:
        await ask(world, "PUT", "/t", entry("TopicDescription"))
        await ask(world, "PUT", "/t/subscriptions/s", entry("SubscriptionDescription"))
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "t")
        below = ("/t", "/t/subscriptions", "/t/Subscriptions/s/rules/$Default")
        for path in (*below, "/$Resources/topics", "/$namespaceinfo"):
            whole = world.token(f"{path[1:].lower()}?api-version=2024-05")
            assert (await ask(world, "GET", path, Authorization=whole)).status == 200
            other = world.token("other?api-version=2024-05")
            assert (await ask(world, "GET", path, Authorization=other)).status == 401
        for path in below:
            own = world.token(f"{path[1:].lower()}?api-version=2024-05", "own")
            assert (await ask(world, "GET", path, Authorization=own)).status == 200

    in_world(tmp_path, use)


def test_access_rules_in_a_description_replace_all_that_were_there(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        both = rules(rule("one", "Send"), rule("two", "Manage", "Send", "Listen", secondary="bw=="))
        made = await ask(world, "PUT", "/q", queue(both))
        assert made.status == 201
        assert (await ask(world, "GET", "/q", Authorization=world.token("q", "two", "a2V5"))).status
        one, two = sorted(world.node.snapshot.rules_of(world.node.resolve("q")[0]), key=str)
        assert (one.rights, one.primary_key, len(one.secondary_key)) == (Right.SEND, "a2V5", 44)
        assert (two.rights, two.secondary_key) == (~Right(0), "bw==")
        # Not said: kept. Said without keys: the keys are kept. Said as none: none.
        await ask(world, "PUT", "/q", queue(), **UPDATE)
        assert len(world.node.snapshot.rules_of(world.node.resolve("q")[0])) == 2
        await ask(world, "PUT", "/q", queue(rules(rule("one", "Listen", primary=""))), **UPDATE)
        (kept,) = world.node.snapshot.rules_of(world.node.resolve("q")[0])
        assert (kept.rights, kept.primary_key) == (Right.LISTEN, "a2V5")
        await ask(world, "PUT", "/q", queue(rules()), **UPDATE)
        assert world.node.snapshot.rules_of(world.node.resolve("q")[0]) == ()

    in_world(tmp_path, use)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (rules(rule("x", "Manage")), 400),
        (rules(rule("x")), 400),
        (rules(rule("x/y", "Send")), 400),
        (rules(rule("x", "Send", primary="no key")), 400),
        (rules(*(rule(f"r{n}", "Send") for n in range(13))), 403),
    ],
)
def test_M1_a_bad_access_rule_makes_no_queue(given: str, status: int, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert (await ask(world, "PUT", "/q", queue(given))).status == status
        assert world.catalog.load().find("q") is None

    in_world(tmp_path, use)


def test_P9_over_a_quota_nothing_is_made_and_the_error_says_so(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        body = queue(EnablePartitioning="true")
        answers = [await ask(world, "PUT", f"/q{number}", body) for number in range(101)]
        assert [each.status for each in answers] == [201] * 100 + [403]
        assert answers[-1].detail.startswith("SubCode=40300. The namespace has 100 entities with")

    in_world(tmp_path, use)


def test_forwarding_needs_send_on_a_target_that_exists(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for name in ("source", "target"):
            await ask(world, "PUT", f"/{name}", queue())
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "source")
        world.catalog.put_access_rule(AccessRule("in", KEY, "", Right.SEND), "target")
        body = queue(ForwardTo="sb://anything/target")
        own, into = world.token("source", "own"), world.token("target", "in")

        async def forward(**headers: str) -> int:
            return (await ask(world, "PUT", "/source", body, **UPDATE, **headers)).status

        assert await forward(Authorization=own) == 401
        shown = {"ServiceBusSupplementaryAuthorization": into}
        assert await forward(Authorization=own, **shown) == 200
        assert await forward() == 200
        found = (await ask(world, "GET", "/source")).description["ForwardTo"]
        assert found == "sb://test/target"
        itself = await ask(world, "PUT", "/source", queue(ForwardTo="source"), **UPDATE)
        assert (itself.status, "another entity" in itself.detail) == (400, True)

    in_world(tmp_path, use)
