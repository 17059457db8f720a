"""From the tree of a condition to a function of a message: True, False, or None for unknown.

Compiled once, when a rule is made; a message then costs one call for each part of the condition,
each at most once. Reading the text is for `grammar`; what values mean, for `values`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

from partibus.broker.rule_descriptions import Properties
from partibus.broker.rules import arithmetic
from partibus.broker.rules.errors import EvaluationError, InvalidRule
from partibus.broker.rules.like import Pattern
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.system_properties import system_property
from partibus.broker.rules.tree import (
    And,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    Parameter,
    Property,
    Signed,
    Value,
)
from partibus.broker.rules.values import (
    COMPARISONS,
    FLOATS,
    INTEGERS,
    KINDS,
    Kind,
    compare,
    value_of,
)
from partibus.wire.message_properties import property_key

# How deeply an expression may be nested: a call each, in Python.
NESTING_MAX = 64

Test: TypeAlias = Callable[[MessageView], bool | None]
Reader: TypeAlias = Callable[[MessageView], object]


class Compiler:
    """Compiles the conditions or statements of one rule, and notes what they need."""

    def __init__(self, parameters: Properties = ()) -> None:
        # Names may be given with their @ or without.
        self._parameters = {
            property_key(name.removeprefix("@")): value_of(value) for name, value in parameters
        }
        # The application properties that are mentioned, by key; any at all, if names are computed.
        self.user_names: set[str] = set()
        self.reads_any = False
        # How many parts there are: the steps of an evaluation, at most.
        self.size = 0
        self._depth = 0

    def test(self, node: Condition) -> Test:
        """The function of a condition."""
        self._enter(node.at)
        compiled: Test = _TESTS[type(node)](self, node)
        self._depth -= 1
        return compiled

    def reader(self, node: Value) -> Reader:
        """The function of a value."""
        self._enter(node.at)
        compiled: Reader = _READERS[type(node)](self, node)
        self._depth -= 1
        return compiled

    def _enter(self, at: int) -> None:
        self.size += 1
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise InvalidRule(
                f"Wrong at position {at + 1}: nested too deeply; {NESTING_MAX} levels are allowed."
            )

    # Conditions.

    def _and(self, node: And) -> Test:
        tests = [self.test(each) for each in node.operands]

        def every(view: MessageView) -> bool | None:
            result: bool | None = True
            for test in tests:
                found = test(view)
                if found is False:
                    return False
                if found is None:
                    result = None
            return result

        return every

    def _or(self, node: Or) -> Test:
        tests = [self.test(each) for each in node.operands]

        def some(view: MessageView) -> bool | None:
            result: bool | None = False
            for test in tests:
                found = test(view)
                if found:
                    return True
                if found is None:
                    result = None
            return result

        return some

    def _not(self, node: Not) -> Test:
        return _opposite(self.test(node.operand))

    def _comparison(self, node: Comparison) -> Test:
        left, right = self.reader(node.left), self.reader(node.right)
        holds = COMPARISONS[node.symbol]
        if isinstance(node.right, Constant) and type(node.right.value) in _DIRECT:
            # Most comparisons are of a property with a constant, of a type that needs no care.
            constant, direct = node.right.value, _DIRECT[type(node.right.value)]

            def compared(view: MessageView) -> bool | None:
                value = left(view)
                if type(value) in direct:
                    return holds(value, constant)
                return compare(holds, value, constant)

            return compared
        return lambda view: compare(holds, left(view), right(view))

    def _is_null(self, node: IsNull) -> Test:
        read = self.reader(node.property)
        if node.negated:
            return lambda view: read(view) is not None
        return lambda view: read(view) is None

    def _in(self, node: In) -> Test:
        read = self.reader(node.value)
        options = [self.reader(each) for each in node.options]
        equal = COMPARISONS["="]

        def contained(view: MessageView) -> bool | None:
            value = read(view)
            if value is None:
                return None
            return any(compare(equal, value, option(view)) for option in options)

        return _opposite(contained) if node.negated else contained

    def _like(self, node: Like) -> Test:
        read, pattern_of = self.reader(node.value), self._pattern(node)

        def alike(view: MessageView) -> bool | None:
            value = read(view)
            pattern = pattern_of(view)
            if pattern is None or KINDS.get(type(value)) is not Kind.TEXT:
                return None
            text = str(value)
            view.spend(pattern.cost(text))
            return pattern.matches(text)

        return _opposite(alike) if node.negated else alike

    def _pattern(self, node: Like) -> Callable[[MessageView], Pattern | None]:
        read = self.reader(node.pattern)
        escape = self.reader(node.escape) if node.escape is not None else None
        if isinstance(node.pattern, Constant) and isinstance(node.escape, Constant | None):
            try:
                fixed = _pattern(node.pattern.value, node.escape and node.escape.value, escape)
            except EvaluationError as error:
                raise InvalidRule(f"Wrong at position {node.pattern.at + 1}: {error}.") from error
            return lambda view: fixed

        def computed(view: MessageView) -> Pattern | None:
            value = read(view)
            if isinstance(value, str):
                view.spend(len(value))
            return _pattern(value, escape and escape(view), escape)

        return computed

    def _exists(self, node: Exists) -> Test:
        name = node.property.name
        if node.property.is_system:
            read = _system_reader(name)
            return lambda view: read(view) is not None
        key = self._mention(name)
        return lambda view: key in view.user

    # Values.

    def _constant(self, node: Constant) -> Reader:
        value = node.value
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise InvalidRule(
                f"Wrong at position {node.at + 1}: {value} does not fit 64 bits; "
                f"allowed: {-(1 << 63)} to {(1 << 63) - 1}."
            )
        if type(value) is float and not math.isfinite(value):
            raise InvalidRule(
                f"Wrong at position {node.at + 1}: the number does not fit a double; "
                "allowed: up to 1.7E308."
            )
        return lambda view: value

    def _property(self, node: Property) -> Reader:
        name = node.name
        if node.is_system:
            return _system_reader(name)
        key = self._mention(name)
        return lambda view: view.user.get(key)

    def _parameter(self, node: Parameter) -> Reader:
        key = property_key(node.name)
        if key not in self._parameters:
            there_are = ", ".join(f"@{each}" for each in self._parameters) or "none"
            raise InvalidRule(
                f"Wrong at position {node.at + 1}: there is no parameter @{node.name}; "
                f"given are: {there_are}."
            )
        value = self._parameters[key]
        return lambda view: value

    def _new_id(self, node: NewId) -> Reader:
        return _fresh_id

    def _named_property(self, node: NamedProperty) -> Reader:
        if isinstance(node.name, Constant) and isinstance(node.name.value, str):
            return self._property(_property_called(node.at, node.name.value))
        read = self.reader(node.name)
        self.reads_any = True

        def found(view: MessageView) -> object:
            name = read(view)
            if name is None:
                return None
            if not isinstance(name, str):
                raise EvaluationError("PROPERTY takes the name of a property as text")
            wanted = _property_called(node.at, name)
            if wanted.is_system:
                return view.system_value(system_property(wanted.name))
            return view.user.get(property_key(wanted.name))

        return found

    def _signed(self, node: Signed) -> Reader:
        read = self.reader(node.operand)
        if node.symbol == "-":
            return lambda view: arithmetic.negate(read(view))
        return lambda view: arithmetic.keep(read(view))

    def _arithmetic(self, node: Arithmetic) -> Reader:
        first = self.reader(node.first)
        rest = [(symbol, self.reader(operand)) for symbol, operand in node.rest]
        compute = arithmetic.compute

        def computed(view: MessageView) -> object:
            result = first(view)
            for symbol, read in rest:
                result = compute(symbol, result, read(view))
                if isinstance(result, str):
                    view.spend(1 + len(result) // 64)
            return result

        return computed

    def _mention(self, name: str) -> str:
        key = property_key(name)
        self.user_names.add(key)
        return key


# Types that Python compares with a constant as rules do.
_DIRECT: Mapping[type, frozenset[type]] = {
    str: frozenset((str,)),
    int: INTEGERS | FLOATS,
    float: INTEGERS | FLOATS,
}
_TESTS: Mapping[type, Callable[..., Test]] = {
    And: Compiler._and,
    Or: Compiler._or,
    Not: Compiler._not,
    Comparison: Compiler._comparison,
    IsNull: Compiler._is_null,
    In: Compiler._in,
    Like: Compiler._like,
    Exists: Compiler._exists,
}
_READERS: Mapping[type, Callable[..., Reader]] = {
    Constant: Compiler._constant,
    Property: Compiler._property,
    Parameter: Compiler._parameter,
    NewId: Compiler._new_id,
    NamedProperty: Compiler._named_property,
    Signed: Compiler._signed,
    Arithmetic: Compiler._arithmetic,
}


def _opposite(test: Test) -> Test:
    def opposite(view: MessageView) -> bool | None:
        found = test(view)
        return None if found is None else not found

    return opposite


def _system_reader(name: str) -> Reader:
    try:
        wanted = system_property(name)
    except EvaluationError as error:
        # Not refused when the rule is made: each message that it is asked for fails instead.
        text = str(error)

        def fail(view: MessageView) -> object:
            raise EvaluationError(text)

        return fail
    return lambda view: view.system_value(wanted)


def _fresh_id(view: MessageView) -> uuid.UUID:
    return view.fresh_id()


def _property_called(at: int, name: str) -> Property:
    scope, dot, rest = name.partition(".")
    if dot and scope.lower() in ("sys", "user"):
        return Property(at, scope.lower() == "sys", rest)
    return Property(at, False, name)


def _pattern(pattern: object, escape: object, given: Reader | None) -> Pattern | None:
    if given is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise EvaluationError("ESCAPE takes a text of one character")
    if KINDS.get(type(pattern)) is not Kind.TEXT:
        return None
    return Pattern(str(pattern), str(escape) if given is not None else None)
