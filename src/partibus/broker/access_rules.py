"""What an access rule may be: its name, its rights by their public names, and its keys.

Configuration files and the HTTP door both read rules here. Keys are secrets and are never
repeated in a refusal.
"""

from __future__ import annotations

from partibus.broker.access import ALL_RIGHTS, NO_RIGHTS, AccessRule, Right
from partibus.broker.names import ACCESS_RULE_NAME_MAX, check_plain_name
from partibus.broker.properties import InvalidDescription

KEY_LENGTH_MAX = 256
RIGHTS = {"Listen": Right.LISTEN, "Send": Right.SEND, "Manage": Right.MANAGE}


def read_access_rule(
    name: object, rights: object, primary_key: object = "", secondary_key: object = ""
) -> AccessRule:
    """The rule of this name; an empty key is one that is yet to be made."""
    return AccessRule(
        check_plain_name(name, ACCESS_RULE_NAME_MAX, "KeyName"),
        _key("PrimaryKey", primary_key),
        _key("SecondaryKey", secondary_key),
        read_rights(rights),
    )


def read_rights(named: object) -> Right:
    """The rights with these names; Manage needs the other two beside it."""
    fits = isinstance(named, list) and named and all(str(each) in RIGHTS for each in named)
    if not fits or not isinstance(named, list):
        raise InvalidDescription("Rights", named, f"a list of {', '.join(RIGHTS)}")
    rights = NO_RIGHTS
    for each in named:
        rights |= RIGHTS[str(each)]
    if Right.MANAGE in rights and rights != ALL_RIGHTS:
        problem = "Manage needs Listen and Send beside it"
        raise InvalidDescription("Rights", named, problem, problem)
    return rights


def write_rights(rights: Right) -> list[str]:
    """The other way."""
    return [name for name, right in RIGHTS.items() if right in rights]


def _key(name: str, key: object) -> str:
    fits = isinstance(key, str) and len(key) <= KEY_LENGTH_MAX and key.isprintable()
    if not fits or any(each in str(key) for each in "; "):
        problem = f"a key has at most {KEY_LENGTH_MAX} characters, no space and no ;"
        raise InvalidDescription(name, "", problem, problem)
    return str(key)
