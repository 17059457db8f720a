"""Subscriptions over HTTP: create with their first rule, get, update and delete."""

from __future__ import annotations

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound
from partibus.broker.names import DEFAULT_RULE, subscription_name
from partibus.broker.topics import SubscriptionDescription, read_subscription
from partibus.management.atom.bodies import check_match, is_update, read_description
from partibus.management.atom.description_xml import read_properties, write_entity
from partibus.management.atom.documents import Entry, entry_answer, host_of, version_of
from partibus.management.atom.forwarding import check_targets
from partibus.management.atom.paths import Target
from partibus.management.atom.rule_xml import read_rule
from partibus.management.calls import Call
from partibus.runtime.counting import EntityCounts, count
from partibus.store.catalog import Catalog


async def put(call: Call, target: Target) -> Response:
    """Create a subscription, or change one that exists (If-Match)."""
    call.require(Right.MANAGE, target.path)
    topic_of(call, target)
    element = await read_description(call, ("SubscriptionDescription",))
    properties = read_properties(element, SubscriptionDescription, version_of(call))
    check_targets(call, target.path, properties)
    given = element.child("DefaultRuleDescription")
    rules = None
    if given is not None and not given.is_nil:
        rules = (read_rule(given, given.text_of("Name") or DEFAULT_RULE),)
    node, topic, name = call.node, target.entity, target.subscription
    now_ms = node.clock.now_ms()

    def create(catalog: Catalog) -> None:
        profile = catalog.load().settings.profile
        description = read_subscription(topic, name, properties, profile)
        catalog.create_subscription(topic, description, now_ms, rules)

    def update(catalog: Catalog) -> None:
        before = catalog.load().find_subscription(topic, name)
        if before is None:
            raise not_found(call, target)
        check_match(call, before.updated_ms)
        catalog.update_subscription(topic, name, properties, now_ms)

    if is_update(call):
        await node.changes.make(update)
        entity = existing(call, target)
        (counts,) = await count(node, [entity])
        return entry_answer(call, entry_of(call, entity, counts, is_update=True))
    await node.changes.make(create)
    return entry_answer(call, entry_of(call, existing(call, target), None), 201)


async def get(call: Call, target: Target) -> Response:
    """One subscription, with its counts."""
    call.require(Right.MANAGE, target.path)
    entity = existing(call, target)
    (counts,) = await count(call.node, [entity])
    return entry_answer(call, entry_of(call, entity, counts))


async def delete(call: Call, target: Target) -> Response:
    """Delete a subscription with its rules and messages."""
    call.require(Right.MANAGE, target.path)
    now_ms = call.node.clock.now_ms()

    def change(catalog: Catalog) -> None:
        before = catalog.load().find_subscription(target.entity, target.subscription)
        if before is None:
            raise not_found(call, target)
        check_match(call, before.updated_ms)
        catalog.delete(before, now_ms)

    await call.node.changes.make(change)
    return Response()


def topic_of(call: Call, target: Target) -> Entity:
    """The topic that a request names."""
    call.node.refresh()
    topic = call.node.snapshot.find(target.entity)
    if topic is None or topic.kind != "topic":
        raise EntityNotFound(f"There is no topic named '{target.entity}'.")
    return topic


def existing(call: Call, target: Target) -> Entity:
    """The subscription that a request names."""
    call.node.refresh()
    found = call.node.snapshot.find_subscription(target.entity, target.subscription)
    if found is None:
        raise not_found(call, target)
    return found


def not_found(call: Call, target: Target) -> EntityNotFound:
    """In the words that clients know."""
    namespace = call.service.settings.namespace
    return EntityNotFound(
        f"Entity '{namespace}:Topic:{target.entity}|{target.subscription}' was not found."
    )


def entry_of(
    call: Call, entity: Entity, counts: EntityCounts | None, *, is_update: bool = False
) -> Entry:
    """What a subscription is answered with."""
    content = write_entity(entity, call.node.snapshot, version_of(call), host_of(call), counts)
    published_ms = None if is_update else entity.created_ms
    title = subscription_name(entity.name)
    return Entry(entity.name, title, content, entity.updated_ms, published_ms)
