"""The catalog at one moment: what nodes know of the namespace until it changes.

A snapshot never changes; the next version is another one, which shares with this one what stayed
the same. Reading one from the catalog's rows is here, changing the rows is in catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import Description, Entity, QueueDescription, read_stored
from partibus.broker.limits import with_limits
from partibus.broker.names import name_key, subscription_path
from partibus.broker.profiles import Profile, profile_of
from partibus.broker.rule_descriptions import RuleDescription, read_rule
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.store.catalog_file import CatalogFile

# The scope of the namespace's own access rules; those of an entity stand under its id.
NAMESPACE = 0

KINDS: dict[str, type[Description]] = {
    kind.KIND: kind for kind in (QueueDescription, TopicDescription, SubscriptionDescription)
}

_ENTITY_ROWS = (
    "SELECT id, incarnation, name, description, fragments, home, created_ms, updated_ms, kind,"
    " topic, deleted_ms FROM entity "
)
_RULE_ROWS = (
    "SELECT subscription, rule.name, rule.description, rule.created_ms FROM rule"
    " JOIN entity ON entity.id = subscription AND changed > ? ORDER BY subscription, rule.number"
)


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """What holds for the namespace as a whole. Id and number of stores never change."""

    name: str
    stores: int
    profile_name: str
    premium_fragments: int | None = None
    # Tells this namespace from another one of the same name.
    namespace_id: str = ""
    # 0: before this was kept.
    created_ms: int = 0
    # What differs from the profile, by the names in configuration files.
    limits: Mapping[str, object] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        """The limits of the namespace."""
        return with_limits(profile_of(self.profile_name, self.premium_fragments), self.limits)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole catalog at one version. Never changes; the next version is another snapshot."""

    version: int
    settings: NamespaceSettings
    # By name_key(name), and by id; subscriptions by their paths (broker.names).
    entities: Mapping[str, Entity]
    by_id: Mapping[int, Entity]
    # By the entity's id; those of the namespace under NAMESPACE.
    rules: Mapping[int, tuple[AccessRule, ...]]
    # (id, incarnation) of entities whose fragments nobody needs any more.
    deleted: frozenset[tuple[int, int]] = frozenset()
    rules_version: int = field(default=-1, repr=False)
    # By the topic's id: the ids of its subscriptions. By a subscription's id: its rules.
    subscriptions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    subscription_rules: Mapping[int, tuple[RuleDescription, ...]] = field(default_factory=dict)

    def find(self, name: str) -> Entity | None:
        """The entity of this name, in whatever case."""
        return self.entities.get(name_key(name))

    def find_subscription(self, topic: str, name: str) -> Entity | None:
        """The subscription of this name, of the topic of that name."""
        found = self.find(subscription_path(topic, name))
        return found if found is not None and found.topic else None

    def rules_of(self, entity: Entity | None = None) -> tuple[AccessRule, ...]:
        """The access rules that stand on an entity, or on the namespace."""
        return self.rules.get(entity.id if entity else NAMESPACE, ())

    def subscriptions_of(self, topic: Entity) -> list[Entity]:
        """The subscriptions of a topic, the oldest first."""
        return [self.by_id[each] for each in self.subscriptions.get(topic.id, ())]

    def rules_of_subscription(self, subscription: Entity) -> tuple[RuleDescription, ...]:
        """The rules by which a subscription chooses its messages, the oldest first."""
        return self.subscription_rules.get(subscription.id, ())


def living_entity(file: CatalogFile, name: str) -> Entity | None:
    """The entity that has this name now."""
    found = file.rows(_ENTITY_ROWS + "WHERE key = ? AND deleted_ms = 0", (name_key(name),))
    return _entity(found[0]) if found else None


def read_snapshot(
    file: CatalogFile,
    old: Snapshot | None,
    version: int,
    rules_version: int,
    settings: NamespaceSettings,
) -> Snapshot:
    """The catalog as it is now, with what has changed since the old snapshot."""
    entities = dict(old.entities) if old else {}
    by_id = dict(old.by_id) if old else {}
    deleted = set(old.deleted) if old else set()
    rules = dict(old.subscription_rules) if old else {}
    topics: set[int] = set()
    # Only what changed since: a namespace may have ten thousand entities. In the order of
    # changes, so that a name made again comes after the death of its former owner.
    since = old.version if old else 0
    for row in file.rows(_ENTITY_ROWS + "WHERE changed > ? ORDER BY changed, id", (since,)):
        entity = _entity(row)
        topics.add(entity.topic)
        rules.pop(entity.id, None)
        known = by_id.pop(entity.id, None)
        # Under its former name there may be another entity by now.
        if known is not None and entities.get(known.key) is known:
            del entities[known.key]
        if row[-1]:
            deleted.add((entity.id, entity.incarnation))
        else:
            if entity.topic:
                entity = _of_topic(entity, by_id[entity.topic])
            entities[entity.key] = by_id[entity.id] = entity
    for subscription, name, text, created_ms in file.rows(_RULE_ROWS, (since,)):
        rule = read_rule(name, json.loads(text), created_ms)
        rules[subscription] = (*rules.get(subscription, ()), rule)
    is_same = old is not None and old.rules_version == rules_version
    return Snapshot(
        version=version,
        settings=settings,
        entities=MappingProxyType(entities),
        by_id=MappingProxyType(by_id),
        rules=old.rules if old is not None and is_same else _read_access_rules(file),
        deleted=frozenset(deleted),
        rules_version=rules_version,
        subscriptions=_subscriptions(old, by_id, topics),
        subscription_rules=MappingProxyType(rules),
    )


def _of_topic(subscription: Entity, topic: Entity) -> Entity:
    """The subscription with what its topic decides for it."""
    size = topic.description.max_message_bytes
    return replace(
        subscription, description=replace(subscription.description, max_message_bytes=size)
    )


def _subscriptions(
    old: Snapshot | None, by_id: Mapping[int, Entity], topics: set[int]
) -> Mapping[int, tuple[int, ...]]:
    """The subscriptions of each topic, where those of these topics may have changed."""
    topics.discard(0)
    if not topics:
        return old.subscriptions if old else MappingProxyType({})
    found: dict[int, list[int]] = {topic: [] for topic in topics}
    for entity in by_id.values():
        if entity.topic in found:
            found[entity.topic].append(entity.id)
    changed = {topic: tuple(sorted(ids)) for topic, ids in found.items()}
    merged = (dict(old.subscriptions) if old else {}) | changed
    return MappingProxyType({topic: ids for topic, ids in merged.items() if ids})


def _read_access_rules(file: CatalogFile) -> Mapping[int, tuple[AccessRule, ...]]:
    rules: dict[int, tuple[AccessRule, ...]] = {}
    query = "SELECT scope, name, primary_key, secondary_key, rights FROM access_rule"
    for scope, name, primary, secondary, rights in file.rows(query):
        rule = AccessRule(name, primary, secondary, _read_rights(rights))
        rules[scope] = (*rules.get(scope, ()), rule)
    return MappingProxyType(rules)


def _entity(row: tuple[Any, ...]) -> Entity:
    entity_id, incarnation, name, text, fragments, home, created_ms, updated_ms, kind = row[:9]
    description = read_stored(KINDS[kind], name, json.loads(text))
    return Entity(
        entity_id, incarnation, name, description, fragments, home, created_ms, updated_ms, row[9]
    )


def _read_rights(text: str) -> Right:
    rights = Right(0)
    for name in text.split(","):
        rights |= Right[name]
    return rights
