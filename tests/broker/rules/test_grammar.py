"""Every construct of the language is read; what is wrong is refused where it is wrong."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.rules.errors import InvalidRule
from partibus.broker.rules.grammar import STATEMENTS_MAX, TEXT_MAX, parse_action, parse_condition
from partibus.broker.rules.tree import (
    And,
    Arithmetic,
    Comparison,
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
    Remove,
    Set,
    Signed,
)


def test_or_binds_less_than_and_which_binds_less_than_not() -> None:
    found = parse_condition("NOT a = 1 AND b = 2 OR c = 3 or d = 4")
    assert isinstance(found, Or)
    first, *others = found.operands
    assert isinstance(first, And)
    assert isinstance(first.operands[0], Not)
    assert [type(each) for each in others] == [Comparison, Comparison]


def test_arithmetic_has_the_usual_ranks() -> None:
    found = parse_condition("1 + 2 * -a % 3 - 4 >= 0")
    assert isinstance(found, Comparison)
    outer = found.left
    assert isinstance(outer, Arithmetic)
    assert [symbol for symbol, _ in outer.rest] == ["+", "-"]
    inner = outer.rest[0][1]
    assert isinstance(inner, Arithmetic)
    assert [symbol for symbol, _ in inner.rest] == ["*", "%"]
    assert isinstance(inner.rest[0][1], Signed)


@pytest.mark.parametrize(
    ("text", "kind", "negated"),
    [
        ("a IS NULL", IsNull, False),
        ("sys.To is not null", IsNull, True),
        ("a IN (1)", In, False),
        ("a + 1 NOT in (1, 'x', @p)", In, True),
        ("a LIKE 'x%'", Like, False),
        ("a not like b escape '!'", Like, True),
    ],
)
def test_the_tests_of_a_value(text: str, kind: type, negated: bool) -> None:
    found = parse_condition(text)
    assert type(found) is kind
    assert found.negated is negated  # type: ignore[union-attr]


@pytest.mark.parametrize("symbol", ["=", "<>", "!=", ">", ">=", "<", "<="])
def test_the_comparisons(symbol: str) -> None:
    found = parse_condition(f"a{symbol}1")
    assert found == Comparison(0, symbol, Property(0, False, "a"), Constant(1 + len(symbol), 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-9223372036854775808", -(2**63)),
        ("1.5", 1.5),
        ("2E3", 2000.0),
        ("101.5e-2", 1.015),
        ("'it''s'", "it's"),
        ("''", ""),
        ("true", True),
        ("FALSE", False),
        ("Null", None),
    ],
)
def test_the_constants(text: str, value: object) -> None:
    found = parse_condition(f"a = {text}")
    assert isinstance(found, Comparison)
    assert isinstance(found.right, Constant)
    assert (type(found.right.value), found.right.value) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "is_system", "name"),
    [
        ("Color", False, "Color"),
        ("größe_2", False, "größe_2"),
        ("user.Color", False, "Color"),
        ("SYS.Label", True, "Label"),
        ("[a]]b c]", False, "a]b c"),
        ('"a""b.c"', False, 'a"b.c'),
        ("sys.[To]", True, "To"),
        ("order", False, "order"),
        ("android", False, "android"),
        ("set", False, "set"),
        ("p", False, "p"),
        ("sys", False, "sys"),
    ],
)
def test_the_names_of_properties(text: str, is_system: bool, name: str) -> None:
    assert parse_condition(f"EXISTS({text})") == Exists(0, Property(7, is_system, name))


def test_functions_and_parameters() -> None:
    found = parse_condition("newid() IN (P('x'), property(a + 'b'), @From)")
    assert isinstance(found, In)
    assert isinstance(found.value, NewId)
    first, second, third = found.options
    assert isinstance(first, NamedProperty)
    assert isinstance(second, NamedProperty)
    assert isinstance(third, Parameter)
    assert third.name == "From"


def test_statements_are_separated_by_semicolons_or_commas() -> None:
    found = parse_action("SET a = 1 + b; REMOVE user.c, set sys.Label = 'x';")
    assert [type(each) for each in found] == [Set, Remove, Set]
    assert found[2].property == Property(34, True, "Label")


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("a", 1, "a condition is needed"),
        ("a = 1 AND (b)", 12, "a condition is needed"),
        ("a = (b = 1)", 6, "a value is needed"),
        ("a =", 4, "ends too early; allowed here: '('"),
        ("a = = 1", 5, "unexpected '='"),
        ("a = 1 b", 7, "unexpected 'b'; allowed here: * / %, + or -, AND, OR, the end"),
        ("a = b = c", 7, "unexpected '='"),
        ("(a = 1", 7, "')'"),
        ("like = 1", 1, "written [like]"),
        ("a = 'x", 5, "a text that does not end"),
        ("[a = 1", 1, "a quoted name that does not end"),
        ("a ; 1", 3, "unexpected ';'"),
        ("a-#b = 1", 3, "'#' has no meaning"),
        ("colour.red = 1", 1, "[colour.red]"),
        ("size(a) = 1", 1, "there are NEWID(), PROPERTY(name), P(name)"),
        ("1 + a IS NULL", 1, "allowed here: a property"),
        ("EXISTS(1)", 8, "allowed here: a property"),
        ("a IN ()", 7, "unexpected"),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, position: int, problem: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        parse_condition(text)
    assert problem in str(refused.value)
    assert f"Wrong at position {position}:" in str(refused.value)
    assert refused.value.condition == "com.microsoft:argument-error"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a = 1", 3),
        ("LET a = 1", 1),
        ("SET a", 1),
        ("REMOVE a = 1", 1),
        ("SET a = 1;;", 11),
        ("SET a = b > 1", 11),
    ],
)
def test_a_mistake_in_an_action_is_named_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InvalidRule, match=f"Wrong at position {position}:"):
        parse_action(text)


def test_long_texts_are_refused_before_they_are_read() -> None:
    parse_condition("a = '" + "x" * (TEXT_MAX - 6) + "'")
    for text in ("", "(" * (TEXT_MAX + 1), "a = '" + "x" * 10_000_000 + "'"):
        with pytest.raises(InvalidRule, match=f"1 to {TEXT_MAX} are allowed"):
            parse_condition(text)
    parse_action("SET a = 1;" * STATEMENTS_MAX)
    with pytest.raises(InvalidRule, match=f"{STATEMENTS_MAX} are allowed"):
        parse_action("SET a = 1;" * (STATEMENTS_MAX + 1))


@given(st.text(alphabet="aANDORT ()'=<>.[]\"!%_@1;,+-*/\x00é", max_size=40))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    for parse in (parse_condition, parse_action):
        with suppress(InvalidRule):
            parse(text)


def test_a_broker_without_sql_does_not_wait_for_the_grammar() -> None:
    code = (
        "import sys\n"
        "from partibus.broker.rule_descriptions import CorrelationFilter, RuleDescription\n"
        "from partibus.broker.rules.rule_set import RuleSet\n"
        "RuleSet([RuleDescription('a'), RuleDescription('b', CorrelationFilter(label='x'))])\n"
        "sys.exit('lark' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
