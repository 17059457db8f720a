"""What a token grants: rules of the namespace and of the entity it is shown for (A4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import Unauthorized
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.runtime.granting import check_grant, entity_at, is_revoked
from partibus.testing.http_world import KEY, World, in_world


def test_A4_a_rule_of_an_entity_grants_on_it_and_its_parts_only(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for name in ("q", "other"):
            world.catalog.create_queue(QueueDescription(name), 0)
        world.catalog.put_access_rule(AccessRule("own", KEY, "", Right.SEND), "q")
        now_ms = world.node.clock.now_ms()
        for path in ("q", "q/$management", "q/$deadletterqueue"):
            grant = check_grant(world.node, world.token("q", "own"), path, now_ms, dev=False)
            assert (grant.path, grant.rights) == (path, Right.SEND)
        with pytest.raises(Unauthorized, match="InvalidSignature"):
            check_grant(world.node, world.token("other", "own"), "other", now_ms, dev=False)

    in_world(tmp_path, use)


def test_the_emulators_key_is_good_in_development_only(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        token = world.token(key="SAS_KEY_VALUE")
        now_ms = world.node.clock.now_ms()
        assert check_grant(world.node, token, "any", now_ms, dev=True).rights == ~Right(0)
        with pytest.raises(Unauthorized):
            check_grant(world.node, token, "any", now_ms, dev=False)

    in_world(tmp_path, use)


def test_the_namespace_is_no_entity(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert entity_at(world.node, "") is None
        assert entity_at(world.node, "$namespaceinfo") is None
        assert entity_at(world.node, "missing") is None

    in_world(tmp_path, use)


def test_A4_a_rule_of_a_topic_opens_its_subscriptions_and_no_other_topics(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for name in ("t", "t2"):
            world.catalog.create_topic(TopicDescription(name), 0)
            world.catalog.create_subscription(name, SubscriptionDescription("s"), 0)
        world.catalog.put_access_rule(AccessRule("own", KEY, "", Right.LISTEN), "t")
        now_ms = world.node.clock.now_ms()
        for path in ("t", "t/subscriptions/s", "t/subscriptions/s/$deadletterqueue"):
            for signed in ("t", path):
                grant = check_grant(world.node, world.token(signed, "own"), path, now_ms, dev=False)
                assert (grant.path, grant.rights) == (path, Right.LISTEN)
                assert not is_revoked(world.node, grant, dev=False)
        for path in ("t2", "t2/subscriptions/s"):
            with pytest.raises(Unauthorized):
                check_grant(world.node, world.token(path, "own"), path, now_ms, dev=False)

    in_world(tmp_path, use)
