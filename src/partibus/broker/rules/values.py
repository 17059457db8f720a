"""The values that rules compute with: their kinds, and when two are equal or one is less.

A property keeps its AMQP type on the way through an evaluation. None is *unknown*: a property that
is missing or null. Kinds say which types can be compared: numbers with numbers, text with text.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any

from partibus.broker.rules.errors import EvaluationError
from partibus.wire.decimals import decimal128_of, decimal_of
from partibus.wire.errors import EncodeError
from partibus.wire.values import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

# 1970 in ticks: 100 ns since the year 1.
EPOCH_TICKS = 621_355_968_000_000_000
TICKS_PER_MS = 10_000
# How many digits of a double count when it meets a decimal, as in .NET.
_DOUBLE_DIGITS = Context(prec=15)


class TimeSpan(int):
    """A duration in ticks of 100 ns (com.microsoft:timespan)."""

    __slots__ = ()


class DateTimeOffset(int):
    """A time in ticks since the year 1, UTC (com.microsoft:datetime-offset)."""

    __slots__ = ()


class Uri(str):
    """A com.microsoft:uri."""

    __slots__ = ()


class Kind(Enum):
    """What can be compared with each other."""

    TEXT = "text"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    GUID = "a uuid"
    TIME = "a time"
    DURATION = "a duration"
    BINARY = "binary"


INTEGERS: frozenset[type] = frozenset(
    (int, Int, Long, Short, Byte, UInt, ULong, UShort, UByte)
)  # fmt: skip
FLOATS: frozenset[type] = frozenset((float, Float))
KINDS: dict[type, Kind] = {
    **dict.fromkeys((str, Symbol, Char, Uri), Kind.TEXT),
    **dict.fromkeys((*INTEGERS, *FLOATS, Decimal), Kind.NUMBER),
    bool: Kind.BOOLEAN,
    uuid.UUID: Kind.GUID,
    Timestamp: Kind.TIME,
    DateTimeOffset: Kind.TIME,
    TimeSpan: Kind.DURATION,
    bytes: Kind.BINARY,
}
_ORDERED = (Kind.TEXT, Kind.NUMBER, Kind.TIME, Kind.DURATION)
_DESCRIBED: dict[str, tuple[type, type]] = {
    "com.microsoft:timespan": (int, TimeSpan),
    "com.microsoft:datetime-offset": (int, DateTimeOffset),
    "com.microsoft:uri": (str, Uri),
}

Operator = Callable[[Any, Any], bool]
COMPARISONS: dict[str, Operator] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def value_of(decoded: object) -> object:
    """A decoded AMQP value as rules see it; what they cannot compare stays as it is."""
    if isinstance(decoded, Decimal32 | Decimal64 | Decimal128):
        number = decimal_of(decoded)
        return decoded if number is None else number
    if isinstance(decoded, Described):
        expected, kind = _DESCRIBED.get(str(decoded.descriptor), (None, None))
        if kind is not None and expected is not None and isinstance(decoded.value, expected):
            return kind(decoded.value)
    return decoded


def amqp_of(value: object) -> object:
    """The other way: what is encoded for a value."""
    if isinstance(value, Decimal):
        try:
            return decimal128_of(value)
        except EncodeError as error:
            raise EvaluationError(str(error)) from error
    for name, (_, kind) in _DESCRIBED.items():
        if type(value) is kind:
            plain = str(value) if isinstance(value, str) else int(value)  # type: ignore[call-overload]
            return Described(Symbol(name), plain)
    return value


def compare(test: Operator, left: object, right: object) -> bool | None:
    """Whether the comparison holds; None if a side is unknown or the kinds do not go together."""
    if type(left) is str and type(right) is str:
        return test(left, right)
    kind = KINDS.get(type(left))
    if kind is None or kind is not KINDS.get(type(right)):
        return None
    if kind is Kind.NUMBER:
        left, right = promoted(left, right)
    elif kind is Kind.TIME:
        left, right = ticks_of(left), ticks_of(right)
    elif kind not in _ORDERED and test is not operator.eq and test is not operator.ne:
        return None
    try:
        return test(left, right)
    except InvalidOperation:
        # Decimals signal what floats say quietly: what is no number equals nothing.
        return test is operator.ne


def promoted(left: object, right: object) -> tuple[object, object]:
    """Two numbers of which a double becomes a decimal where the other is one."""
    if isinstance(left, Decimal) and isinstance(right, float):
        return left, decimal_of_double(right)
    if isinstance(right, Decimal) and isinstance(left, float):
        return decimal_of_double(left), right
    return left, right


def decimal_of_double(number: float) -> Decimal:
    """A double with the digits that count. Infinities stay what they are, as decimals."""
    return _DOUBLE_DIGITS.create_decimal_from_float(number)


def ticks_of(time: object) -> int:
    """A time of either type in ticks."""
    if isinstance(time, Timestamp):
        return EPOCH_TICKS + int(time) * TICKS_PER_MS
    assert isinstance(time, DateTimeOffset)
    return int(time)


def identity(value: object) -> tuple[object, object] | None:
    """What typed equality goes by, for looking values up; None for what equals nothing.

    Integers of all widths are one type, so that a client's choice of width does not matter.
    """
    kind = KINDS.get(type(value))
    if kind is None:
        return None
    if kind is Kind.TIME:
        return kind, ticks_of(value)
    if kind is Kind.NUMBER and type(value) not in INTEGERS:
        return (float if isinstance(value, float) else Decimal), value
    return kind, value
