"""Access rules one by one: list, put, delete, rotate keys and make new ones.

On the namespace or on a queue or topic. To rotate moves the primary key to the secondary's place
and makes a new primary, so that clients with the old one go on until the next rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import msgspec
from starlette.responses import JSONResponse, Response

from partibus.broker.access import AccessRule, Right
from partibus.broker.access_rules import read_access_rule, write_rights
from partibus.broker.errors import EntityNotFound
from partibus.management.calls import Call
from partibus.management.operations.json_bodies import read_json
from partibus.runtime.serving import new_key
from partibus.store.catalog import Catalog, Snapshot


class Wanted(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What a rule should be; keys that are left out are kept or made."""

    rights: list[str]
    primary_key: str = ""
    secondary_key: str = ""


class Regenerate(msgspec.Struct, forbid_unknown_fields=True):
    """Which key is made anew."""

    key: Literal["primary", "secondary"] = "primary"


async def list_all(call: Call) -> Response:
    """The rules that stand here, with their keys."""
    entity = _entity(call)
    call.node.refresh()
    return JSONResponse({"rules": [_plain(e) for e in _rules(call.node.snapshot, entity)]})


async def show(call: Call) -> Response:
    """One rule."""
    entity = _entity(call)
    call.node.refresh()
    return JSONResponse(_plain(_existing(call.node.snapshot, entity, call.part("rule"))))


async def put(call: Call) -> Response:
    """Make a rule, or give one other rights or keys."""
    entity, name = _entity(call), call.part("rule")
    wanted = await read_json(call, Wanted)
    given = read_access_rule(name, wanted.rights, wanted.primary_key, wanted.secondary_key)

    def change(catalog: Catalog) -> None:
        old = _find(catalog.load(), entity, name)
        primary = given.primary_key or (old.primary_key if old else new_key())
        secondary = given.secondary_key or (old.secondary_key if old else new_key())
        whole = replace(given, primary_key=primary, secondary_key=secondary)
        catalog.put_access_rule(whole, entity)

    await call.node.changes.make(change)
    return JSONResponse(_plain(_existing(call.node.snapshot, entity, name)))


async def delete(call: Call) -> Response:
    """Remove a rule: what it opened is closed."""
    entity, name = _entity(call), call.part("rule")

    def change(catalog: Catalog) -> None:
        _existing(catalog.load(), entity, name)
        catalog.delete_access_rule(name, entity)

    await call.node.changes.make(change)
    return Response()


async def rotate(call: Call) -> Response:
    """A new primary key; the old one becomes the secondary."""
    entity = _entity(call)
    return await _rekey(
        call,
        entity,
        lambda old: replace(old, primary_key=new_key(), secondary_key=old.primary_key),
    )


async def regenerate(call: Call) -> Response:
    """A new key in the place of one of the two."""
    entity = _entity(call)
    is_primary = (await read_json(call, Regenerate)).key == "primary"

    def change(old: AccessRule) -> AccessRule:
        if is_primary:
            return replace(old, primary_key=new_key())
        return replace(old, secondary_key=new_key())

    return await _rekey(call, entity, change)


async def _rekey(
    call: Call, entity: str | None, rekeyed: Callable[[AccessRule], AccessRule]
) -> Response:
    name = call.part("rule")

    def change(catalog: Catalog) -> None:
        catalog.put_access_rule(rekeyed(_existing(catalog.load(), entity, name)), entity)

    await call.node.changes.make(change)
    return JSONResponse(_plain(_existing(call.node.snapshot, entity, name)))


def _entity(call: Call) -> str | None:
    """The entity whose rules are meant, to who may manage it; None: the namespace."""
    path = str(call.request.path_params.get("entity", ""))
    call.require(Right.MANAGE, path)
    return path or None


def _rules(snapshot: Snapshot, entity: str | None) -> tuple[AccessRule, ...]:
    if entity is None:
        return snapshot.rules_of()
    found = snapshot.find(entity)
    if found is None or found.topic:
        raise EntityNotFound(f"There is no queue or topic named '{entity}'.")
    return snapshot.rules_of(found)


def _find(snapshot: Snapshot, entity: str | None, name: str) -> AccessRule | None:
    return next((each for each in _rules(snapshot, entity) if each.name == name), None)


def _existing(snapshot: Snapshot, entity: str | None, name: str) -> AccessRule:
    found = _find(snapshot, entity, name)
    if found is None:
        raise EntityNotFound(f"There is no access rule named '{name}' here.")
    return found


def _plain(rule: AccessRule) -> dict[str, object]:
    return {
        "name": rule.name,
        "rights": write_rights(rule.rights),
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
    }
