"""Rules as they travel: the maps of add-rule, the described lists of enumerate-rules (SPEC 4.4).

Input may come in either form, with descriptors as numbers or symbols. True and false filters
travel as SQL and are known by their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from partibus.broker.errors import InvalidArgument
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from partibus.gateway.outcomes import as_optional_text, as_text
from partibus.wire.values import Described, Int, Timestamp, ULong

RULE_DESCRIPTION = 0x13700000004
EMPTY_ACTION = 0x13700000005
SQL_ACTION = 0x13700000006
# One digit less than the others: no mistake.
SQL_FILTER = 0x1370000006
TRUE_FILTER = 0x1370000007
FALSE_FILTER = 0x1370000008
CORRELATION_FILTER = 0x1370000009
COMPATIBILITY_LEVEL = Int(20)

# The names of the types, as keys of maps; with prefix and ":list" they are symbolic descriptors.
_NAMES = {
    "rule-description": RULE_DESCRIPTION,
    "empty-rule-action": EMPTY_ACTION,
    "sql-rule-action": SQL_ACTION,
    "sql-filter": SQL_FILTER,
    "true-filter": TRUE_FILTER,
    "false-filter": FALSE_FILTER,
    "correlation-filter": CORRELATION_FILTER,
}
_FILTERS = ("sql-filter", "correlation-filter", "true-filter", "false-filter")
# In the order of the described list.
_CORRELATION = (
    "correlation-id", "message-id", "to", "reply-to", "label", "session-id",
    "reply-to-session-id", "content-type",
)  # fmt: skip
_EVERYTHING, _NOTHING = "1=1", "1=0"

Fields: TypeAlias = Mapping[str, object]


def read_rule(body: Mapping[object, object]) -> RuleDescription:
    """The rule in the body of add-rule. Raises a Refusal where there is none."""
    found = body.get("rule-description")
    if isinstance(found, Described):
        parts = _listed(found, "rule-description", ("filter", "action", "rule-name"))
        filter_, action = parts.get("filter"), parts.get("action")
    else:
        parts = _fields(found, "rule-description")
        named = [name for name in _FILTERS if parts.get(name) is not None]
        if len(named) != 1:
            raise InvalidArgument(f"rule-description needs exactly one of {', '.join(_FILTERS)}.")
        filter_ = (named[0], parts[named[0]])
        action = parts.get("sql-rule-action")
    name = as_optional_text(body.get("rule-name")) or as_optional_text(parts.get("rule-name"))
    if not name:
        raise InvalidArgument("rule-name is missing.")
    return RuleDescription(name, _read_filter(filter_), _read_action(action))


def write_rule(rule: RuleDescription) -> Described:
    """A rule as enumerate-rules gives it."""
    action = Described(ULong(EMPTY_ACTION), [])
    if rule.action is not None:
        action = Described(ULong(SQL_ACTION), [rule.action.expression, COMPATIBILITY_LEVEL])
    fields = [_write_filter(rule.filter), action, rule.name, Timestamp(rule.created_ms)]
    return Described(ULong(RULE_DESCRIPTION), fields)


def _write_filter(filter_: Filter) -> Described:
    match filter_:
        case TrueFilter():
            return Described(ULong(TRUE_FILTER), [])
        case FalseFilter():
            return Described(ULong(FALSE_FILTER), [])
        case SqlFilter(expression):
            return Described(ULong(SQL_FILTER), [expression, COMPATIBILITY_LEVEL])
        case CorrelationFilter() as found:
            fields: list[object] = [getattr(found, _attribute(name)) for name in _CORRELATION]
            return Described(ULong(CORRELATION_FILTER), [*fields, dict(found.properties)])


def _read_filter(found: object) -> Filter:
    if isinstance(found, Described):
        name = _type_name(found.descriptor)
        fields: object = found
    elif isinstance(found, tuple):
        name, fields = found
    else:
        raise InvalidArgument("The filter of the rule is missing.")
    if name == "true-filter":
        return TrueFilter()
    if name == "false-filter":
        return FalseFilter()
    if name == "sql-filter":
        expression = _expression(fields, name)
        plain = "".join(expression.split())
        if plain in (_EVERYTHING, _NOTHING):
            return TrueFilter() if plain == _EVERYTHING else FalseFilter()
        return SqlFilter(expression)
    if name == "correlation-filter":
        return _read_correlation(_either(fields, name, (*_CORRELATION, "properties")))
    raise InvalidArgument(f"The filter is none of {', '.join(_FILTERS)}.")


def _read_correlation(fields: Fields) -> CorrelationFilter:
    known = {name: as_optional_text(fields.get(name)) for name in _CORRELATION}
    given = fields.get("properties")
    if given is not None and not isinstance(given, dict):
        raise InvalidArgument("properties of a correlation-filter is not a map.")
    properties = tuple((as_text(name), value) for name, value in (given or {}).items())
    if not properties and all(value is None for value in known.values()):
        raise InvalidArgument(
            f"A correlation-filter needs at least one of {', '.join(_CORRELATION)}, properties."
        )
    values = {_attribute(name): value for name, value in known.items()}
    return CorrelationFilter(**values, properties=properties)


def _read_action(found: object) -> SqlAction | None:
    if found is None:
        return None
    if isinstance(found, Described) and _type_name(found.descriptor) == "empty-rule-action":
        return None
    expression = _expression(found, "sql-rule-action")
    return SqlAction(expression) if expression.strip() else None


def _expression(found: object, name: str) -> str:
    expression = _either(found, name, ("expression",)).get("expression")
    if not isinstance(expression, str):
        raise InvalidArgument(f"expression of {name} is not a string.")
    return str(expression)


def _either(found: object, name: str, order: tuple[str, ...]) -> Fields:
    if isinstance(found, Described):
        return _listed(found, name, order)
    return _fields(found, name)


def _listed(found: Described, name: str, order: tuple[str, ...]) -> Fields:
    if _type_name(found.descriptor) != name or not isinstance(found.value, list):
        raise InvalidArgument(f"{name} is neither a map nor a list of that type.")
    return dict(zip(order, found.value, strict=False))


def _fields(found: object, name: str) -> Fields:
    if not isinstance(found, dict):
        raise InvalidArgument(f"{name} is not a map.")
    return {as_text(key): value for key, value in found.items()}


def _type_name(descriptor: object) -> str:
    if isinstance(descriptor, str):
        return descriptor.removeprefix("com.microsoft:").removesuffix(":list")
    return next((name for name, code in _NAMES.items() if code == descriptor), "")


def _attribute(name: str) -> str:
    return name.replace("-", "_")
