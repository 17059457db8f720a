"""A configuration file over a catalog: what it declares, and making the catalog say the same.

What is missing is created, what may change is updated, what may not is refused by the path of
its key, and nothing is ever deleted. All of it happens or none. The shape of the file is read in
config; which values are allowed is the broker's to say; here the two meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from partibus.broker.access import ALL_RIGHTS, AccessRule, Right
from partibus.broker.descriptions import read_queue, revise_queue
from partibus.broker.errors import Refusal
from partibus.broker.names import (
    ACCESS_RULE_NAME_MAX,
    RULE_NAME_MAX,
    SUBSCRIPTION_NAME_MAX,
    check_entity_name,
    check_plain_name,
    entity_of_address,
    name_key,
)
from partibus.broker.profiles import DEFAULT_PROFILE, profile_of
from partibus.broker.properties import InvalidDescription
from partibus.broker.topics import check_rule, check_subscription, check_topic
from partibus.config import Configuration, ConfigurationError, Section
from partibus.store.catalog import Catalog, Snapshot

KEY_LENGTH_MAX = 256
_RIGHTS = {"Listen": Right.LISTEN, "Send": Right.SEND, "Manage": Right.MANAGE}


@dataclass(frozen=True, slots=True)
class DeclaredRule:
    """An access rule in the file. Keys that it does not give are kept or generated."""

    path: str
    # The name of the entity it stands on; None: the namespace.
    entity: str | None
    name: str
    rights: Right
    primary_key: str
    secondary_key: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything a file declares, checked."""

    configuration: Configuration
    rules: tuple[DeclaredRule, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a file has changed, and what of it is not served."""

    created: tuple[str, ...]
    updated: tuple[str, ...]
    topics_not_served: tuple[str, ...]


def declare(configuration: Configuration) -> Declaration:
    """What the file declares; refused with the path of the first key that is wrong."""
    profile = profile_of(configuration.profile or DEFAULT_PROFILE, configuration.partitions)
    seen: dict[str, str] = {}
    for queue in configuration.queues:
        with _at(queue):
            _check_new(queue, seen)
            read_queue(queue.name, queue.properties, profile)
    for topic in configuration.topics:
        with _at(topic):
            _check_new(topic, seen)
            check_topic(topic.properties, profile)
        _check_parts(topic)
    rules = [*_rules(None, configuration.access_rules)]
    for queue in configuration.queues:
        rules += _rules(queue.name, queue.access_rules)
    for topic in configuration.topics:
        # Checked like the rest of a topic, and like it not yet used.
        list(_rules(topic.name, topic.access_rules))
    return Declaration(configuration, tuple(rules))


def apply_configuration(
    catalog: Catalog, declaration: Declaration, now_ms: int, new_key: Callable[[], str]
) -> Applied:
    """Make the catalog say what the file declares: all of it, or nothing and a refusal."""
    configuration = declaration.configuration
    created, updated = [], []
    with catalog.together():
        _apply_settings(catalog, configuration)
        before = catalog.load()
        profile = before.settings.profile
        for queue in configuration.queues:
            with _at(queue):
                if before.find(queue.name) is None:
                    catalog.create_queue(read_queue(queue.name, queue.properties, profile), now_ms)
                    created.append(queue.name)
                elif _update(catalog, before, queue, now_ms):
                    updated.append(queue.name)
        after = catalog.load()
        _check_targets(configuration, after)
        for rule in declaration.rules:
            _apply_rule(catalog, after, rule, new_key)
    topics = tuple(topic.name for topic in configuration.topics)
    return Applied(tuple(created), tuple(updated), topics)


def _apply_settings(catalog: Catalog, configuration: Configuration) -> None:
    current = catalog.load().settings
    wanted = replace(current, name=configuration.name)
    if configuration.profile is not None:
        wanted = replace(
            wanted,
            profile_name=configuration.profile,
            premium_fragments=configuration.partitions,
        )
    if wanted != current:
        catalog.change_settings(wanted)


def _update(catalog: Catalog, before: Snapshot, section: Section, now_ms: int) -> bool:
    entity = before.entities[name_key(section.name)]
    profile = before.settings.profile
    revised = revise_queue(entity.description, section.properties, profile, entity.fragments)
    if revised == entity.description:
        return False
    catalog.update_queue(section.name, section.properties, now_ms)
    return True


def _check_targets(configuration: Configuration, after: Snapshot) -> None:
    topics = {name_key(topic.name) for topic in configuration.topics}
    for queue in configuration.queues:
        for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
            target = entity_of_address(str(queue.properties.get(name, "")))
            if target and after.find(target) is None and name_key(target) not in topics:
                raise ConfigurationError(
                    f"{queue.path}.Properties.{name}",
                    f"there is no queue or topic named {target!r}",
                )


def _apply_rule(
    catalog: Catalog, after: Snapshot, rule: DeclaredRule, new_key: Callable[[], str]
) -> None:
    entity = after.find(rule.entity) if rule.entity else None
    same_name = [each for each in after.rules_of(entity) if each.name == rule.name]
    old = same_name[0] if same_name else None
    wanted = AccessRule(
        rule.name,
        rule.primary_key or (old.primary_key if old else new_key()),
        rule.secondary_key or (old.secondary_key if old else new_key()),
        rule.rights,
    )
    if wanted != old:
        try:
            catalog.put_access_rule(wanted, rule.entity)
        except Refusal as refusal:
            raise ConfigurationError(rule.path, str(refusal)) from refusal


def _check_new(section: Section, seen: dict[str, str]) -> None:
    key = name_key(check_entity_name(section.name))
    if key in seen:
        raise ConfigurationError(f"{section.path}.Name", f"{seen[key]} has the same name")
    seen[key] = section.path


def _check_parts(topic: Section) -> None:
    for subscription in topic.parts:
        with _at(subscription):
            check_plain_name(subscription.name, SUBSCRIPTION_NAME_MAX)
            check_subscription(subscription.properties)
        for rule in subscription.parts:
            with _at(rule):
                check_plain_name(rule.name, RULE_NAME_MAX)
                check_rule(rule.properties)


def _rules(
    entity: str | None, sections: Iterable[tuple[str, Mapping[str, object]]]
) -> Iterator[DeclaredRule]:
    for path, values in sections:
        try:
            name = check_plain_name(values.get("KeyName"), ACCESS_RULE_NAME_MAX, "KeyName")
        except InvalidDescription as invalid:
            raise _error(path, invalid) from invalid
        primary = _key(path, "PrimaryKey", values)
        secondary = _key(path, "SecondaryKey", values)
        yield DeclaredRule(path, entity, name, _rights(path, values), primary, secondary)


def _rights(path: str, values: Mapping[str, object]) -> Right:
    named = values.get("Rights")
    if not isinstance(named, list) or not named or not all(each in _RIGHTS for each in named):
        raise ConfigurationError(
            f"{path}.Rights", f"{named!r} is not allowed; allowed: a list of {', '.join(_RIGHTS)}"
        )
    rights = Right(0)
    for each in named:
        rights |= _RIGHTS[each]
    if Right.MANAGE in rights and rights != ALL_RIGHTS:
        raise ConfigurationError(f"{path}.Rights", "Manage needs Listen and Send beside it")
    return rights


def _key(path: str, name: str, values: Mapping[str, object]) -> str:
    key = values.get(name, "")
    fits = isinstance(key, str) and len(key) <= KEY_LENGTH_MAX and key.isprintable()
    if not fits or any(each in str(key) for each in "; "):
        # The value is a secret and is not repeated.
        raise ConfigurationError(
            f"{path}.{name}", f"a key has at most {KEY_LENGTH_MAX} characters, no space and no ;"
        )
    return str(key)


@contextmanager
def _at(section: Section) -> Iterator[None]:
    """Say where in the file something was refused."""
    try:
        yield
    except InvalidDescription as invalid:
        own = invalid.property in ("Name", "Topics")
        path = section.path if own else f"{section.path}.Properties"
        raise _error(path, invalid) from invalid
    except Refusal as refusal:
        raise ConfigurationError(section.path, str(refusal)) from refusal


def _error(path: str, invalid: InvalidDescription) -> ConfigurationError:
    return ConfigurationError(f"{path}.{invalid.property}", invalid.problem)
