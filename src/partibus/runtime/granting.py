"""What a token grants in this namespace: the rules that may have signed it, for both doors.

A rule stands on the namespace or on the entity that the path names. Whether a signature is good
is decided in broker.access; who is asked for a token, and what happens without one, at the doors.
"""

from __future__ import annotations

from typing import Protocol

from partibus.broker.access import (
    ALL_RIGHTS,
    AccessRule,
    Grant,
    Scope,
    belongs,
    check_token,
    still_stands,
)
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound
from partibus.broker.records import SubQueue
from partibus.store.catalog import Snapshot

MANAGEMENT_SUFFIX = "/$management"
# The vendor's emulator accepts this one; so does a development broker, and no other.
EMULATOR_RULE = AccessRule("RootManageSharedAccessKey", "SAS_KEY_VALUE", "", ALL_RIGHTS)


class Known(Protocol):
    """The part of a node that is asked here."""

    snapshot: Snapshot

    def refresh(self) -> None:
        """Take over what changed in the catalog."""

    def resolve(self, path: str) -> tuple[Entity, SubQueue]:
        """The entity and sub-queue that a path names."""


def namespace_rules(snapshot: Snapshot, *, dev: bool) -> list[AccessRule]:
    """The rules that stand on the whole namespace."""
    rules = list(snapshot.rules_of())
    return [*rules, EMULATOR_RULE] if dev else rules


def check_grant(
    node: Known, token: str, path: str, now_ms: int, *, dev: bool, part: str | None = None
) -> Grant:
    """What a token grants on a path (as resource_path spells it). Raises where it does not.

    It may be signed for that path or, where one is named, for a part of what lies below it.
    """
    # A rule or key may have been made, or taken away, a moment ago at another node.
    node.refresh()
    return check_token(token, part or path, scopes_at(node, path, dev=dev), now_ms)


def is_revoked(node: Known, grant: Grant, *, dev: bool) -> bool:
    """Whether the rule or key that gave the grant has been taken away since."""
    return not still_stands(grant, scopes_at(node, grant.path, dev=dev))


def scopes_at(node: Known, path: str, *, dev: bool) -> list[Scope]:
    """The rules that may open a path: those of the namespace and of the entity there."""
    snapshot = node.snapshot
    scopes = [Scope("", namespace_rules(snapshot, dev=dev))]
    owner = _owner(snapshot, path)
    if owner is not None:
        scopes.append(Scope(owner.key, snapshot.rules_of(owner)))
    return scopes


def _owner(snapshot: Snapshot, path: str) -> Entity | None:
    """The queue or topic whose rules count for a path: that is it, or has it as a part.

    A subscription has no rules of its own: its topic's hold.
    """
    name = path
    while name:
        found = snapshot.find(name)
        if found is not None and not found.topic:
            return found if belongs(path, found.key) else None
        name = name.rpartition("/")[0]
    return None


def entity_at(node: Known, path: str) -> Entity | None:
    """The entity that a path of the AMQP door names; None for the namespace or no entity."""
    if not path or path.startswith("$"):
        return None
    try:
        return node.resolve(path.removesuffix(MANAGEMENT_SUFFIX))[0]
    except EntityNotFound:
        return None
