"""Queues and topics over HTTP: create, get, update and delete, each all or nothing (M1).

The kind is what the body describes; names are shared by both. What must hold is checked where the
catalog is changed, in one transaction; here it is spelled out and told.
"""

from __future__ import annotations

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.descriptions import Description, Entity, QueueDescription, read_queue
from partibus.broker.errors import EntityNotFound
from partibus.broker.topics import TopicDescription, read_topic
from partibus.management.atom.access_xml import read_access_rules, replace_access_rules
from partibus.management.atom.bodies import check_match, is_update, read_description
from partibus.management.atom.description_xml import KINDS, read_properties, write_entity
from partibus.management.atom.documents import (
    Entry,
    entry_answer,
    host_of,
    nothing_listed,
    version_of,
)
from partibus.management.atom.forwarding import check_targets
from partibus.management.atom.paths import Target
from partibus.management.calls import Call
from partibus.management.refusals import NOT_HOSTED
from partibus.runtime.counting import EntityCounts, count
from partibus.runtime.serving import new_key
from partibus.store.catalog import Catalog


async def put(call: Call, target: Target) -> Response:
    """Create an entity, or change one that exists (If-Match)."""
    call.require(Right.MANAGE, target.path)
    element = await read_description(call, ("QueueDescription", "TopicDescription"))
    kind = KINDS[element.name]
    properties = read_properties(element, kind, version_of(call))
    rules = read_access_rules(element)
    check_targets(call, target.entity, properties)
    name, node = target.entity, call.node
    now_ms = node.clock.now_ms()
    is_topic = kind is TopicDescription

    def create(catalog: Catalog) -> None:
        profile = catalog.load().settings.profile
        if is_topic:
            catalog.create_topic(read_topic(name, properties, profile), now_ms)
        else:
            catalog.create_queue(read_queue(name, properties, profile), now_ms)
        replace_access_rules(catalog, name, rules, new_key)

    def update(catalog: Catalog) -> None:
        before = catalog.load().find(name)
        if before is None or not isinstance(before.description, kind):
            raise EntityNotFound(f"There is no {kind.KIND} named '{name}'.")
        check_match(call, before.updated_ms)
        change = catalog.update_topic if is_topic else catalog.update_queue
        change(name, properties, now_ms)
        replace_access_rules(catalog, name, rules, new_key)

    if is_update(call):
        await node.changes.make(update)
        return await _show(call, target, kind)
    await node.changes.make(create)
    return entry_answer(call, entry_of(call, existing(call, name, kind), None), 201)


async def _show(call: Call, target: Target, kind: type[Description]) -> Response:
    entity = existing(call, target.entity, kind)
    (counts,) = await count(call.node, [entity])
    return entry_answer(call, entry_of(call, entity, counts, is_update=True))


async def get(call: Call, target: Target) -> Response:
    """One entity, with its counts."""
    call.require(Right.MANAGE, target.path)
    call.node.refresh()
    entity = call.node.snapshot.find(target.entity)
    if entity is None or entity.topic:
        return nothing_listed(call, target.entity)
    (counts,) = await count(call.node, [entity])
    return entry_answer(call, entry_of(call, entity, counts))


async def delete(call: Call, target: Target) -> Response:
    """Delete an entity with everything in it."""
    call.require(Right.MANAGE, target.path)
    now_ms = call.node.clock.now_ms()

    def change(catalog: Catalog) -> None:
        entity = catalog.load().find(target.entity)
        if entity is None or entity.topic:
            raise EntityNotFound(NOT_HOSTED)
        check_match(call, entity.updated_ms)
        catalog.delete(entity, now_ms)

    await call.node.changes.make(change)
    return Response()


def existing(call: Call, name: str, kind: type[Description] = QueueDescription) -> Entity:
    """The entity of this name and kind, which may be gone again by now."""
    entity = call.node.snapshot.find(name)
    if entity is None or not isinstance(entity.description, kind):
        raise EntityNotFound(f"There is no {kind.KIND} named '{name}'.")
    return entity


def entry_of(
    call: Call, entity: Entity, counts: EntityCounts | None, *, is_update: bool = False
) -> Entry:
    """What a queue or topic is answered with."""
    content = write_entity(entity, call.node.snapshot, version_of(call), host_of(call), counts)
    published_ms = None if is_update else entity.created_ms
    return Entry(entity.name, entity.name, content, entity.updated_ms, published_ms, True)
