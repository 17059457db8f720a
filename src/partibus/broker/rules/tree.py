"""The syntax tree of filters and actions. `at` is where a part begins in the text, from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is NULL."""

    at: int
    value: object


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message, of the system or the user."""

    at: int
    is_system: bool
    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value given beside the text: @name."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class NewId:
    """NEWID(): a uuid that nobody had before."""

    at: int


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """PROPERTY(name): the property whose name is computed."""

    at: int
    name: Value


@dataclass(frozen=True, slots=True)
class Signed:
    """+ or - before a value."""

    at: int
    symbol: str
    operand: Value


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of operators of one rank, computed from the left."""

    at: int
    first: Value
    rest: tuple[tuple[str, Value], ...]


Value: TypeAlias = Constant | Property | Parameter | NewId | NamedProperty | Signed | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values and what is asked of them."""

    at: int
    symbol: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """property IS [NOT] NULL."""

    at: int
    property: Property
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """value [NOT] IN (options)."""

    at: int
    value: Value
    options: tuple[Value, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """value [NOT] LIKE pattern [ESCAPE character]."""

    at: int
    value: Value
    pattern: Value
    escape: Value | None
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS(property)."""

    at: int
    property: Property


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    at: int
    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    """All of several conditions."""

    at: int
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of several conditions."""

    at: int
    operands: tuple[Condition, ...]


Condition: TypeAlias = Comparison | IsNull | In | Like | Exists | Not | And | Or
Node: TypeAlias = Value | Condition


@dataclass(frozen=True, slots=True)
class Set:
    """SET property = value."""

    at: int
    property: Property
    value: Value


@dataclass(frozen=True, slots=True)
class Remove:
    """REMOVE property."""

    at: int
    property: Property


Statement: TypeAlias = Set | Remove
