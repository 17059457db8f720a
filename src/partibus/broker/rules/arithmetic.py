"""Arithmetic of rules: the promotions of C# from int over long and double to decimal.

An unknown operand makes the result unknown. What cannot be computed (division by zero, text times
number, a result that fits no type) is an EvaluationError, never a silent something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow

from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.values import FLOATS, INTEGERS, KINDS, Kind, decimal_of_double
from partibus.wire.values import Byte, Int, Short, UByte, UShort

# Text that an expression may put together: that of the largest property.
TEXT_MAX = 32 * 1024

_SMALL: frozenset[type] = frozenset((Int, Short, Byte, UShort, UByte))
# The digits and the range of .NET's decimal.
_DECIMAL = Context(prec=28, Emax=28, Emin=-28, traps=[DivisionByZero, InvalidOperation, Overflow])


def compute(symbol: str, left: object, right: object) -> object:
    """The value of `left symbol right`."""
    if left is None or right is None:
        return None
    kinds = KINDS.get(type(left)), KINDS.get(type(right))
    if kinds == (Kind.TEXT, Kind.TEXT) and symbol == "+":
        return _joined(str(left), str(right))
    if kinds != (Kind.NUMBER, Kind.NUMBER):
        raise EvaluationError(
            f"'{symbol}' takes two numbers{' or two texts' * (symbol == '+')}, "
            f"not {describe(left)} and {describe(right)}"
        )
    if type(left) in INTEGERS and type(right) in INTEGERS:
        small = type(left) in _SMALL and type(right) in _SMALL
        return _fitting(_integers(symbol, int(left), int(right)), small)  # type: ignore[call-overload]
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _decimals(symbol, _decimal(left), _decimal(right))
    return _doubles(symbol, _double(left), _double(right))


def negate(value: object) -> object:
    """The value of `-value`."""
    if value is None:
        return None
    if KINDS.get(type(value)) is not Kind.NUMBER:
        raise EvaluationError(f"'-' takes a number, not {describe(value)}")
    if type(value) in INTEGERS:
        return _fitting(-int(value), type(value) in _SMALL)  # type: ignore[call-overload]
    return -value  # type: ignore[operator]


def keep(value: object) -> object:
    """The value of `+value`."""
    if value is not None and KINDS.get(type(value)) is not Kind.NUMBER:
        raise EvaluationError(f"'+' takes a number, not {describe(value)}")
    return value


def describe(value: object) -> str:
    """The kind of a value, for people."""
    kind = KINDS.get(type(value))
    return "a value of a type that rules do not know" if kind is None else kind.value


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > TEXT_MAX:
        raise EvaluationError(f"a text of more than {TEXT_MAX} characters")
    return left + right


def _fitting(result: int, small: bool) -> int:
    if small and -(1 << 31) <= result < 1 << 31:
        return Int(result)
    if not -(1 << 63) <= result < 1 << 63:
        raise EvaluationError("the result is beyond a whole number of 64 bits")
    return result


def _integers(symbol: str, left: int, right: int) -> int:
    if symbol in "/%":
        if right == 0:
            raise EvaluationError("division by zero")
        # Towards zero, and the remainder has the sign of the dividend; Python does otherwise.
        quotient = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            quotient = -quotient
        return quotient if symbol == "/" else left - right * quotient
    return _EXACT[symbol](left, right)


_EXACT: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_DOUBLES: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": math.fmod,
}
_DECIMALS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _DECIMAL.add,
    "-": _DECIMAL.subtract,
    "*": _DECIMAL.multiply,
    "/": _DECIMAL.divide,
    "%": _DECIMAL.remainder,
}


def _doubles(symbol: str, left: float, right: float) -> float:
    if right == 0 and symbol in "/%":
        raise EvaluationError("division by zero")
    try:
        return _DOUBLES[symbol](left, right)
    except ValueError as error:
        raise EvaluationError(f"{left} {symbol} {right} has no value") from error


def _decimals(symbol: str, left: Decimal, right: Decimal) -> Decimal:
    if right == 0 and symbol in "/%":
        raise EvaluationError("division by zero")
    try:
        return _DECIMALS[symbol](left, right)
    except DecimalException as error:
        raise EvaluationError(f"{left} {symbol} {right} is beyond a decimal") from error


def _decimal(number: object) -> Decimal:
    if isinstance(number, Decimal):
        return number
    if type(number) in FLOATS:
        return decimal_of_double(number)  # type: ignore[arg-type]
    return Decimal(int(number))  # type: ignore[call-overload]


def _double(number: object) -> float:
    return float(number)  # type: ignore[arg-type]
