"""Correlation filters by what they ask for: a message looks its matches up, none are scanned.

Filters that ask for the same properties share a table from their values to themselves. A message
costs one lookup for each such set of properties, however many filters there are.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Generic, TypeAlias, TypeVar

from partibus.broker.rule_descriptions import CorrelationFilter
from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.system_properties import SystemProperty, system_property
from partibus.broker.rules.values import identity, value_of
from partibus.wire.message_properties import property_key

Item = TypeVar("Item")
# System properties, and user properties by key, each in one order for all filters.
Shape: TypeAlias = tuple[tuple[SystemProperty, ...], tuple[str, ...]]
Values: TypeAlias = tuple[object, ...]

_FIELDS = {
    each.name: system_property(each.name.replace("_", ""))
    for each in fields(CorrelationFilter)
    if each.name != "properties"
}


def place_of(filter_: CorrelationFilter) -> tuple[Shape, Values]:
    """What a filter asks for, and the values that it wants."""
    asked = [(each, getattr(filter_, name)) for name, each in _FIELDS.items()]
    system = [(each, value) for each, value in asked if value is not None]
    named = {property_key(name): identity(value_of(value)) for name, value in filter_.properties}
    keys = sorted(named)
    shape = tuple(each for each, _ in system), tuple(keys)
    return shape, (*(value for _, value in system), *(named[key] for key in keys))


class CorrelationIndex(Generic[Item]):
    """Items by the filters they stand behind."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[Shape, dict[Values, list[Item]]] = {}

    def add(self, filter_: CorrelationFilter, item: Item) -> None:
        """Put an item behind a filter."""
        shape, values = place_of(filter_)
        self._tables.setdefault(shape, {}).setdefault(values, []).append(item)

    def remove(self, filter_: CorrelationFilter, item: Item) -> None:
        """Take an item away that stands behind a filter."""
        shape, values = place_of(filter_)
        table = self._tables[shape]
        table[values].remove(item)
        if not table[values]:
            del table[values]
        if not table:
            del self._tables[shape]

    def matches(self, view: MessageView) -> list[Item]:
        """The items whose filters take this message."""
        found: list[Item] = []
        for shape, table in self._tables.items():
            values = _values_of(view, shape)
            if values is not None:
                found += table.get(values, ())
        return found


def _values_of(view: MessageView, shape: Shape) -> Values | None:
    """The message's values of these properties; None where it lacks one."""
    values: list[object] = []
    for each in shape[0]:
        try:
            value = view.system_value(each)
        except EvaluationError:
            # Malformed: it equals nothing. SQL filters say so.
            return None
        if value is None:
            return None
        values.append(value)
    for key in shape[1]:
        named = identity(view.user.get(key))
        if named is None:
            return None
        values.append(named)
    return tuple(values)
