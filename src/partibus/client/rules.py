"""Rules of a subscription: what they are for a client, and the requests about them.

Pure: requests are values, reading an answer is a function of it. A filter is SQL, or a set of
values that properties must have; "1=1" takes every message, "1=0" none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final

from partibus.client.dialogue import Response
from partibus.client.encoding import to_time
from partibus.client.errors import MalformedMessage
from partibus.client.requests import Request, check
from partibus.wire.values import Described, Int

RULES_PAGE: Final = 100
_NO_CONTENT: Final = 204
# The types of filters and actions (SPEC 4.4).
_SQL_ACTION: Final = 0x13700000006
_SQL_FILTER: Final = 0x1370000006
_TRUE_FILTER: Final = 0x1370000007
_FALSE_FILTER: Final = 0x1370000008
_CORRELATION_FILTER: Final = 0x1370000009


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Messages that have all of these values. The order is that of the protocol."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the service has it."""

    name: str
    filter: str | CorrelationFilter
    action: str | None
    created_at: datetime | None


def add_rule(name: str, filter_: str | CorrelationFilter, action: str | None) -> Request:
    """Add a rule to a subscription."""
    description: dict[str, object] = {"rule-name": name, "sql-rule-action": None}
    if isinstance(filter_, str):
        description["sql-filter"] = {"expression": filter_}
    else:
        values = {each.name: getattr(filter_, each.name) for each in fields(filter_)}
        values["properties"] = dict(filter_.properties)
        description["correlation-filter"] = {
            each.replace("_", "-"): value for each, value in values.items()
        }
    if action is not None:
        description["sql-rule-action"] = {"expression": action}
    return Request("add-rule", {"rule-name": name, "rule-description": description})


def remove_rule(name: str) -> Request:
    """Remove a rule from a subscription."""
    return Request("remove-rule", {"rule-name": name})


def enumerate_rules(skip: int) -> Request:
    """A page of the rules of a subscription."""
    return Request("enumerate-rules", {"top": Int(RULES_PAGE), "skip": Int(skip)})


def enumerated(response: Response) -> list[Rule]:
    """The rules of a page; none where there are no more."""
    if response.status == _NO_CONTENT:
        return []
    body = check(response).body
    entries = body.get("rules") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise MalformedMessage("a response without rules")
    return [_rule(entry) for entry in entries]


def _rule(entry: object) -> Rule:
    described = entry.get("rule-description") if isinstance(entry, dict) else None
    if not isinstance(described, Described) or not isinstance(described.value, list):
        raise MalformedMessage("a response with a rule that is none")
    filter_, action, name, created = [*described.value, None, None, None, None][:4]
    return Rule(str(name), _filter(filter_), _action(action), to_time(created))


def _filter(found: object) -> str | CorrelationFilter:
    if isinstance(found, Described) and isinstance(found.value, list):
        if found.descriptor == _TRUE_FILTER:
            return "1=1"
        if found.descriptor == _FALSE_FILTER:
            return "1=0"
        if found.descriptor == _SQL_FILTER and found.value:
            return str(found.value[0])
        if found.descriptor == _CORRELATION_FILTER:
            names = [each.name for each in fields(CorrelationFilter)]
            values = dict(zip(names, found.value, strict=False))
            return CorrelationFilter(**values)
    raise MalformedMessage("a response with a filter of an unknown type")


def _action(found: object) -> str | None:
    if isinstance(found, Described) and found.descriptor == _SQL_ACTION:
        return str(found.value[0]) if isinstance(found.value, list) and found.value else None
    return None
