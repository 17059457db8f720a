"""The rules of a subscription as they are written: a filter, and perhaps an action.

Plain values, read from and written to the words of the configuration file, which are also how
the catalog keeps them. What a filter means for a message is decided in rules, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from partibus.broker.names import DEFAULT_RULE, check_rule_name, name_key
from partibus.broker.properties import (
    InvalidDescription,
    Plain,
    Property,
    Table,
    read_properties,
    text,
    unknown_property,
)
from partibus.wire.codec import decode_all, encode
from partibus.wire.errors import DecodeError

FILTER_TEXT_MAX = 1024
# What a correlation filter may ask for, or a statement be given, beside the system's properties.
FILTER_PROPERTIES_MAX = 64

# Names and values with their AMQP types, in the order given.
Properties = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Every message."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """No message."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Messages for which an expression is true; `parameters` are its @names."""

    expression: str
    parameters: Properties = ()


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Messages whose properties equal all of those that are set here."""

    content_type: str | None = None
    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    properties: Properties = ()

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing."""
        return self == CorrelationFilter()


@dataclass(frozen=True, slots=True)
class SqlAction:
    """What is done to the copies of messages that match."""

    expression: str
    parameters: Properties = ()


Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """One rule of a subscription."""

    name: str
    filter: Filter = TrueFilter()
    action: SqlAction | None = None
    created_ms: int = 0

    @property
    def key(self) -> str:
        """What the rule is looked up by."""
        return name_key(self.name)


def default_rule() -> RuleDescription:
    """The rule of a subscription for which nobody gave another: every message."""
    return RuleDescription(DEFAULT_RULE)


def _read_values(given: Plain) -> Properties | None:
    if not isinstance(given, Mapping) or len(given) > FILTER_PROPERTIES_MAX:
        return None
    values = [(name, _read_value(value)) for name, value in given.items()]
    fits = all(isinstance(n, str) and n and v is not None for n, v in values)
    return tuple(values) if fits else None


def _read_value(value: Plain) -> object:
    """A value of JSON is what AMQP makes of it; others are kept as they are encoded."""
    if isinstance(value, Mapping) and set(value) == {"amqp"}:
        try:
            return decode_all(bytes.fromhex(str(value["amqp"])))
        except (ValueError, DecodeError):
            return None
    return value if isinstance(value, str | int | float) else None


def _write_values(values: object) -> Plain:
    assert isinstance(values, tuple)
    return {name: _write_value(value) for name, value in values}


def _write_value(value: object) -> Plain:
    return value if type(value) in (str, int, float, bool) else {"amqp": encode(value).hex()}


_CORRELATION: Table = tuple(
    text("".join(word.capitalize() for word in each.name.split("_")), each.name, FILTER_TEXT_MAX)
    for each in fields(CorrelationFilter)
    if each.name != "properties"
)


def _properties(name: str, field: str) -> Property:
    allowed = f"an object {{...}} of at most {FILTER_PROPERTIES_MAX} names and simple values"
    return Property(name, field, allowed, _read_values, _write_values)


_CORRELATION_WHOLE: Table = (*_CORRELATION, _properties("Properties", "properties"))
_SQL: Table = (
    text("SqlExpression", "expression", FILTER_TEXT_MAX),
    _properties("Parameters", "parameters"),
)
_PARTS = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
_FILTER_TYPES = ("Correlation", "Sql", "True", "False")


def read_rule(name: str, properties: Mapping[str, Plain], created_ms: int = 0) -> RuleDescription:
    """The rule with this filter and action; refused where they are none."""
    for part in properties:
        if part not in _PARTS:
            raise unknown_property(part, properties[part], _PARTS)
    kind = properties.get("FilterType", "True")
    correlation = read_properties(_mapping("CorrelationFilter", properties), _CORRELATION_WHOLE)
    sql = read_properties(_mapping("SqlFilter", properties), _SQL)
    action = read_properties(_mapping("Action", properties), _SQL)
    rule = RuleDescription(
        check_rule_name(name),
        _filter(kind, correlation, sql),
        SqlAction(**action) if action.get("expression") else None,  # type: ignore[arg-type]
        created_ms,
    )
    check_rule(rule)
    return rule


def _filter(kind: Plain, correlation: dict[str, object], sql: dict[str, object]) -> Filter:
    if kind == "Correlation":
        return CorrelationFilter(**correlation)  # type: ignore[arg-type]
    if kind == "Sql":
        return SqlFilter(**{"expression": ""} | sql)  # type: ignore[arg-type]
    if kind == "True":
        return TrueFilter()
    if kind == "False":
        return FalseFilter()
    raise InvalidDescription("FilterType", kind, ", ".join(_FILTER_TYPES))


def check_rule(rule: RuleDescription) -> None:
    """Refuse a rule whose filter or action is none."""
    check_rule_name(rule.name)
    if isinstance(rule.filter, CorrelationFilter):
        if rule.filter.is_empty:
            raise InvalidDescription("CorrelationFilter", {}, "at least one property to compare")
        _check_values(rule.filter, _CORRELATION_WHOLE)
    for part in (rule.filter, rule.action):
        if isinstance(part, SqlFilter | SqlAction):
            if not part.expression.strip():
                raise InvalidDescription("SqlExpression", part.expression, "an expression")
            _check_values(part, _SQL)


def _check_values(part: object, table: Table) -> None:
    for each in table:
        value = getattr(part, each.field)
        if value is not None and each.read(each.write(value)) is None:
            raise InvalidDescription(each.name, value, each.allowed)


def write_rule(rule: RuleDescription) -> dict[str, Plain]:
    """The rule in the words of the configuration file; read_rule reads it back."""
    found = rule.filter
    written: dict[str, Plain] = {"FilterType": type(found).__name__.removesuffix("Filter")}
    if isinstance(found, CorrelationFilter):
        written["CorrelationFilter"] = _written(found, _CORRELATION_WHOLE)
    elif isinstance(found, SqlFilter):
        written["SqlFilter"] = _written(found, _SQL)
    if rule.action is not None:
        written["Action"] = _written(rule.action, _SQL)
    return written


def _written(part: object, table: Table) -> dict[str, Plain]:
    values = ((each, getattr(part, each.field)) for each in table)
    return {each.name: each.write(value) for each, value in values if value not in (None, ())}


def _mapping(name: str, properties: Mapping[str, Plain]) -> Mapping[str, Plain]:
    value = properties.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidDescription(name, value, "an object {...}")
    return value
