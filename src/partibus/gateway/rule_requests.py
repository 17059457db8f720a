"""`$management` of subscriptions: adding, removing and listing rules (SPEC 4.2, 4.4).

How rules are spelled is in rule_maps. What a rule means is the broker's business, and the catalog
keeps it. In a transaction rules change when it is discharged.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import InvalidArgument, InvalidOperation, Refusal
from partibus.broker.names import subscription_name
from partibus.broker.records import SubQueue
from partibus.broker.rules.rule_set import RuleSet
from partibus.broker.transactions import RuleChange
from partibus.gateway.calls import Call
from partibus.gateway.rule_maps import read_rule, write_rule
from partibus.runtime.catalog_changes import change_rules

ENUMERATE_RULES = "com.microsoft:enumerate-rules"
RULES_PAGE_MAX = 1_000


def _add_rule(call: Call) -> None:
    rule = read_rule(call.body)
    # Compiled to be refused now, and not when it is committed.
    RuleSet((rule,))
    _change(call, RuleChange(*_place(call), rule.name, rule))


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
    if call.subqueue is not SubQueue.ACTIVE:
        raise InvalidOperation(f"Ask for the rules of '{call.entity.name}' itself.")
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


RULE_OPERATIONS: dict[str, Callable[[Call], None]] = {
    "com.microsoft:add-rule": _add_rule,
    "com.microsoft:remove-rule": _remove_rule,
    ENUMERATE_RULES: _enumerate_rules,
}
