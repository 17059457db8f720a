"""Converting a value to the type that a property has already, for SET.

What loses more than digits behind the point is refused; times become no numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from partibus.broker.rules.arithmetic import describe
from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.values import (
    EPOCH_TICKS,
    INTEGERS,
    KINDS,
    TICKS_PER_MS,
    DateTimeOffset,
    Kind,
    decimal_of_double,
    ticks_of,
)
from partibus.wire.values import (
    Byte,
    Char,
    Float,
    Int,
    Long,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

# Longer texts are no numbers; also, Python would take long to read them.
_NUMBER_TEXT_MAX = 64
_WITH_TEXT = (Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.GUID)
_BITS: dict[type, tuple[int, int]] = {
    UByte: (0, 8), UShort: (0, 16), UInt: (0, 32), ULong: (0, 64),
    Byte: (1, 7), Short: (1, 15), Int: (1, 31), Long: (1, 63), int: (1, 63),
}  # fmt: skip


def converted(value: object, wanted: type) -> object:
    """The value as one of the type `wanted`. EvaluationError where it has no such form."""
    if value is None or type(value) is wanted or wanted not in KINDS:
        return value
    convert = _CONVERSIONS[KINDS[wanted]]
    try:
        result = convert(value, wanted)
    except (ValueError, OverflowError, InvalidOperation, TypeError):
        result = None
    if result is None:
        name = wanted.__name__.lower()
        raise EvaluationError(f"{describe(value)} cannot become a value of type {name}")
    return result


def _to_text(value: object, wanted: type) -> object:
    if KINDS.get(type(value)) not in _WITH_TEXT:
        return None
    text = str(value)
    if wanted is Char and len(text) != 1:
        return None
    made: object = wanted(text)
    return made


def _to_number(value: object, wanted: type) -> object:
    if isinstance(value, str):
        if len(value) > _NUMBER_TEXT_MAX:
            return None
        value = Decimal(value.strip())
    elif KINDS.get(type(value)) not in (Kind.NUMBER, Kind.BOOLEAN):
        return None
    if wanted in INTEGERS:
        return _to_integer(value, wanted)
    if wanted is Decimal:
        return decimal_of_double(value) if isinstance(value, float) else Decimal(value)  # type: ignore[arg-type]
    return (Float if wanted is Float else float)(value)  # type: ignore[arg-type]


def _to_integer(value: object, wanted: type) -> object:
    signed, bits = _BITS[wanted]
    if isinstance(value, Decimal) and value.adjusted() > bits:
        return None
    # Half to even, as .NET converts.
    whole = int(value) if isinstance(value, int) else round(value)  # type: ignore[call-overload]
    if not -(signed << bits) <= whole < 1 << bits:
        return None
    return wanted(whole)


def _to_boolean(value: object, wanted: type) -> object:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value != 0 if KINDS.get(type(value)) is Kind.NUMBER else None


def _to_guid(value: object, wanted: type) -> object:
    return uuid.UUID(value) if isinstance(value, str) else None


def _to_time(value: object, wanted: type) -> object:
    if KINDS.get(type(value)) is not Kind.TIME:
        return None
    ticks = ticks_of(value)
    if wanted is DateTimeOffset:
        return DateTimeOffset(ticks)
    return Timestamp((ticks - EPOCH_TICKS) // TICKS_PER_MS)


def _to_nothing_else(value: object, wanted: type) -> object:
    return None


_CONVERSIONS: dict[Kind, Callable[[object, type], object]] = {
    Kind.TEXT: _to_text,
    Kind.NUMBER: _to_number,
    Kind.BOOLEAN: _to_boolean,
    Kind.GUID: _to_guid,
    Kind.TIME: _to_time,
    Kind.DURATION: _to_nothing_else,
    Kind.BINARY: _to_nothing_else,
}
