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
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from partibus.broker.access import ALL_RIGHTS, AccessRule, Right
from partibus.broker.descriptions import (
    Entity,
    QueueDescription,
    check_queue,
    fragments_of,
    read_stored_queue,
    revise_queue,
    write_queue,
)
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from partibus.broker.names import check_entity_name, name_key
from partibus.broker.profiles import Profile, profile_of
from partibus.store.catalog_file import CatalogFile

# The scope of the namespace's own access rules; those of an entity stand under its id.
NAMESPACE = 0
ROOT_RULE = "RootManageSharedAccessKey"
ACCESS_RULES_MAX = 12

_ENTITY_ROWS = (
    "SELECT id, incarnation, name, description, fragments, home, created_ms, updated_ms,"
    " deleted_ms FROM entity "
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

    @property
    def profile(self) -> Profile:
        """The limits of the namespace."""
        return profile_of(self.profile_name, self.premium_fragments)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole catalog at one version. Never changes; the next version is another snapshot."""

    version: int
    settings: NamespaceSettings
    # By name_key(name), and by id.
    entities: Mapping[str, Entity]
    by_id: Mapping[int, Entity]
    # By the entity's id; those of the namespace under NAMESPACE.
    rules: Mapping[int, tuple[AccessRule, ...]]
    # (id, incarnation) of entities whose fragments nobody needs any more.
    deleted: frozenset[tuple[int, int]] = frozenset()
    rules_version: int = field(default=-1, repr=False)

    def find(self, name: str) -> Entity | None:
        """The entity of this name, in whatever case."""
        return self.entities.get(name_key(name))

    def rules_of(self, entity: Entity | None = None) -> tuple[AccessRule, ...]:
        """The access rules that stand on an entity, or on the namespace."""
        return self.rules.get(entity.id if entity else NAMESPACE, ())


class Catalog:
    """An open catalog. Every method blocks; changes are durable when they return."""

    __slots__ = ("_data_version", "_file", "_snapshot")

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._snapshot: Snapshot | None = None
        self._data_version = -1

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
                catalog._write_rule(NAMESPACE, root)
        return catalog

    def close(self) -> None:
        """Give the file up."""
        self._file.close()

    def changed(self) -> bool:
        """Whether load() would find something new. Cheap enough to ask several times a second."""
        return (
            self._snapshot is None
            or self._file.data_version() != self._data_version
            or self._version() != self._snapshot.version
        )

    def load(self) -> Snapshot:
        """The catalog as it is now; the same object as before where nothing changed."""
        if self._file.in_transaction:
            # What is seen now may yet be undone: it is not remembered.
            return self._read(self._snapshot)
        # Taken before reading: what changes meanwhile is then found by the next changed().
        self._data_version = self._file.data_version()
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
        name = check_entity_name(description.name)
        with self._changing() as version:
            settings = self._settings()
            check_queue(description, settings.profile)
            fragments = fragments_of(description, settings.profile)
            if self._living(name):
                raise EntityAlreadyExists(f"An entity named '{name}' exists already.")
            self._check_quota(settings.profile, partitioned=fragments > 1)
            lives = "SELECT 1 + coalesce(max(incarnation), 0) FROM entity WHERE key = ?"
            ((incarnation,),) = self._file.rows(lives, (name_key(name),))
            self._file.rows(
                "INSERT INTO entity(incarnation, name, key, kind, description, fragments, home,"
                " created_ms, updated_ms, changed) VALUES(?, ?, ?, 'queue', ?, ?, 0, ?, ?, ?)",
                (incarnation, name, name_key(name), _text(description), fragments, now_ms, now_ms,
                 version),
            )  # fmt: skip
            # Ids count up, so homes go round the stores and conventional entities spread evenly.
            self._file.rows(
                "UPDATE entity SET home = id % ? WHERE id = last_insert_rowid()",
                (settings.stores,),
            )
            return version

    def update_queue(self, name: str, properties: Mapping[str, object], now_ms: int) -> int:
        """Change the named properties of a queue; all others stay as they are."""
        with self._changing() as version:
            entity = self._existing(name)
            profile = self._settings().profile
            revised = revise_queue(entity.description, properties, profile, entity.fragments)
            self._file.rows(
                "UPDATE entity SET description = ?, updated_ms = ?, changed = ? WHERE id = ?",
                (_text(revised), now_ms, version, entity.id),
            )
            return version

    def delete_queue(self, name: str, now_ms: int) -> int:
        """Delete a queue with all its messages and access rules."""
        with self._changing() as version:
            entity = self._existing(name)
            self._file.rows(
                "UPDATE entity SET deleted_ms = ?, changed = ? WHERE id = ?",
                (now_ms, version, entity.id),
            )
            self._file.rows("DELETE FROM access_rule WHERE scope = ?", (entity.id,))
            self._set("rules_version", version)
            return version

    def put_access_rule(self, rule: AccessRule, entity: str | None = None) -> int:
        """Add or replace a rule of the namespace or, where one is named, of an entity."""
        with self._changing() as version:
            scope = self._existing(entity).id if entity else NAMESPACE
            self._write_rule(scope, rule)
            ((count,),) = self._file.rows(
                "SELECT count(*) FROM access_rule WHERE scope = ?", (scope,)
            )
            if count > ACCESS_RULES_MAX:
                raise QuotaExceeded(f"There can be at most {ACCESS_RULES_MAX} access rules here.")
            self._set("rules_version", version)
            return version

    def delete_access_rule(self, name: str, entity: str | None = None) -> int:
        """Remove a rule; harmless where there is none of this name."""
        with self._changing() as version:
            scope = self._existing(entity).id if entity else NAMESPACE
            self._file.rows("DELETE FROM access_rule WHERE scope = ? AND name = ?", (scope, name))
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
        entities = dict(old.entities) if old else {}
        by_id = dict(old.by_id) if old else {}
        deleted = set(old.deleted) if old else set()
        # Only what changed since: a namespace may have ten thousand entities. In the order of
        # changes, so that a name made again comes after the death of its former owner.
        since = old.version if old else 0
        for row in self._file.rows(_ENTITY_ROWS + "WHERE changed > ? ORDER BY changed", (since,)):
            entity = _entity(row)
            if row[-1]:
                deleted.add((entity.id, entity.incarnation))
                if by_id.pop(entity.id, None):
                    del entities[entity.key]
            else:
                entities[entity.key] = by_id[entity.id] = entity
        rules_version = int(self._get("rules_version"))
        return Snapshot(
            version=version,
            settings=self._settings(),
            entities=MappingProxyType(entities),
            by_id=MappingProxyType(by_id),
            rules=old.rules if old and old.rules_version == rules_version else self._read_rules(),
            deleted=frozenset(deleted),
            rules_version=rules_version,
        )

    def _read_rules(self) -> Mapping[int, tuple[AccessRule, ...]]:
        rules: dict[int, tuple[AccessRule, ...]] = {}
        query = "SELECT scope, name, primary_key, secondary_key, rights FROM access_rule"
        for scope, name, primary, secondary, rights in self._file.rows(query):
            rule = AccessRule(name, primary, secondary, _read_rights(rights))
            rules[scope] = (*rules.get(scope, ()), rule)
        return MappingProxyType(rules)

    @contextmanager
    def _changing(self) -> Iterator[int]:
        with self._file.transaction():
            version = self._version() + 1
            self._set("version", version)
            yield version

    def _living(self, name: str) -> Entity | None:
        found = self._file.rows(
            _ENTITY_ROWS + "WHERE key = ? AND deleted_ms = 0", (name_key(name),)
        )
        return _entity(found[0]) if found else None

    def _existing(self, name: str) -> Entity:
        entity = self._living(name)
        if entity is None:
            raise EntityNotFound(f"There is no entity named '{name}'.")
        return entity

    def _check_quota(self, profile: Profile, *, partitioned: bool) -> None:
        query = "SELECT count(*), count(nullif(fragments, 1)) FROM entity WHERE deleted_ms = 0"
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

    def _write_rule(self, scope: int, rule: AccessRule) -> None:
        self._file.rows(
            "INSERT OR REPLACE INTO access_rule(scope, name, primary_key, secondary_key, rights)"
            " VALUES(?, ?, ?, ?, ?)",
            (scope, rule.name, rule.primary_key, rule.secondary_key, _write_rights(rule.rights)),
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


def _entity(row: tuple[Any, ...]) -> Entity:
    entity_id, incarnation, name, text, fragments, home, created_ms, updated_ms, _ = row
    description = read_stored_queue(name, json.loads(text))
    return Entity(
        entity_id, incarnation, name, description, fragments, home, created_ms, updated_ms
    )


def _text(description: QueueDescription) -> str:
    return json.dumps(write_queue(description))


def _read_rights(text: str) -> Right:
    rights = Right(0)
    for name in text.split(","):
        rights |= Right[name]
    return rights


def _write_rights(rights: Right) -> str:
    return ",".join(right.name or "" for right in rights)
