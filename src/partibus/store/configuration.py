"""A configuration file over a catalog: what it declares, and making the catalog say the same.

What is missing is created, what may change is updated, what may not is refused by the path of
its key, and nothing is ever deleted. All of it happens or none. The shape of the file is read in
config; which values are allowed is the broker's to say; here the two meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from partibus.broker.access import AccessRule, Right
from partibus.broker.access_rules import read_access_rule
from partibus.broker.descriptions import Entity, read_queue, revise_description
from partibus.broker.errors import Refusal
from partibus.broker.limits import with_limits
from partibus.broker.names import (
    check_entity_name,
    entity_of_address,
    name_key,
    subscription_path,
)
from partibus.broker.pipelines import PipelineDescription, read_pipeline
from partibus.broker.profiles import DEFAULT_PROFILE, Profile, profile_of
from partibus.broker.properties import InvalidDescription
from partibus.broker.rule_descriptions import RuleDescription, read_rule, write_rule
from partibus.broker.rules.rule_set import CompiledRule
from partibus.broker.topics import read_subscription, read_topic
from partibus.config import Configuration, ConfigurationError, Section
from partibus.store.catalog import Catalog, Snapshot


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
    """What applying a file has changed."""

    created: tuple[str, ...]
    updated: tuple[str, ...]


def declare(configuration: Configuration) -> Declaration:
    """What the file declares; refused with the path of the first key that is wrong."""
    profile = profile_of(configuration.profile or DEFAULT_PROFILE, configuration.partitions)
    try:
        profile = with_limits(profile, configuration.limits or {})
    except InvalidDescription as invalid:
        raise _error(f"{configuration.path}.Limits", invalid) from invalid
    seen: dict[str, str] = {}
    for queue in configuration.queues:
        with _at(queue):
            _check_new(queue, seen)
            read_queue(queue.name, queue.properties, profile)
    for topic in configuration.topics:
        with _at(topic):
            _check_new(topic, seen)
            read_topic(topic.name, topic.properties, profile)
        _check_parts(topic, profile, seen)
    rules = [*_rules(None, configuration.access_rules)]
    for section in (*configuration.queues, *configuration.topics):
        rules += _rules(section.name, section.access_rules)
    declared_pipelines(configuration)
    return Declaration(configuration, tuple(rules))


def declared_pipelines(configuration: Configuration) -> tuple[PipelineDescription, ...]:
    """The pipelines that the file declares. Whether their entities exist is not looked at."""
    seen: dict[str, str] = {}
    found = []
    for section in configuration.pipelines:
        with _at(section):
            found.append(read_pipeline(section.name, section.properties))
            _check_new(section, seen)
    return tuple(found)


def apply_configuration(
    catalog: Catalog, declaration: Declaration, now_ms: int, new_key: Callable[[], str]
) -> Applied:
    """Make the catalog say what the file declares: all of it, or nothing and a refusal."""
    configuration = declaration.configuration
    with catalog.together():
        _apply_settings(catalog, configuration)
        applying = _Applying(catalog, now_ms)
        for queue in configuration.queues:
            applying.apply_queue(queue)
        for topic in configuration.topics:
            applying.apply_topic(topic)
            for subscription in topic.parts:
                applying.apply_subscription(topic, subscription)
        after = catalog.load()
        _check_targets(configuration, after)
        _check_pipelines(configuration, after)
        for rule in declaration.rules:
            _apply_rule(catalog, after, rule, new_key)
    return Applied(tuple(applying.created), tuple(applying.updated))


class _Applying:
    """Makes what is missing and updates what may change, entity by entity."""

    def __init__(self, catalog: Catalog, now_ms: int) -> None:
        self._catalog = catalog
        self._now_ms = now_ms
        self._before = catalog.load()
        self._profile = self._before.settings.profile
        self.created: list[str] = []
        self.updated: list[str] = []

    def apply_queue(self, section: Section) -> None:
        """A queue as the file declares it."""
        name, properties, catalog = section.name, section.properties, self._catalog
        with _at(section):
            if self._find(name, "queue") is None:
                catalog.create_queue(read_queue(name, properties, self._profile), self._now_ms)
                self.created.append(name)
            elif self._changes(name, properties):
                catalog.update_queue(name, properties, self._now_ms)
                self.updated.append(name)

    def apply_topic(self, section: Section) -> None:
        """A topic, without its subscriptions."""
        name, properties, catalog = section.name, section.properties, self._catalog
        with _at(section):
            if self._find(name, "topic") is None:
                catalog.create_topic(read_topic(name, properties, self._profile), self._now_ms)
                self.created.append(name)
            elif self._changes(name, properties):
                catalog.update_topic(name, properties, self._now_ms)
                self.updated.append(name)

    def apply_subscription(self, topic: Section, section: Section) -> None:
        """A subscription of a topic that is there, with its rules."""
        catalog, now_ms, properties = self._catalog, self._now_ms, section.properties
        path = subscription_path(topic.name, section.name)
        rules = tuple(read_rule(rule.name, rule.properties, now_ms) for rule in section.parts)
        with _at(section):
            if self._find(path, "subscription") is None:
                made = read_subscription(topic.name, section.name, properties, self._profile)
                catalog.create_subscription(topic.name, made, now_ms, rules or None)
                self.created.append(path)
                return
            if self._changes(path, properties):
                catalog.update_subscription(topic.name, section.name, properties, now_ms)
                self.updated.append(path)
        for rule, written in zip(rules, section.parts, strict=True):
            with _at(written):
                self._apply_rule(topic.name, section.name, rule)

    def _apply_rule(self, topic: str, name: str, rule: RuleDescription) -> None:
        found = self._before.find_subscription(topic, name)
        existing = self._before.rules_of_subscription(found) if found else ()
        same_name = [each for each in existing if each.key == rule.key]
        if not same_name:
            self._catalog.create_rule(topic, name, rule, self._now_ms)
        elif write_rule(same_name[0]) != write_rule(rule):
            self._catalog.update_rule(topic, name, rule, self._now_ms)

    def _find(self, name: str, kind: str) -> Entity | None:
        """The entity of this name; one of another kind is in the way, and creating says so."""
        found = self._before.find(name)
        return found if found is not None and found.kind == kind else None

    def _changes(self, name: str, properties: Mapping[str, object]) -> bool:
        entity = self._before.entities[name_key(name)]
        revised = revise_description(
            entity.description, properties, self._profile, entity.fragments
        )
        return revised != entity.description


def _apply_settings(catalog: Catalog, configuration: Configuration) -> None:
    current = catalog.load().settings
    wanted = replace(current, name=configuration.name)
    if configuration.profile is not None:
        wanted = replace(
            wanted,
            profile_name=configuration.profile,
            premium_fragments=configuration.partitions,
        )
    if configuration.limits is not None:
        wanted = replace(wanted, limits=dict(configuration.limits))
    if wanted != current:
        catalog.change_settings(wanted)


def _check_targets(configuration: Configuration, after: Snapshot) -> None:
    subscriptions = [part for topic in configuration.topics for part in topic.parts]
    for section in (*configuration.queues, *subscriptions):
        for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
            target = entity_of_address(str(section.properties.get(name, "")))
            if target and after.find(target) is None:
                raise ConfigurationError(
                    f"{section.path}.Properties.{name}",
                    f"there is no queue or topic named {target!r}",
                )


def _check_pipelines(configuration: Configuration, after: Snapshot) -> None:
    """Pipelines read and write what is there."""
    pipelines = declared_pipelines(configuration)
    for section, pipeline in zip(configuration.pipelines, pipelines, strict=True):
        source = after.find(pipeline.source_entity)
        if source is None or source.kind == "topic":
            problem = f"there is no queue or subscription named {pipeline.source_entity!r}"
            if source is not None:
                problem = "a topic is read through a subscription: TOPIC/subscriptions/NAME"
            raise ConfigurationError(f"{section.path}.Properties.Source", problem)
        target = after.find(pipeline.target)
        if pipeline.target and (target is None or target.kind == "subscription"):
            raise ConfigurationError(
                f"{section.path}.Properties.Target",
                f"there is no queue or topic named {pipeline.target!r}",
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


def _check_new(section: Section, seen: dict[str, str], path: str | None = None) -> None:
    key = name_key(path or check_entity_name(section.name))
    if key in seen:
        raise ConfigurationError(f"{section.path}.Name", f"{seen[key]} has the same name")
    seen[key] = section.path


def _check_parts(topic: Section, profile: Profile, seen: dict[str, str]) -> None:
    for subscription in topic.parts:
        with _at(subscription):
            read_subscription(topic.name, subscription.name, subscription.properties, profile)
            _check_new(subscription, seen, subscription_path(topic.name, subscription.name))
        names: dict[str, str] = {}
        for rule in subscription.parts:
            with _at(rule):
                CompiledRule(read_rule(rule.name, rule.properties))
                _check_new(rule, names, rule.name)


def _rules(
    entity: str | None, sections: Iterable[tuple[str, Mapping[str, object]]]
) -> Iterator[DeclaredRule]:
    for path, values in sections:
        try:
            rule = read_access_rule(
                values.get("KeyName"),
                values.get("Rights"),
                values.get("PrimaryKey", ""),
                values.get("SecondaryKey", ""),
            )
        except InvalidDescription as invalid:
            raise _error(path, invalid) from invalid
        yield DeclaredRule(
            path, entity, rule.name, rule.rights, rule.primary_key, rule.secondary_key
        )


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
