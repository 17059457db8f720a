"""The catalog: which entities exist, who has access, and what kind of namespace this is.

One file that every node may write, each change in one transaction that also raises the version,
so a change happens everywhere or nowhere and anyone can tell old knowledge from new. An entity's
fragments are not made here: their stores make them when the first message comes. Deleting leaves
a tombstone, and the space is taken back later. What the settings mean is the broker's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

from partibus.broker.access import ALL_RIGHTS, AccessRule
from partibus.broker.descriptions import (
    Description,
    Entity,
    QueueDescription,
    check_description,
    fragments_of,
    revise_description,
    write_description,
)
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from partibus.broker.names import (
    check_entity_name,
    check_subscription_name,
    name_key,
    subscription_name,
    subscription_path,
)
from partibus.broker.profiles import Profile
from partibus.broker.rule_descriptions import RuleDescription, default_rule
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.store.access_table import ACCESS_RULES_MAX, AccessTable
from partibus.store.catalog_file import CatalogFile
from partibus.store.renaming import rename, swap
from partibus.store.rule_table import RuleTable
from partibus.store.snapshot import (
    NAMESPACE,
    NamespaceSettings,
    Snapshot,
    living_entity,
    read_snapshot,
)

__all__ = ["ACCESS_RULES_MAX", "ROOT_RULE", "Catalog", "NamespaceSettings", "Snapshot"]

ROOT_RULE = "RootManageSharedAccessKey"

_COUNT_SUBSCRIPTIONS = "SELECT count(*) FROM entity WHERE topic = ? AND deleted_ms = 0"


class Catalog:
    """An open catalog. Every method blocks; changes are durable when they return."""

    __slots__ = ("_access", "_data_version", "_file", "_own_changes", "_rules", "_snapshot")

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._access = AccessTable(file)
        self._rules = RuleTable(file)
        self._snapshot: Snapshot | None = None
        self._data_version = self._own_changes = -1

    @classmethod
    def open(cls, path: Path) -> Catalog:
        """The catalog in this file, which must exist."""
        return cls(CatalogFile(path, create=False))

    @classmethod
    def make(cls, path: Path, settings: NamespaceSettings, new_key: Callable[[], str]) -> Catalog:
        """The catalog in this file; made with these settings and a root rule where missing."""
        catalog = cls(CatalogFile(path, create=True))
        with catalog._file.transaction():
            if not catalog._file.rows("SELECT 1 FROM setting LIMIT 1"):
                catalog._write_settings(settings)
                catalog._set("version", 1)
                catalog._set("rules_version", 1)
                root = AccessRule(ROOT_RULE, new_key(), new_key(), ALL_RIGHTS)
                catalog._access.put(NAMESPACE, root)
        return catalog

    def another(self) -> Catalog:
        """The same catalog on a connection of its own, for another thread."""
        return Catalog.open(self._file.path)

    def close(self) -> None:
        """Give the file up."""
        self._file.close()

    def changed(self) -> bool:
        """Whether load() would find something new. Cheap enough to ask several times a second."""
        if self._snapshot is None or self._file.data_version() != self._data_version:
            return True
        is_same = self._file.own_changes() == self._own_changes
        return not is_same and self._version() != self._snapshot.version

    def load(self) -> Snapshot:
        """The catalog as it is now; the same object as before where nothing changed."""
        if self._file.in_transaction:
            # What is seen now may yet be undone: it is not remembered.
            return self._read(self._snapshot)
        # Taken before reading: what changes meanwhile is then found by the next changed().
        self._data_version = self._file.data_version()
        self._own_changes = self._file.own_changes()
        with self._file.reading():
            self._snapshot = self._read(self._snapshot)
        return self._snapshot

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the changes inside one transaction: all of them happen, or none."""
        with self._file.transaction():
            yield

    def create_queue(self, description: QueueDescription, now_ms: int) -> int:
        """Make a queue; refused where the name is taken, a limit reached, a value not allowed."""
        return self._create(description, now_ms)

    def create_topic(self, description: TopicDescription, now_ms: int) -> int:
        """Make a topic; refused where the name is taken, a limit reached, a value not allowed."""
        return self._create(description, now_ms)

    def update_queue(self, name: str, properties: Mapping[str, object], now_ms: int) -> int:
        """Change the named properties of a queue; all others stay as they are."""
        return self._update(self._existing(name, QueueDescription), properties, now_ms)

    def update_topic(self, name: str, properties: Mapping[str, object], now_ms: int) -> int:
        """Change the named properties of a topic; all others stay as they are."""
        return self._update(self._existing(name, TopicDescription), properties, now_ms)

    def delete_queue(self, name: str, now_ms: int) -> int:
        """Delete a queue with all its messages and access rules."""
        return self._delete(self._existing(name, QueueDescription), now_ms)

    def delete_topic(self, name: str, now_ms: int) -> int:
        """Delete a topic with its subscriptions and everything in them."""
        return self._delete(self._existing(name, TopicDescription), now_ms)

    def delete(self, entity: Entity, now_ms: int) -> int:
        """Delete an entity of any kind, with everything in it; refused where it is gone."""
        return self._delete(self._existing(entity.name, type(entity.description)), now_ms)

    def rename(self, name: str, new_name: str, now_ms: int) -> int:
        """Give a queue or topic another name; refused where it is taken or somebody forwards."""
        with self._changing() as version:
            rename(self._file, self.load(), self._named(name), new_name, (now_ms, version))
            return version

    def swap(self, name: str, other: str, now_ms: int) -> int:
        """Exchange the names of two queues or two topics; access rules stay with the names."""
        with self._changing() as version:
            swap(self._file, self._named(name), self._named(other), (now_ms, version))
            self._set("rules_version", version)
            return version

    def create_subscription(
        self,
        topic: str,
        description: SubscriptionDescription,
        now_ms: int,
        rules: tuple[RuleDescription, ...] | None = None,
    ) -> int:
        """Make a subscription with these rules; with one for every message where none are said."""
        with self._changing() as version:
            owner = self._existing(topic, TopicDescription)
            own_name = check_subscription_name(subscription_name(description.name))
            name = subscription_path(owner.name, own_name)
            profile = self._settings().profile
            check_description(description, profile)
            self._check_free(name)
            most = profile.subscriptions_max
            ((count,),) = self._file.rows(_COUNT_SUBSCRIPTIONS, (owner.id,))
            if most and count >= most:
                raise QuotaExceeded(
                    f"The topic '{owner.name}' has {most} subscriptions, the most that the profile "
                    f"{profile.name} allows."
                )
            place = owner.fragments, owner.home, owner.id
            made = self._insert(replace(description, name=name), place, now_ms, version)
            for rule in (default_rule(),) if rules is None else rules:
                self._rules.add(owner, made, replace(rule, created_ms=now_ms), profile)
            return version

    def update_subscription(
        self, topic: str, name: str, properties: Mapping[str, object], now_ms: int
    ) -> int:
        """Change the named properties of a subscription; all others stay as they are."""
        return self._update(self._subscription(topic, name), properties, now_ms)

    def delete_subscription(self, topic: str, name: str, now_ms: int) -> int:
        """Delete a subscription with its rules and messages."""
        return self._delete(self._subscription(topic, name), now_ms)

    def create_rule(self, topic: str, name: str, rule: RuleDescription, now_ms: int) -> int:
        """Add a rule to a subscription; refused where it has one of this name."""
        with self._changing_rules(topic, name, now_ms) as (version, subscription):
            owner, profile = self._existing(topic, TopicDescription), self._settings().profile
            made = replace(rule, created_ms=now_ms)
            self._rules.add(owner, subscription.id, made, profile)
            return version

    def update_rule(self, topic: str, name: str, rule: RuleDescription, now_ms: int) -> int:
        """Give a rule of a subscription another filter and action; it keeps its age."""
        with self._changing_rules(topic, name, now_ms) as (version, subscription):
            owner, profile = self._existing(topic, TopicDescription), self._settings().profile
            number, created_ms = self._rules.remove(subscription, rule.name)
            made = replace(rule, created_ms=created_ms)
            self._rules.add(owner, subscription.id, made, profile, number)
            return version

    def delete_rule(self, topic: str, name: str, rule: str, now_ms: int) -> int:
        """Remove a rule from a subscription."""
        with self._changing_rules(topic, name, now_ms) as (version, subscription):
            self._rules.remove(subscription, rule)
            return version

    def put_access_rule(self, rule: AccessRule, entity: str | None = None) -> int:
        """Add or replace a rule of the namespace or, where one is named, of an entity."""
        with self._changing() as version:
            self._access.put(self._named(entity).id if entity else NAMESPACE, rule)
            self._set("rules_version", version)
            return version

    def delete_access_rule(self, name: str, entity: str | None = None) -> int:
        """Remove a rule; harmless where there is none of this name."""
        with self._changing() as version:
            self._access.remove(self._named(entity).id if entity else NAMESPACE, name)
            self._set("rules_version", version)
            return version

    def change_settings(self, settings: NamespaceSettings) -> int:
        """Another name or profile. Entities that exist keep what they have."""
        with self._changing() as version:
            current = self._settings()
            # Where messages lie is settled when a namespace is made.
            assert settings.stores == current.stores
            assert settings.namespace_id == current.namespace_id
            self._write_settings(settings)
            return version

    def _read(self, old: Snapshot | None) -> Snapshot:
        version = self._version()
        if old is not None and old.version == version:
            return old
        rules_version = int(self._get("rules_version"))
        return read_snapshot(self._file, old, version, rules_version, self._settings())

    @contextmanager
    def _changing(self) -> Iterator[int]:
        with self._file.transaction():
            version = self._version() + 1
            self._set("version", version)
            yield version

    @contextmanager
    def _changing_rules(self, topic: str, name: str, now_ms: int) -> Iterator[tuple[int, Entity]]:
        """A change of a subscription's rules is a change of the subscription."""
        with self._changing() as version:
            subscription = self._subscription(topic, name)
            yield version, subscription
            self._file.rows(
                "UPDATE entity SET updated_ms = ?, changed = ? WHERE id = ?",
                (now_ms, version, subscription.id),
            )

    def _create(self, description: Description, now_ms: int) -> int:
        check_entity_name(description.name)
        with self._changing() as version:
            profile = self._settings().profile
            check_description(description, profile)
            fragments = fragments_of(description, profile)
            self._check_free(description.name)
            self._check_quota(profile, partitioned=fragments > 1)
            self._insert(description, (fragments, None, 0), now_ms, version)
            return version

    def _insert(
        self,
        description: Description,
        place: tuple[int, int | None, int],
        now_ms: int,
        version: int,
    ) -> int:
        """A row for a new entity, with this number of fragments, home and topic; its id."""
        name, (fragments, home, topic) = description.name, place
        lives = "SELECT 1 + coalesce(max(incarnation), 0) FROM entity WHERE key = ?"
        ((incarnation,),) = self._file.rows(lives, (name_key(name),))
        ((entity_id,),) = self._file.rows(
            "INSERT INTO entity(incarnation, name, key, kind, description, fragments, home, topic,"
            " created_ms, updated_ms, changed) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " RETURNING id",
            (incarnation, name, name_key(name), description.KIND, _text(description), fragments,
             home or 0, topic, now_ms, now_ms, version),
        )  # fmt: skip
        if home is None:
            # Ids count up, so homes go round the stores and conventional entities spread evenly.
            home = entity_id % self._settings().stores
            self._file.rows("UPDATE entity SET home = ? WHERE id = ?", (home, entity_id))
        return int(entity_id)

    def _update(self, entity: Entity, properties: Mapping[str, object], now_ms: int) -> int:
        with self._changing() as version:
            # As it is now that nobody else can change it.
            entity = self._existing(entity.name, type(entity.description))
            profile = self._settings().profile
            revised = revise_description(entity.description, properties, profile, entity.fragments)
            self._file.rows(
                "UPDATE entity SET description = ?, updated_ms = ?, changed = ? WHERE id = ?",
                (_text(revised), now_ms, version, entity.id),
            )
            # A topic decides some things for its subscriptions: they are read anew with it.
            self._file.rows(
                "UPDATE entity SET changed = ? WHERE topic = ? AND deleted_ms = 0",
                (version, entity.id),
            )
            return version

    def _delete(self, entity: Entity, now_ms: int) -> int:
        with self._changing() as version:
            entity = self._existing(entity.name, type(entity.description))
            ids = (entity.id, entity.id)
            self._file.rows(
                "DELETE FROM rule WHERE subscription IN"
                " (SELECT id FROM entity WHERE id = ? OR topic = ?)",
                ids,
            )
            self._file.rows(
                "UPDATE entity SET deleted_ms = ?, changed = ?"
                " WHERE (id = ? OR topic = ?) AND deleted_ms = 0",
                (now_ms, version, *ids),
            )
            self._access.remove_all(entity.id)
            self._set("rules_version", version)
            return version

    def _existing(self, name: str, kind: type[Description] = Description) -> Entity:
        entity = living_entity(self._file, name)
        if entity is None or not isinstance(entity.description, kind):
            raise EntityNotFound(f"There is no {kind.KIND or 'entity'} named '{name}'.")
        return entity

    def _named(self, name: str) -> Entity:
        """A queue or topic."""
        entity = self._existing(name)
        if entity.topic:
            raise EntityNotFound(f"There is no queue or topic named '{name}'.")
        return entity

    def _subscription(self, topic: str, name: str) -> Entity:
        path = subscription_path(topic, name)
        return self._existing(path, SubscriptionDescription)

    def _check_free(self, name: str) -> None:
        if living_entity(self._file, name):
            raise EntityAlreadyExists(f"An entity named '{name}' exists already.")

    def _check_quota(self, profile: Profile, *, partitioned: bool) -> None:
        query = (
            "SELECT count(*), count(nullif(fragments, 1)) FROM entity"
            " WHERE deleted_ms = 0 AND topic = 0"
        )
        ((entities, spread),) = self._file.rows(query)
        if profile.entities_max and entities >= profile.entities_max:
            raise QuotaExceeded(
                f"The namespace has {entities} entities, the most that the profile "
                f"{profile.name} allows."
            )
        if partitioned and profile.partitioned_max and spread >= profile.partitioned_max:
            raise QuotaExceeded(
                f"The namespace has {spread} entities with EnablePartitioning, the most that the "
                f"profile {profile.name} allows."
            )

    def _settings(self) -> NamespaceSettings:
        return NamespaceSettings(**json.loads(str(self._get("namespace"))))

    def _write_settings(self, settings: NamespaceSettings) -> None:
        named = {each.name: getattr(settings, each.name) for each in fields(settings)}
        self._set("namespace", json.dumps(named))

    def _version(self) -> int:
        return int(self._get("version"))

    def _get(self, name: str) -> int | str:
        value: int | str = self._file.rows("SELECT value FROM setting WHERE name = ?", (name,))[0][
            0
        ]
        return value

    def _set(self, name: str, value: int | str) -> None:
        self._file.rows("INSERT OR REPLACE INTO setting VALUES(?, ?)", (name, value))


def _text(description: Description) -> str:
    return json.dumps(write_description(description))
