"""Random SQL conditions, and a slow, obvious interpreter of them.

Written from the words of the language alone: expressions are nested tuples, written as text for
the real thing and walked here. It knows nothing of how rules are parsed, compiled or evaluated.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from math import fmod, inf
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
MISSING = object()
DECIMALS = Context(prec=28, Emax=28, Emin=-28, traps=[Overflow, InvalidOperation, DivisionByZero])


class Wrong(Exception):
    """The expression has no value."""


# Names and values; "gone" is never there. Values are of the kinds that rules know.
NAMES = ("i", "j", "f", "d", "s", "t", "flag", "none", "gone")
VALUES: dict[str, st.SearchStrategy[object]] = {
    "i": st.sampled_from([0, 1, 2, -7, 2**62]),
    "j": st.integers(-5, 5),
    "f": st.sampled_from([0.0, 0.5, -1.5, 2.0, 1e300]),
    "d": st.sampled_from([Decimal("1.5"), Decimal("0.1"), Decimal(2)]),
    "s": st.text("ab%_", max_size=4),
    "t": st.sampled_from(["", "a", "ab", "A", "1"]),
    "flag": st.booleans(),
    "none": st.just(None),
}
PROPERTIES = st.fixed_dictionaries({}, optional=VALUES)

CONSTANTS = st.one_of(
    st.sampled_from([0, 1, 2, 7, 2**63 - 1]),
    st.sampled_from([0.5, 1.5, 0.1, 3.0]),
    st.sampled_from(["", "a", "ab", "a'b", "1"]),
    st.booleans(),
    st.none(),
).map(lambda value: ("constant", value))
PROPERTY = st.sampled_from(NAMES).map(lambda name: ("property", name))
NUMBERS = st.one_of(
    st.sampled_from([("constant", n) for n in (0, 1, 2, 7, 2**63 - 1, 0.5, 1.5)]),
    st.sampled_from([("property", n) for n in ("i", "j", "f", "d", "gone")]),
)
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/%"), inner, inner),
        st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
    ),
    max_leaves=5,
)
TEXTS = st.one_of(
    st.sampled_from(["s", "t"]).map(lambda name: ("property", name)),
    st.tuples(st.just("arithmetic"), st.just("+"), PROPERTY, st.just(("constant", "a"))),
)
VALUE_TREES = st.one_of(CONSTANTS, PROPERTY, SUMS, TEXTS)
PATTERNS = st.text("ab%_!", max_size=5).map(lambda text: ("constant", text))
TESTS = st.one_of(
    st.tuples(
        st.just("comparison"),
        st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]),
        VALUE_TREES,
        VALUE_TREES,
    ),
    st.tuples(st.just("is null"), PROPERTY, st.booleans()),
    st.tuples(st.just("exists"), PROPERTY),
    st.tuples(
        st.just("in"), VALUE_TREES, st.lists(VALUE_TREES, min_size=1, max_size=3), st.booleans()
    ),
    st.tuples(st.just("like"), st.one_of(PROPERTY, TEXTS), PATTERNS, st.booleans(), st.booleans()),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)


def written(tree: Tree) -> str:  # noqa: C901 - a list of cases
    """The text of an expression, with parentheses around everything that could need them."""
    match tree:
        case ("constant", str(text)):
            return "'" + text.replace("'", "''") + "'"
        case ("constant", None):
            return "NULL"
        case ("constant", bool(flag)):
            return str(flag)
        case ("constant", value):
            return repr(value)
        case ("property", name):
            return f"[{name}]" if len(name) > 1 else name
        case ("arithmetic", symbol, left, right):
            return f"({written(left)} {symbol} {written(right)})"
        case ("sign", symbol, operand):
            return f"({symbol} {written(operand)})"
        case ("comparison", symbol, left, right):
            return f"{written(left)} {symbol} {written(right)}"
        case ("is null", operand, negated):
            return f"{written(operand)} is{' not' * negated} null"
        case ("exists", operand):
            return f"EXISTS({written(operand)})"
        case ("in", operand, options, negated):
            inside = ", ".join(map(written, options))
            return f"{written(operand)}{' NOT' * negated} IN ({inside})"
        case ("like", operand, pattern, escaped, negated):
            ending = " ESCAPE '!'" * escaped
            return f"{written(operand)}{' NOT' * negated} LIKE {written(pattern)}{ending}"
        case ("not", operand):
            return f"NOT ({written(operand)})"
        case (word, operands):
            return f" {word} ".join(f"({written(each)})" for each in operands)
    raise AssertionError(tree)


def truth(tree: Tree, properties: dict[str, object]) -> bool | None:  # noqa: C901 - a list of cases
    """True, False, or None for unknown; Wrong where there is no answer."""
    match tree:
        case ("comparison", symbol, left, right):
            return compared(symbol, value(left, properties), value(right, properties))
        case ("is null", (_, name), negated):
            return (properties.get(name) is None) != negated
        case ("exists", (_, name)):
            return name in properties
        case ("in", operand, options, negated):
            wanted = value(operand, properties)
            if wanted is None:
                return None
            found = False
            for option in options:
                if compared("=", wanted, value(option, properties)):
                    found = True
                    break
            return found != negated
        case ("like", operand, (_, pattern), escaped, negated):
            text = value(operand, properties)
            if not isinstance(text, str):
                return None
            return alike(text, pattern, "!" if escaped else None) != negated
        case ("not", operand):
            answer = truth(operand, properties)
            return None if answer is None else not answer
        case (word, operands):
            decisive = word == "or"
            answers: list[bool | None] = []
            for each in operands:
                answers.append(truth(each, properties))
                if answers[-1] is decisive:
                    return decisive
            return None if None in answers else not decisive
    raise AssertionError(tree)


def value(tree: Tree, properties: dict[str, object]) -> Any:
    match tree:
        case ("constant", constant):
            return constant
        case ("property", name):
            return properties.get(name)
        case ("sign", symbol, operand):
            number = value(operand, properties)
            if number is None:
                return None
            if kind(number) != "number":
                raise Wrong
            return fitting(-number if symbol == "-" else number)
        case ("arithmetic", symbol, left, right):
            return computed(symbol, value(left, properties), value(right, properties))
    raise AssertionError(tree)


def kind(of: object) -> str:
    if isinstance(of, bool):
        return "boolean"
    if isinstance(of, int | float | Decimal):
        return "number"
    return "text" if isinstance(of, str) else "unknown"


def compared(symbol: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None or kind(left) != kind(right):
        return None
    left, right = alike_numbers(left, right)
    if kind(left) == "boolean" and symbol in ("<", "<=", ">", ">="):
        return None
    return {
        "=": left == right, "<>": left != right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right,
    }[symbol]  # fmt: skip


def alike_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(left, Decimal) and isinstance(right, float):
        right = Decimal(format(right, ".15g"))
    if isinstance(right, Decimal) and isinstance(left, float):
        left = Decimal(format(left, ".15g"))
    return left, right


def fitting(number: Any) -> Any:
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise Wrong
    return number


def computed(symbol: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if kind(left) == kind(right) == "text" and symbol == "+":
        return left + right
    if kind(left) != "number" or kind(right) != "number" or (symbol in "/%" and right == 0):
        raise Wrong
    left, right = alike_numbers(left, right)
    if isinstance(left, int) and isinstance(right, int):
        return fitting(whole(symbol, left, right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        steps = {
            "+": DECIMALS.add, "-": DECIMALS.subtract, "*": DECIMALS.multiply,
            "/": DECIMALS.divide, "%": DECIMALS.remainder,
        }  # fmt: skip
        try:
            return steps[symbol](Decimal(left), Decimal(right))
        except DecimalException as error:
            raise Wrong from error
    if symbol == "%":
        if abs(left) == inf:
            raise Wrong
        return fmod(left, right)
    left, right = float(left), float(right)
    return {"+": left + right, "-": left - right, "*": left * right}.get(
        symbol, left / right if right else 0
    )


def whole(symbol: str, left: int, right: int) -> int:
    if symbol in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[symbol]
    quotient = int(Fraction(left, right))
    return quotient if symbol == "/" else left - right * quotient


def alike(text: str, pattern: str, escape: str | None) -> bool:
    expression = ""
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            expression += re.escape(next(letters, ""))
        else:
            expression += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
    return re.fullmatch(expression, text, re.DOTALL) is not None
