"""Access rules inside descriptions (`AuthorizationRules`).

A description that has the element replaces all rules of its entity; one that has it not leaves
them. Keys that are not given are kept or made. What a rule may be is said in broker.access_rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from partibus.broker.access import AccessRule, Right
from partibus.broker.access_rules import read_access_rule
from partibus.broker.descriptions import Entity
from partibus.broker.errors import QuotaExceeded
from partibus.management.atom.documents import when
from partibus.management.atom.xml_text import Element, tag, text
from partibus.store.catalog import ACCESS_RULES_MAX, Catalog

# In the order in which clients are used to see them.
_RIGHTS = (("Manage", Right.MANAGE), ("Send", Right.SEND), ("Listen", Right.LISTEN))


def read_access_rules(description: Element) -> list[AccessRule] | None:
    """The rules that a description asks for; None where it says nothing of them."""
    found = description.child("AuthorizationRules")
    if found is None or found.is_nil:
        return None
    given = list(found.each("AuthorizationRule"))
    if len(given) > ACCESS_RULES_MAX:
        raise QuotaExceeded(f"There can be at most {ACCESS_RULES_MAX} access rules here.")
    return [_read(each) for each in given]


def _read(element: Element) -> AccessRule:
    rights = element.child("Rights")
    return read_access_rule(
        element.text_of("KeyName"),
        [each.text.strip() for each in rights.each("AccessRights")] if rights else [],
        element.text_of("PrimaryKey") or "",
        element.text_of("SecondaryKey") or "",
    )


def replace_access_rules(
    catalog: Catalog, name: str, rules: list[AccessRule] | None, new_key: Callable[[], str]
) -> None:
    """Give an entity these rules and no others, within the transaction of who asks."""
    if rules is None:
        return
    snapshot = catalog.load()
    before = {each.name: each for each in snapshot.rules_of(snapshot.find(name))}
    for gone in before.keys() - {each.name for each in rules}:
        catalog.delete_access_rule(gone, name)
    for rule in rules:
        old = before.get(rule.name)
        primary = rule.primary_key or (old.primary_key if old else new_key())
        secondary = rule.secondary_key or (old.secondary_key if old else new_key())
        catalog.put_access_rule(AccessRule(rule.name, primary, secondary, rule.rights), name)


def write_access_rules(rules: Sequence[AccessRule], entity: Entity) -> str:
    """The rules of an entity, with their keys: who may see this may do anything with it."""
    return tag("AuthorizationRules", *(_write(each, entity) for each in rules))


def _write(rule: AccessRule, entity: Entity) -> str:
    rights = (text("AccessRights", name) for name, right in _RIGHTS if right in rule.rights)
    return tag(
        "AuthorizationRule",
        text("ClaimType", "SharedAccessKey"),
        text("ClaimValue", "None"),
        tag("Rights", *rights),
        text("CreatedTime", when(entity.created_ms)),
        text("ModifiedTime", when(entity.updated_ms)),
        text("KeyName", rule.name),
        text("PrimaryKey", rule.primary_key),
        text("SecondaryKey", rule.secondary_key),
        i_type="SharedAccessAuthorizationRule",
    )
