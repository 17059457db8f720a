"""Rules in XML: filters, actions, and typed values of properties and parameters (SPEC 7.4).

Clients read literal prefixes (`d6p1:string`), so they are always the same. What a filter may be
is said in broker.rule_descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from partibus.broker.durations import format_duration, parse_duration
from partibus.broker.properties import InvalidDescription
from partibus.broker.rule_descriptions import (
    FILTER_PROPERTIES_MAX,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Properties,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    check_rule,
)
from partibus.management.atom.description_xml import SERVICE
from partibus.management.atom.documents import when
from partibus.management.atom.xml_text import INSTANCE, Element, tag, text
from partibus.wire.values import Described, Int, Symbol, Timestamp

SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
TIMESPAN = Symbol("com.microsoft:timespan")
COMPATIBILITY_LEVEL = 20
_TICKS_PER_MS = 10_000
_INT_MAX, _LONG_MAX = 2**31, 2**63

# In the order in which they are written: element and field.
_CORRELATION = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)


def read_rule(element: Element, name: str) -> RuleDescription:
    """The rule of this name that an element describes; without a filter it takes every message."""
    given = element.child("Filter")
    action = element.child("Action")
    rule = RuleDescription(
        name,
        TrueFilter() if given is None or given.is_nil else _read_filter(given),
        None if action is None or action.is_nil else _read_action(action),
    )
    check_rule(rule)
    return rule


def _read_filter(element: Element) -> Filter:
    kind = element.type
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        return SqlFilter(element.text_of("SqlExpression") or "", _values(element, "Parameters"))
    if kind == "CorrelationFilter":
        fields = {field: element.text_of(name) for name, field in _CORRELATION}
        # An empty element asks for nothing.
        given = {field: value for field, value in fields.items() if value}
        return CorrelationFilter(**given, properties=_values(element, "Properties"))
    allowed = "SqlFilter, CorrelationFilter, TrueFilter, FalseFilter"
    raise InvalidDescription("Filter", kind, allowed)


def _read_action(element: Element) -> SqlAction | None:
    if element.type == "EmptyRuleAction":
        return None
    if element.type == "SqlRuleAction":
        return SqlAction(element.text_of("SqlExpression") or "", _values(element, "Parameters"))
    raise InvalidDescription("Action", element.type, "SqlRuleAction, EmptyRuleAction")


def _values(element: Element, name: str) -> Properties:
    found = element.child(name)
    pairs = list(found.each("KeyValueOfstringanyType")) if found is not None else []
    if len(pairs) > FILTER_PROPERTIES_MAX:
        raise InvalidDescription(name, len(pairs), f"at most {FILTER_PROPERTIES_MAX}")
    values = []
    for pair in pairs:
        key, value = pair.text_of("Key"), pair.child("Value")
        if not key or value is None or value.is_nil:
            raise InvalidDescription(name, key, "a Key and a Value each")
        values.append((key, _value(key, value)))
    return tuple(values)


def _value(name: str, element: Element) -> object:
    """A value with the AMQP type that its XML type stands for."""
    kind = element.type or "string"
    reader = _READERS.get(kind)
    if reader is None:
        raise InvalidDescription(name, kind, f"a value of type {', '.join(_READERS)}")
    value = reader(element.text)
    if value is None:
        raise InvalidDescription(name, element.text, f"a value of type {kind}")
    return value


def _whole(limit: int, make: Callable[[int], int]) -> Callable[[str], object]:
    def read(given: str) -> object:
        try:
            number = int(given) if len(given) <= 20 else limit
        except ValueError:
            return None
        return make(number) if -limit <= number < limit else None

    return read


def _double(given: str) -> object:
    try:
        return float(given)
    except ValueError:
        return None


def _boolean(given: str) -> object:
    return {"true": True, "1": True, "false": False, "0": False}.get(given.strip().lower())


def _date_time(given: str) -> object:
    try:
        at = datetime.fromisoformat(given.strip())
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Timestamp((at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _duration(given: str) -> object:
    ms = parse_duration(given.strip())
    return None if ms is None else Described(TIMESPAN, ms * _TICKS_PER_MS)


_READERS: dict[str, Callable[[str], object]] = {
    "string": lambda given: given,
    "int": _whole(_INT_MAX, Int),
    "long": _whole(_LONG_MAX, int),
    "boolean": _boolean,
    "double": _double,
    "dateTime": _date_time,
    "duration": _duration,
}


def write_rule(rule: RuleDescription) -> str:
    """The rule as its description."""
    return tag(
        "RuleDescription",
        _write_filter(rule.filter),
        _write_sql("Action", "SqlRuleAction", rule.action)
        if rule.action
        else tag("Action", i_type="EmptyRuleAction"),
        text("CreatedAt", when(rule.created_ms)),
        text("Name", rule.name),
        xmlns=SERVICE,
        xmlns_i=INSTANCE,
    )


def _write_filter(found: Filter) -> str:
    if isinstance(found, CorrelationFilter):
        parts = [text(n, getattr(found, f)) for n, f in _CORRELATION if getattr(found, f)]
        parts.append(_write_values("Properties", found.properties))
        return tag("Filter", *parts, i_type="CorrelationFilter")
    if isinstance(found, SqlFilter):
        return _write_sql("Filter", "SqlFilter", found)
    # Clients expect these two as expressions, too.
    is_true = isinstance(found, TrueFilter)
    same = SqlFilter("1=1" if is_true else "1=0")
    return _write_sql("Filter", "TrueFilter" if is_true else "FalseFilter", same)


def _write_sql(name: str, kind: str, part: SqlFilter | SqlAction) -> str:
    return tag(
        name,
        text("SqlExpression", part.expression),
        text("CompatibilityLevel", COMPATIBILITY_LEVEL),
        _write_values("Parameters", part.parameters),
        i_type=kind,
    )


def _write_values(name: str, values: Properties) -> str:
    pairs = (
        tag("KeyValueOfstringanyType", text("Key", key), _write_value(value))
        for key, value in values
    )
    return tag(name, *pairs)


def _write_value(value: object) -> str:
    kind, written, namespace = _typed(value)
    return text("Value", written, i_type=f"d6p1:{kind}", xmlns_d6p1=namespace)


def _typed(value: object) -> tuple[str, object, str]:
    """The XML type of a value, and how it is written."""
    if isinstance(value, bool):
        return "boolean", value, SCHEMA
    if isinstance(value, Timestamp):
        return "dateTime", when(value), SCHEMA
    if isinstance(value, Described) and isinstance(value.value, int):
        return "duration", format_duration(value.value // _TICKS_PER_MS), SERIALIZATION
    if isinstance(value, Int):
        return "int", int(value), SCHEMA
    if isinstance(value, int):
        return "long", int(value), SCHEMA
    if isinstance(value, float):
        return "double", repr(float(value)), SCHEMA
    return "string", str(value), SCHEMA
