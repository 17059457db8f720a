"""`$management` of subscriptions: adding, removing and listing rules (SPEC 4.2, 4.4).

Rules travel as maps in requests and as described lists in answers; both are spelled here. What a
rule means is the broker's business, and the catalog keeps it. In a transaction rules change when
it is discharged.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import InvalidArgument, InvalidOperation, Refusal
from partibus.broker.names import subscription_name
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from partibus.broker.rules.rule_set import RuleSet
from partibus.broker.transactions import RuleChange
from partibus.gateway.calls import Call
from partibus.gateway.outcomes import as_optional_text, as_text
from partibus.runtime.catalog_changes import change_rules
from partibus.wire.values import Described, Int, Timestamp, ULong

ENUMERATE_RULES = "com.microsoft:enumerate-rules"
RULES_PAGE_MAX = 1_000
COMPATIBILITY_LEVEL = 20

# The actions and the rule have one zero more than the filters; so it is.
_RULE = ULong(0x13700000004)
_NO_ACTION = ULong(0x13700000005)
_SQL_ACTION = ULong(0x13700000006)
_SQL_FILTER = ULong(0x1370000006)
_TRUE_FILTER = ULong(0x1370000007)
_FALSE_FILTER = ULong(0x1370000008)
_CORRELATION_FILTER = ULong(0x1370000009)

# In the order in which they are listed, with the keys that requests use.
_CORRELATION_FIELDS = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}


def _add_rule(call: Call) -> None:
    name = _rule_name(call)
    described = _map(call.body.get("rule-description"), "rule-description")
    rule = RuleDescription(name, _read_filter(described), _read_action(described))
    # Compiled to be refused now, and not when it is committed.
    RuleSet((rule,))
    _change(call, RuleChange(*_place(call), name, rule))


def _remove_rule(call: Call) -> None:
    _change(call, RuleChange(*_place(call), _rule_name(call), None))


def _enumerate_rules(call: Call) -> None:
    _place(call)
    top, skip = call.whole("top", least=1), call.whole("skip", least=0)
    rules = call.carrier.node.snapshot.rules_of_subscription(call.entity)
    page = rules[skip : skip + min(top, RULES_PAGE_MAX)]
    if page:
        call.answer({"rules": [{"rule-description": write_rule(each)} for each in page]})
    else:
        call.answer({}, 204, "There are no more rules.")


def _place(call: Call) -> tuple[str, str]:
    """The names of the topic and of the subscription."""
    if not call.entity.topic:
        raise InvalidOperation(f"'{call.entity.name}' is a {call.entity.kind}: it has no rules.")
    topic = call.carrier.node.snapshot.by_id[call.entity.topic]
    return topic.name, subscription_name(call.entity.name)


def _rule_name(call: Call) -> str:
    name = call.text("rule-name")
    if not name:
        raise InvalidArgument("rule-name is missing.")
    return name


def _change(call: Call, change: RuleChange) -> None:
    node = call.carrier.node
    if call.request.txn_id is not None:
        call.carrier.transactions.change_rule(call.request.txn_id, call.entity, change)
        call.answer({})
        return

    def done(refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
        else:
            call.answer({})

    now_ms = node.clock.now_ms()
    node.change_catalog(lambda catalog: change_rules(catalog, [change], now_ms), done)


def _read_filter(described: dict[object, object]) -> Filter:
    sql, correlation = described.get("sql-filter"), described.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise InvalidArgument("rule-description needs one of sql-filter and correlation-filter.")
    if sql is not None:
        expression = _expression(sql, "sql-filter")
        plain = "".join(expression.split())
        if plain in ("1=1", "1=0"):
            return TrueFilter() if plain == "1=1" else FalseFilter()
        return SqlFilter(expression)
    given = _map(correlation, "correlation-filter")
    texts = {field: as_optional_text(given.get(key)) for key, field in _CORRELATION_FIELDS.items()}
    properties = _map(given.get("properties") or {}, "properties")
    named = tuple((as_text(name), value) for name, value in properties.items())
    return CorrelationFilter(**texts, properties=named)


def _read_action(described: dict[object, object]) -> SqlAction | None:
    action = described.get("sql-rule-action")
    if action is None:
        return None
    expression = _expression(action, "sql-rule-action")
    return SqlAction(expression) if expression.strip() else None


def _expression(value: object, name: str) -> str:
    return as_optional_text(_map(value, name).get("expression")) or ""


def _map(value: object, name: str) -> dict[object, object]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} is not a map.")
    return value


def write_rule(rule: RuleDescription) -> Described:
    """A rule as clients read it in a list of rules."""
    action = Described(_NO_ACTION, [])
    if rule.action is not None:
        action = Described(_SQL_ACTION, [rule.action.expression, Int(COMPATIBILITY_LEVEL)])
    fields: list[object] = [
        _write_filter(rule.filter), action, rule.name, Timestamp(rule.created_ms)
    ]  # fmt: skip
    return Described(_RULE, fields)


def _write_filter(found: Filter) -> Described:
    if isinstance(found, TrueFilter):
        return Described(_TRUE_FILTER, [])
    if isinstance(found, FalseFilter):
        return Described(_FALSE_FILTER, [])
    if isinstance(found, SqlFilter):
        return Described(_SQL_FILTER, [found.expression, Int(COMPATIBILITY_LEVEL)])
    texts: list[object] = [getattr(found, field) for field in _CORRELATION_FIELDS.values()]
    return Described(_CORRELATION_FILTER, [*texts, dict(found.properties)])


RULE_OPERATIONS: dict[str, Callable[[Call], None]] = {
    "com.microsoft:add-rule": _add_rule,
    "com.microsoft:remove-rule": _remove_rule,
    ENUMERATE_RULES: _enumerate_rules,
}
