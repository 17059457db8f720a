"""Who gets the messages of topics: the catalog's subscriptions and rules, made ready for use.

Rules are compiled when they are first needed and again when they change. What becomes of a message
is decided in broker.topic_fragment; when it is durable, by the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from partibus.broker.descriptions import Entity
from partibus.broker.errors import Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.records import FragmentKey, SubQueue
from partibus.broker.rule_descriptions import RuleDescription, TrueFilter
from partibus.broker.rules.rule_set import RuleSet, TopicRules
from partibus.broker.topic_fragment import Circle, Destination, TopicFragment
from partibus.runtime.driver import Driver

log = logging.getLogger(__name__)

ID_BYTES = 16

Rules = tuple[RuleDescription, ...]
Subscribed = tuple[Entity, Rules]
SubscriptionsOf = Callable[[int], Sequence[Subscribed]]


class Topics:
    """The topics of a node, as far as it has fragments of them."""

    def __init__(self, subscriptions: SubscriptionsOf, entropy: Callable[[int], bytes]) -> None:
        self._subscriptions = subscriptions
        self._entropy = entropy
        self._topics: dict[int, _Topic] = {}
        # Counts the catalogs that were seen.
        self._version = 0

    def changed(self, entities: Iterable[int]) -> None:
        """The catalog changed, these are left: all is looked at again when it is next needed."""
        self._version += 1
        for topic in self._topics.keys() - set(entities):
            del self._topics[topic]

    def attend(self, driver: Driver, fragment: TopicFragment) -> None:
        """See to it that a new fragment knows its subscriptions, now and later."""
        made: list[tuple[int, Circle]] = []

        def circle() -> Circle:
            if not made or made[0][0] != self._version:
                made[:] = [(self._version, self._circle(driver, fragment))]
            return made[0][1]

        fragment.circle = circle

    def _circle(self, driver: Driver, fragment: TopicFragment) -> Circle:
        topic = self._topic(fragment.key.entity)
        partition = fragment.key.partition
        keys = [
            FragmentKey(each.id, each.incarnation, partition, SubQueue.ACTIVE)
            for each, _ in topic.subscribed
        ]
        destinations = [
            Destination(
                each.id,
                each.description,
                _opener(driver, key, each),
                takes_all=_takes_all(rules),
            )
            for key, (each, rules) in zip(keys, topic.subscribed, strict=True)
        ]
        new_id = lambda: self._entropy(ID_BYTES)  # noqa: E731 - said once, used below
        return Circle(
            destinations, topic.rules, _touched(driver), lambda: _held(driver, keys), new_id
        )

    def _topic(self, topic_id: int) -> _Topic:
        topic = self._topics.setdefault(topic_id, _Topic())
        if topic.version != self._version:
            topic.version = self._version
            topic.take(self._subscriptions(topic_id))
        return topic


class _Topic:
    """The subscriptions of a topic, and the rules of those that choose."""

    def __init__(self) -> None:
        self.version = -1
        self.subscribed: Sequence[Subscribed] = ()
        self.rules: TopicRules[int] = TopicRules()
        self._compiled: dict[int, tuple[Rules, RuleSet]] = {}

    def take(self, subscribed: Sequence[Subscribed]) -> None:
        """These are the subscriptions now; what they had before need not be compiled again."""
        self.subscribed = subscribed
        choosing = {each.id: (each, rules) for each, rules in subscribed if not _takes_all(rules)}
        for gone in self._compiled.keys() - choosing.keys():
            del self._compiled[gone]
            self.rules.remove(gone)
        for subscription, (entity, rules) in choosing.items():
            before = self._compiled.get(subscription)
            if before is None or before[0] is not rules:
                compiled = _compile(entity, rules, before[1] if before else None)
                self._compiled[subscription] = rules, compiled
                self.rules.put(subscription, compiled)


def _compile(entity: Entity, rules: Rules, before: RuleSet | None) -> RuleSet:
    try:
        return RuleSet(rules, before)
    except Refusal:
        # They were accepted once; the others shall not suffer from the one that is none today.
        good = [rule for rule in rules if _is_rule(entity, rule)]
        return RuleSet(good, before)


def _is_rule(entity: Entity, rule: RuleDescription) -> bool:
    try:
        RuleSet((rule,))
    except Refusal as refusal:
        log.warning("rule not used subscription=%s rule=%s: %s", entity.name, rule.name, refusal)
        return False
    return True


def _takes_all(rules: Rules) -> bool:
    """Whether there is exactly one copy of every message, as it came."""
    return any(isinstance(rule.filter, TrueFilter) for rule in rules) and all(
        rule.action is None for rule in rules
    )


def _opener(driver: Driver, key: FragmentKey, entity: Entity) -> Callable[[], Fragment]:
    def open_fragment() -> Fragment:
        fragment = driver.fragment(key, entity.description)
        driver.touch(fragment)
        return fragment

    return open_fragment


def _touched(driver: Driver) -> Callable[[int], Fragment | None]:
    def find(number: int) -> Fragment | None:
        fragment = driver.numbered(number)
        if fragment is not None:
            driver.touch(fragment)
        return fragment

    return find


def _held(driver: Driver, keys: list[FragmentKey]) -> int:
    held = 0
    for key in keys:
        for each in (key, key._replace(subqueue=SubQueue.DEAD_LETTER)):
            fragment = driver.fragments.get(each)
            held += fragment.counters.bytes if fragment else 0
    return held
