"""Entities and access rules as a test names them, and the connection strings that follow.

Properties have the names of the vendor's administration client (`lock_duration`), durations are
timedeltas or ISO 8601. What they mean and which values they may have is the broker's to say.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import timedelta

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription, read_queue
from partibus.broker.durations import format_duration
from partibus.broker.profiles import Profile
from partibus.broker.rule_descriptions import RuleDescription, read_rule
from partibus.broker.topics import (
    SubscriptionDescription,
    TopicDescription,
    read_subscription,
    read_topic,
)

HOST = "127.0.0.1"
KEY_BYTES = 32

Filtering = str | Mapping[str, object]


def new_key() -> str:
    """A key as the service makes them."""
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def queue_of(name: str, properties: Mapping[str, object], profile: Profile) -> QueueDescription:
    """The queue with these properties."""
    return read_queue(name, public_properties(properties), profile)


def topic_of(name: str, properties: Mapping[str, object], profile: Profile) -> TopicDescription:
    """The topic with these properties."""
    return read_topic(name, public_properties(properties), profile)


def subscription_of(
    topic: str, name: str, properties: Mapping[str, object], profile: Profile
) -> SubscriptionDescription:
    """The subscription with these properties."""
    return read_subscription(topic, name, public_properties(properties), profile)


def filter_rules_of(rules: Mapping[str, Filtering] | None) -> tuple[RuleDescription, ...] | None:
    """The rules of a subscription by their names; None: the one that it has by itself."""
    return None if rules is None else tuple(filter_rule_of(*rule) for rule in rules.items())


def filter_rule_of(name: str, rule: Filtering) -> RuleDescription:
    """A rule: the expression of an SQL filter, or what a configuration file says of a rule."""
    if isinstance(rule, str):
        rule = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": rule}}
    return read_rule(name, rule)


def public_properties(properties: Mapping[str, object]) -> dict[str, object]:
    """The same properties as descriptions name and write them."""
    return {_public_name(key): _plain(value) for key, value in properties.items()}


def rule_of(name: str, rights: Iterable[str]) -> AccessRule:
    """A rule with new keys and these rights: "Send", "Listen", "Manage"."""
    granted = Right(0)
    for right in rights:
        granted |= Right[right.upper()]
    return AccessRule(name, new_key(), new_key(), granted)


def connection_string(port: int, rule: AccessRule, queue: str | None = None) -> str:
    """What a client is given to connect with; it may name the one queue it is for."""
    path = f"EntityPath={queue};" if queue else ""
    return (
        f"Endpoint=sb://{HOST}:{port};SharedAccessKeyName={rule.name};"
        f"SharedAccessKey={rule.primary_key};{path}UseDevelopmentEmulator=true;"
    )


def _public_name(name: str) -> str:
    """`lock_duration` is LockDuration; what is written so already stays."""
    if not re.fullmatch("[a-z0-9_]+", name):
        return name
    return "".join(word.capitalize() for word in name.split("_"))


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(milliseconds=1))
    return value
