"""Names of entities, subscriptions and access rules: which are allowed, and when two are one.

Names compare without regard to case and keep the case they were given. Nothing else in the
broker decides what a name may look like. Addresses (sub-queues, $management) are not names.
"""

from __future__ import annotations

import re

from partibus.broker.properties import InvalidDescription

ENTITY_NAME_MAX = 260
SUBSCRIPTION_NAME_MAX = 50
RULE_NAME_MAX = 50
# The rule that a subscription has when nobody says otherwise.
DEFAULT_RULE = "$Default"
ACCESS_RULE_NAME_MAX = 256

# What stands between the name of a topic and that of its subscription, in the clients' spelling.
SUBSCRIPTIONS = "Subscriptions"

_SEGMENT = r"[A-Za-z0-9._~\-]+"
_ENTITY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_PLAIN = re.compile(_SEGMENT)

_ENTITY_ALLOWED = (
    f"1 to {ENTITY_NAME_MAX} letters, digits and . - _ ~ /, with no slash first, last or doubled"
)


def name_key(name: str) -> str:
    """What names are compared and looked up by."""
    return name.lower()


def check_entity_name(name: object, property_name: str = "Name") -> str:
    """The name of a queue or topic, if it may be one."""
    fits = isinstance(name, str) and len(name) <= ENTITY_NAME_MAX and _ENTITY.fullmatch(name)
    if not fits or any(part in (".", "..") for part in str(name).split("/")):
        raise InvalidDescription(property_name, name, _ENTITY_ALLOWED)
    return str(name)


def check_plain_name(name: object, longest: int, property_name: str = "Name") -> str:
    """The name of a subscription, rule or access rule: one segment, no slash."""
    if not (isinstance(name, str) and len(name) <= longest and _PLAIN.fullmatch(name)):
        raise InvalidDescription(property_name, name, f"1 to {longest} letters, digits and . - _ ~")
    return name


def subscription_path(topic: str, name: str) -> str:
    """The name of a subscription as an entity: where clients receive from it."""
    return f"{topic}/{SUBSCRIPTIONS}/{name}"


def subscription_name(path: str) -> str:
    """The subscription's own name, from its path."""
    return path.rpartition("/")[2]


def check_subscription_name(name: object) -> str:
    """The own name of a subscription, if it may be one."""
    return check_plain_name(name, SUBSCRIPTION_NAME_MAX)


def check_rule_name(name: object) -> str:
    """The name of a subscription's rule; that of the rule every subscription begins with, too."""
    is_default = isinstance(name, str) and name_key(name) == name_key(DEFAULT_RULE)
    return str(name) if is_default else check_plain_name(name, RULE_NAME_MAX)


def entity_of_address(address: str) -> str:
    """The entity an address or absolute URI (sb://host/entity) names, without its authority."""
    _, scheme, rest = address.partition("://")
    if scheme:
        _, _, address = rest.partition("/")
    return address.strip("/")
