"""The language of SQL filters and actions: its grammar, and from text to tree.

The whole language is in GRAMMAR; what a text means is for `compiling` and `actions`. Conditions
and values share one grammar, because `(a) = 1` and `(a = 1)` begin alike; the builder then refuses
one where the other is needed. Importing this module loads lark, which takes a tenth of a second,
so that is left to the first rule with SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from partibus.broker.rules.errors import InvalidRule
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
    Node,
    Not,
    Or,
    Parameter,
    Property,
    Remove,
    Set,
    Signed,
    Statement,
    Value,
)

GRAMMAR = r"""
condition: disjunction
action: statement ((";" | ",") statement)* ";"?
statement: NAME property EQUAL sum                       -> set
    | NAME property                                     -> remove

?disjunction: conjunction | conjunction (OR conjunction)+   -> any
?conjunction: negation | negation (AND negation)+           -> all
?negation: test | NOT negation                              -> negation
?test: sum | sum (EQUAL | UNEQUAL) sum                      -> comparison
    | sum IS NULL                                           -> is_null
    | sum IS NOT NULL                                       -> is_not_null
    | sum IN "(" sum ("," sum)* ")"                         -> within
    | sum NOT IN "(" sum ("," sum)* ")"                     -> not_within
    | sum LIKE sum                                          -> like
    | sum LIKE sum ESCAPE sum                               -> like
    | sum NOT LIKE sum                                      -> not_like
    | sum NOT LIKE sum ESCAPE sum                           -> not_like
    | EXISTS "(" property ")"                               -> exists
?sum: product | product ((PLUS | MINUS) product)+           -> chain
?product: signed | signed ((TIMES | OVER | MODULO) signed)+ -> chain
?signed: value | (PLUS | MINUS) signed                      -> sign
?value: "(" disjunction ")"
    | property
    | NAME "(" disjunction? ")"                             -> call
    | INTEGER                                               -> integer
    | DECIMAL                                               -> double
    | TEXT                                                  -> text
    | TRUE                                                  -> true
    | FALSE                                                 -> false
    | NULL                                                  -> null
    | PARAMETER                                             -> parameter
?property: NAME                                             -> plain_name
    | QUOTED                                                -> quoted_name
    | NAME "." (NAME | QUOTED)                              -> scoped_name

OR: "OR"i
AND: "AND"i
NOT: "NOT"i
IS: "IS"i
IN: "IN"i
LIKE: "LIKE"i
ESCAPE: "ESCAPE"i
EXISTS: "EXISTS"i
TRUE: "TRUE"i
FALSE: "FALSE"i
NULL: "NULL"i
NAME: /[^\W\d_]\w*/i
QUOTED: /\[[^\]]*(?:\]\][^\]]*)*\]|"[^"]*(?:""[^"]*)*"/
TEXT: /'[^']*(?:''[^']*)*'/
PARAMETER: /@\w+/
DECIMAL: /[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)/i
INTEGER: /[0-9]+/
EQUAL: "="
UNEQUAL: "<>" | "!=" | ">=" | "<=" | ">" | "<"
PLUS: "+"
MINUS: "-"
TIMES: "*"
OVER: "/"
MODULO: "%"
%ignore /\s+/
"""

TEXT_MAX = 1024
STATEMENTS_MAX = 32
FUNCTIONS = ("NEWID()", "PROPERTY(name)", "P(name)")
_KEYWORDS = ("AND", "OR", "NOT", "IS", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "NULL")
# What people call the things that may come next.
_LABELS = {
    "NAME": "a property",
    "QUOTED": "a property",
    "TEXT": "a constant",
    "INTEGER": "a constant",
    "DECIMAL": "a constant",
    "TRUE": "a constant",
    "FALSE": "a constant",
    "NULL": "a constant",
    "PARAMETER": "a @parameter",
    "EQUAL": "=",
    "UNEQUAL": "<> != < <= > >=",
    "PLUS": "+ or -",
    "MINUS": "+ or -",
    "TIMES": "* / %",
    "OVER": "* / %",
    "MODULO": "* / %",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "DOT": "'.'",
    "$END": "the end",
}
_OPENING = {"'": "a text", '"': "a quoted name", "[": "a quoted name"}


def parse_condition(text: str) -> Condition:
    """The tree of an SQL filter. Raises InvalidRule, which says where it is wrong."""
    _check_length("filter", text)
    return condition_of(_parse(text, "condition"))  # type: ignore[arg-type]


def parse_action(text: str) -> tuple[Statement, ...]:
    """The statements of an SQL action. Raises InvalidRule, which says where it is wrong."""
    _check_length("action", text)
    statements = _parse(text, "action")
    assert isinstance(statements, tuple)
    if len(statements) > STATEMENTS_MAX:
        raise InvalidRule(
            f"The action has {len(statements)} statements; {STATEMENTS_MAX} are allowed."
        )
    return statements


def wrong(at: int, problem: str, allowed: str) -> InvalidRule:
    """A text is wrong at this place."""
    return InvalidRule(f"Wrong at position {at + 1}: {problem}; {allowed}.")


def condition_of(node: Node) -> Condition:
    """The node, if it is a condition."""
    if not isinstance(node, Condition):
        raise wrong(
            node.at, "a value where a condition is needed", "compare it, as in  name = TRUE"
        )
    return node


def value_of(node: Node) -> Value:
    """The node, if it is a value."""
    if not isinstance(node, Value):
        raise wrong(
            node.at, "a condition where a value is needed", "join conditions by AND, OR and NOT"
        )
    return node


def _check_length(what: str, text: str) -> None:
    # Before parsing: the time that takes grows with the text.
    if not 0 < len(text) <= TEXT_MAX:
        raise InvalidRule(f"The {what} has {len(text)} characters; 1 to {TEXT_MAX} are allowed.")


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR, parser="lalr", lexer="basic", start=["condition", "action"],
        transformer=_Builder(), maybe_placeholders=False,
    )  # fmt: skip


def _parse(text: str, start: str) -> object:
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise _explained(text, error) from error


def _explained(text: str, error: UnexpectedInput) -> InvalidRule:
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream
        assert at is not None
        found = text[at]
        if found in _OPENING:
            return wrong(at, f"{_OPENING[found]} that does not end", "close it")
        return wrong(at, f"{found!r} has no meaning", f"quote names that contain it: [a{found}b]")
    assert isinstance(error, UnexpectedToken)
    token = error.token
    allowed = "allowed here: " + _labels(error.accepts or error.expected)
    if token.type == "$END":
        return wrong(len(text), "the text ends too early", allowed)
    at = token.start_pos
    assert at is not None
    if token.type in _KEYWORDS and "NAME" in error.expected:
        allowed += f" (a property of that name is written [{token}])"
    return wrong(at, f"unexpected '{token}'", allowed)


def _labels(terminals: Iterable[str]) -> str:
    return ", ".join(sorted({_LABELS.get(each, each) for each in terminals}))


@v_args(inline=True)
class _Builder(Transformer[Token, object]):
    """Makes the nodes of the tree, each when its part of the text has been read."""

    def condition(self, node: Node) -> Node:
        return node

    def action(self, *statements: Statement) -> tuple[Statement, ...]:
        return statements

    def set(self, word: Token, target: Property, _equal: Token, value: Node) -> Set:
        _check_word(word, "SET")
        return Set(_at(word), target, value_of(value))

    def remove(self, word: Token, target: Property) -> Remove:
        _check_word(word, "REMOVE")
        return Remove(_at(word), target)

    def any(self, *parts: Node | Token) -> Or:
        found = tuple(condition_of(each) for each in parts[::2])  # type: ignore[arg-type]
        return Or(found[0].at, found)

    def all(self, *parts: Node | Token) -> And:
        found = tuple(condition_of(each) for each in parts[::2])  # type: ignore[arg-type]
        return And(found[0].at, found)

    def negation(self, word: Token, operand: Node) -> Not:
        return Not(_at(word), condition_of(operand))

    def comparison(self, left: Node, symbol: Token, right: Node) -> Comparison:
        return Comparison(left.at, str(symbol), value_of(left), value_of(right))

    def is_null(self, node: Node, *_: Token) -> IsNull:
        return IsNull(node.at, _property_of(node), False)

    def is_not_null(self, node: Node, *_: Token) -> IsNull:
        return IsNull(node.at, _property_of(node), True)

    def within(self, node: Node, _in: Token, *options: Node) -> In:
        return In(node.at, value_of(node), tuple(map(value_of, options)), False)

    def not_within(self, node: Node, _not: Token, _in: Token, *options: Node) -> In:
        return In(node.at, value_of(node), tuple(map(value_of, options)), True)

    def like(self, node: Node, _like: Token, pattern: Node, *escape: Token | Node) -> Like:
        return _like_of(node, pattern, escape, False)

    def not_like(
        self, node: Node, _not: Token, _like: Token, pattern: Node, *escape: Token | Node
    ) -> Like:
        return _like_of(node, pattern, escape, True)

    def exists(self, word: Token, target: Property) -> Exists:
        return Exists(_at(word), target)

    def chain(self, first: Node, *rest: Token | Node) -> Arithmetic:
        pairs = zip(rest[::2], rest[1::2], strict=True)
        steps = tuple((str(symbol), value_of(node)) for symbol, node in pairs)  # type: ignore[arg-type]
        return Arithmetic(first.at, value_of(first), steps)

    def sign(self, symbol: Token, operand: Node) -> Value:
        value = value_of(operand)
        if symbol == "-" and isinstance(value, Constant) and type(value.value) is int:
            # So that the least of all integers can be written, whose opposite is none.
            return Constant(_at(symbol), -value.value)
        return Signed(_at(symbol), str(symbol), value)

    def call(self, name: Token, *arguments: Node) -> Value:
        function = name.upper()
        if function == "NEWID" and not arguments:
            return NewId(_at(name))
        if function in ("P", "PROPERTY") and arguments:
            return NamedProperty(_at(name), value_of(arguments[0]))
        raise wrong(
            _at(name), f"no function is called so: {name}", f"there are {', '.join(FUNCTIONS)}"
        )

    def integer(self, token: Token) -> Constant:
        return Constant(_at(token), int(token))

    def double(self, token: Token) -> Constant:
        return Constant(_at(token), float(token))

    def text(self, token: Token) -> Constant:
        return Constant(_at(token), token[1:-1].replace("''", "'"))

    def true(self, token: Token) -> Constant:
        return Constant(_at(token), True)

    def false(self, token: Token) -> Constant:
        return Constant(_at(token), False)

    def null(self, token: Token) -> Constant:
        return Constant(_at(token), None)

    def parameter(self, token: Token) -> Parameter:
        return Parameter(_at(token), token[1:])

    def plain_name(self, name: Token) -> Property:
        return Property(_at(name), False, str(name))

    def quoted_name(self, name: Token) -> Property:
        return Property(_at(name), False, _unquoted(name))

    def scoped_name(self, scope: Token, name: Token) -> Property:
        if scope.lower() not in ("sys", "user"):
            raise wrong(
                _at(scope),
                f"no scope is called {scope}",
                f"there are sys and user; a name with a dot is written [{scope}.{name}]",
            )
        return Property(_at(scope), scope.lower() == "sys", _unquoted(name))


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _check_word(word: Token, wanted: str) -> None:
    if word.upper() != wanted:
        raise wrong(
            _at(word), "this is no statement", "write SET property = value or REMOVE property"
        )


def _unquoted(name: Token) -> str:
    if name.type != "QUOTED":
        return str(name)
    close = name[-1]
    return name[1:-1].replace(close * 2, close)


def _property_of(node: Node) -> Property:
    if isinstance(node, Property):
        return node
    raise wrong(node.at, "IS NULL is asked of something else", "allowed here: a property")


def _like_of(node: Node, pattern: Node, escape: tuple[Token | Node, ...], negated: bool) -> Like:
    character = value_of(escape[1]) if escape else None  # type: ignore[arg-type]
    return Like(node.at, value_of(node), value_of(pattern), character, negated)
