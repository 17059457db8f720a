"""Rules at work: those of a subscription compiled, those of a topic evaluated for each message.

A RuleSet belongs to a subscription and is made when its rules change. TopicRules holds the sets of
all subscriptions of a topic, so that a message's properties are decoded once for all of them and
correlation filters are looked up over all of them. What becomes of the copies is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, TypeVar

from partibus.broker.properties import InvalidDescription
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlFilter,
    TrueFilter,
)
from partibus.broker.rules.actions import Action, Revision
from partibus.broker.rules.compiling import Compiler, Test
from partibus.broker.rules.correlation import CorrelationIndex
from partibus.broker.rules.errors import EvaluationError, HeaderSizeExceeded
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.values import identity, value_of
from partibus.wire.message_properties import property_key

Key = TypeVar("Key")

FILTER_EXCEPTION = "FilterException"
ACTION_EXCEPTION = "RuleActionException"
HEADER_SIZE_EXCEEDED = "HeaderSizeExceeded"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a message for a subscription: as it came, or as a rule's action made it."""

    # The rule whose action made it; None: the one copy for all rules without action.
    rule: str | None = None
    revision: Revision | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule had no answer for a message: why, in the words of a dead-lettered message."""

    rule: str
    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rules of a subscription say of a message; both may be, of different rules."""

    copies: tuple[Copy, ...] = ()
    failure: Failure | None = None


AS_IT_CAME = Outcome((Copy(),))


class CompiledRule:
    """A rule, ready to be asked. Raises InvalidDescription where it is none."""

    __slots__ = ("action", "reads_any", "rule", "size", "test", "user_names")

    def __init__(self, rule: RuleDescription) -> None:
        compiler = Compiler(rule.filter.parameters if isinstance(rule.filter, SqlFilter) else ())
        self.rule = rule
        # The condition of an SQL filter; other filters need none.
        self.test: Test | None = None
        if isinstance(rule.filter, SqlFilter):
            self.test = compiler.test(_grammar().parse_condition(rule.filter.expression))
        self.action: Action | None = None
        self.size = compiler.size
        names, reads_any = set(compiler.user_names), compiler.reads_any
        if rule.action is not None:
            compiler = Compiler(rule.action.parameters)
            statements = _grammar().parse_action(rule.action.expression)
            self.action = Action(statements, compiler)
            names |= compiler.user_names
            reads_any |= compiler.reads_any
            self.size += compiler.size
        if isinstance(rule.filter, CorrelationFilter):
            _check_values(rule.filter)
            names.update(property_key(name) for name, _ in rule.filter.properties)
        self.user_names = frozenset(names)
        self.reads_any = reads_any


class RuleSet:
    """The rules of one subscription, compiled. Raises InvalidRule where one is none."""

    __slots__ = ("_alone", "rules")

    def __init__(self, rules: Iterable[RuleDescription], before: RuleSet | None = None) -> None:
        """Rules that were in the set `before` are taken from there."""
        known = {} if before is None else before.rules
        self.rules: dict[str, CompiledRule] = {}
        for rule in rules:
            compiled = known.get(rule.key)
            if compiled is None or compiled.rule != rule:
                compiled = CompiledRule(rule)
            self.rules[rule.key] = compiled
        self._alone: TopicRules[None] | None = None

    def evaluate(self, view: MessageView) -> Outcome:
        """What these rules say of a message, by themselves."""
        if self._alone is None:
            self._alone = TopicRules()
            self._alone.put(None, self)
        return self._alone.evaluate(view).get(None, Outcome())


class TopicRules(Generic[Key]):
    """The rules of all subscriptions of a topic; subscriptions are named by a key."""

    __slots__ = ("_always", "_any_count", "_conditions", "_correlations", "_names", "_sets",
                 "_wanted")  # fmt: skip

    def __init__(self) -> None:
        self._sets: dict[Key, RuleSet] = {}
        # Subscriptions with rules that take every message, and those rules.
        self._always: dict[Key, list[CompiledRule]] = {}
        self._correlations: CorrelationIndex[tuple[Key, CompiledRule]] = CorrelationIndex()
        self._conditions: dict[Key, list[CompiledRule]] = {}
        # How many rules mention a property, and how many any that there is.
        self._names: Counter[str] = Counter()
        self._any_count = 0
        self._wanted: Collection[str] | None = ()

    def put(self, key: Key, rules: RuleSet) -> None:
        """Give a subscription its rules, in place of those it had."""
        before = self._sets.pop(key, None)
        old = {} if before is None else before.rules
        for name, compiled in old.items():
            if rules.rules.get(name) is not compiled:
                self._forget(key, compiled)
        for name, compiled in rules.rules.items():
            if old.get(name) is not compiled:
                self._enter(key, compiled)
        self._sets[key] = rules
        self._wanted = None if self._any_count else frozenset(self._names)

    def remove(self, key: Key) -> None:
        """Forget a subscription."""
        if key in self._sets:
            self.put(key, RuleSet(()))
            del self._sets[key]

    def evaluate(self, view: MessageView) -> dict[Key, Outcome]:
        """What the rules say of a message, by subscription; those it does not concern are left out.

        All matching rules of a subscription without action make one copy together, each with an
        action one more. A rule that fails takes no copy away that others make; a filter without
        action that fails is passed over where another has made the copy.
        """
        view.read(self._wanted)
        plain: dict[Key, None] = {}
        acting: list[tuple[Key, CompiledRule]] = []
        for key, rules in self._always.items():
            _sort(key, rules, plain, acting)
        for key, compiled in self._correlations.matches(view):
            _sort(key, (compiled,), plain, acting)
        failures: dict[Key, Failure] = {}
        for key, rules in self._conditions.items():
            view.begin()
            failure = _ask(view, key, rules, plain, acting)
            if failure is not None:
                failures[key] = failure
        outcomes = dict.fromkeys(plain, AS_IT_CAME)
        if acting or failures:
            _act(view, acting, failures, outcomes)
        return outcomes

    def _enter(self, key: Key, compiled: CompiledRule) -> None:
        filter_ = compiled.rule.filter
        if isinstance(filter_, FalseFilter):
            return
        if isinstance(filter_, CorrelationFilter):
            self._correlations.add(filter_, (key, compiled))
        else:
            table = self._always if isinstance(filter_, TrueFilter) else self._conditions
            table.setdefault(key, []).append(compiled)
        self._names.update(compiled.user_names)
        self._any_count += compiled.reads_any

    def _forget(self, key: Key, compiled: CompiledRule) -> None:
        filter_ = compiled.rule.filter
        if isinstance(filter_, FalseFilter):
            return
        if isinstance(filter_, CorrelationFilter):
            self._correlations.remove(filter_, (key, compiled))
        else:
            table = self._always if isinstance(filter_, TrueFilter) else self._conditions
            table[key].remove(compiled)
            if not table[key]:
                del table[key]
        for name in compiled.user_names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        self._any_count -= compiled.reads_any


def _sort(
    key: Key,
    rules: Iterable[CompiledRule],
    plain: dict[Key, None],
    acting: list[tuple[Key, CompiledRule]],
) -> None:
    for compiled in rules:
        if compiled.action is None:
            plain[key] = None
        else:
            acting.append((key, compiled))


def _ask(
    view: MessageView,
    key: Key,
    rules: list[CompiledRule],
    plain: dict[Key, None],
    acting: list[tuple[Key, CompiledRule]],
) -> Failure | None:
    """Ask the conditions of a subscription. The first failure that counts is returned."""
    failed: Failure | None = None
    counts = False
    for compiled in rules:
        acts = compiled.action is not None
        if not acts and key in plain:
            continue
        test = compiled.test
        assert test is not None
        try:
            view.spend(compiled.size)
            matches = test(view)
        except EvaluationError as error:
            if failed is None or (acts and not counts):
                failed = Failure(compiled.rule.name, FILTER_EXCEPTION, str(error))
                counts = acts
            continue
        if matches:
            _sort(key, (compiled,), plain, acting)
    return None if key in plain and not counts else failed


def _act(
    view: MessageView,
    acting: list[tuple[Key, CompiledRule]],
    failures: dict[Key, Failure],
    outcomes: dict[Key, Outcome],
) -> None:
    """Add the copies that actions make, and what failed."""
    copies: dict[Key, list[Copy]] = {}
    for key, compiled in acting:
        assert compiled.action is not None
        name = compiled.rule.name
        try:
            # Each action for itself: what filters took before is not held against it.
            view.begin()
            view.spend(compiled.size)
            revision = compiled.action.apply(view, name)
        except EvaluationError as error:
            too_large = isinstance(error, HeaderSizeExceeded)
            reason = HEADER_SIZE_EXCEEDED if too_large else ACTION_EXCEPTION
            failures.setdefault(key, Failure(name, reason, str(error)))
        else:
            copies.setdefault(key, []).append(Copy(name, revision))
    for key in {**copies, **failures}:
        as_it_came = outcomes[key].copies if key in outcomes else ()
        found = (*as_it_came, *copies.get(key, ()))
        outcomes[key] = Outcome(found, failures.get(key))


def _check_values(filter_: CorrelationFilter) -> None:
    for name, value in filter_.properties:
        if identity(value_of(value)) is None:
            raise InvalidDescription(
                name, value, "text, a number, a boolean, a uuid, a time, a duration, binary"
            )


def _grammar() -> ModuleType:
    # Loads lark, which a broker without SQL rules need not wait for.
    from partibus.broker.rules import grammar

    return grammar
