"""Other names for entities in the catalog's file, with their subscriptions' paths.

An entity keeps its id, so its messages stay where they are. Names that are exchanged go through
one that nobody can have. Transactions and versions are the catalog's.
"""

from __future__ import annotations

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityAlreadyExists, InvalidOperation
from partibus.broker.names import check_entity_name, name_key
from partibus.store.catalog_file import CatalogFile
from partibus.store.snapshot import Snapshot

# No name may begin so.
_NOBODYS = "\x01"
_NOBODYS_SCOPE = -1


# When, and with which version of the catalog.
Stamp = tuple[int, int]


def rename(file: CatalogFile, snapshot: Snapshot, entity: Entity, name: str, stamp: Stamp) -> None:
    """Give an entity another name, and its subscriptions the paths that follow."""
    check_entity_name(name)
    taken = snapshot.find(name)
    if taken is not None and taken.id != entity.id:
        raise EntityAlreadyExists(f"An entity named '{name}' exists already.")
    for each in snapshot.by_id.values():
        found = each.description
        if entity.key in map(name_key, (found.forward_to, found.forward_dead_letters_to)):
            raise InvalidOperation(
                f"'{each.name}' forwards to '{entity.name}', and would find it no more."
            )
    _move(file, entity.id, entity.name, name, stamp)


def swap(file: CatalogFile, one: Entity, other: Entity, stamp: Stamp) -> None:
    """Exchange the names of two entities. Access rules stay with the names."""
    if one.kind != other.kind:
        raise InvalidOperation(f"'{one.name}' is a {one.kind}, '{other.name}' is a {other.kind}.")
    if one.id == other.id:
        return
    _move(file, one.id, one.name, _NOBODYS, stamp)
    _move(file, other.id, other.name, one.name, stamp)
    _move(file, one.id, _NOBODYS, other.name, stamp)
    for old, new in ((one.id, _NOBODYS_SCOPE), (other.id, one.id), (_NOBODYS_SCOPE, other.id)):
        file.rows("UPDATE access_rule SET scope = ? WHERE scope = ?", (new, old))


def _move(file: CatalogFile, entity: int, old: str, new: str, stamp: Stamp) -> None:
    query = "SELECT id, name FROM entity WHERE (id = ? OR topic = ?) AND deleted_ms = 0"
    for number, path in file.rows(query, (entity, entity)):
        name = new + path[len(old) :]
        file.rows(
            "UPDATE entity SET name = ?, key = ?, updated_ms = ?, changed = ? WHERE id = ?",
            (name, name_key(name), *stamp, number),
        )
