"""Rules of subscriptions over HTTP: create, get, replace and delete."""

from __future__ import annotations

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound
from partibus.broker.names import name_key
from partibus.broker.rule_descriptions import RuleDescription
from partibus.management.atom import subscriptions
from partibus.management.atom.bodies import is_update, read_description
from partibus.management.atom.documents import Entry, entry_answer
from partibus.management.atom.paths import Target
from partibus.management.atom.rule_xml import read_rule, write_rule
from partibus.management.calls import Call
from partibus.store.catalog import Catalog


async def put(call: Call, target: Target) -> Response:
    """Add a rule, or give one that exists another filter and action (If-Match)."""
    call.require(Right.MANAGE, target.path)
    subscriptions.existing(call, target)
    rule = read_rule(await read_description(call, ("RuleDescription",)), target.rule)
    topic, name = target.entity, target.subscription
    now_ms = call.node.clock.now_ms()
    updating = is_update(call)

    def change(catalog: Catalog) -> None:
        write = catalog.update_rule if updating else catalog.create_rule
        write(topic, name, rule, now_ms)

    await call.node.changes.make(change)
    subscription = subscriptions.existing(call, target)
    entry = rule_entry(subscription, _existing(call, subscription, target))
    return entry_answer(call, entry, 200 if updating else 201)


async def get(call: Call, target: Target) -> Response:
    """One rule."""
    call.require(Right.MANAGE, target.path)
    subscription = subscriptions.existing(call, target)
    return entry_answer(call, rule_entry(subscription, _existing(call, subscription, target)))


async def delete(call: Call, target: Target) -> Response:
    """Remove a rule."""
    call.require(Right.MANAGE, target.path)
    subscriptions.existing(call, target)
    now_ms = call.node.clock.now_ms()
    topic, name, rule = target.entity, target.subscription, target.rule
    await call.node.changes.make(lambda catalog: catalog.delete_rule(topic, name, rule, now_ms))
    return Response()


def _existing(call: Call, subscription: Entity, target: Target) -> RuleDescription:
    for rule in call.node.snapshot.rules_of_subscription(subscription):
        if rule.key == name_key(target.rule):
            return rule
    namespace = call.service.settings.namespace
    path = f"{target.entity}|{target.subscription}|{target.rule}"
    raise EntityNotFound(f"Entity '{namespace}:Topic:{path}' was not found.")


def rule_entry(subscription: Entity, rule: RuleDescription) -> Entry:
    """What a rule is answered with."""
    path = f"{subscription.name}/Rules/{rule.name}"
    return Entry(path, rule.name, write_rule(rule), rule.created_ms, rule.created_ms)
