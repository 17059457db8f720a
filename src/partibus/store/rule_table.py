"""The rules of subscriptions in the catalog's file.

Each stands in a row of its own, as it was written. Transactions and versions are the catalog's.
"""

from __future__ import annotations

import json

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from partibus.broker.names import name_key
from partibus.broker.profiles import Profile
from partibus.broker.rule_descriptions import (
    CorrelationFilter,
    RuleDescription,
    SqlFilter,
    check_rule,
    write_rule,
)
from partibus.broker.rules.rule_set import CompiledRule
from partibus.store.catalog_file import CatalogFile

_COUNT_FILTERS = (
    "SELECT count(*) FROM rule JOIN entity ON entity.id = subscription"
    " WHERE topic = ? AND filter = ?"
)


class RuleTable:
    """All rules of all subscriptions, within the transaction of whoever asks."""

    __slots__ = ("_file",)

    def __init__(self, file: CatalogFile) -> None:
        self._file = file

    def add(
        self,
        topic: Entity,
        subscription: int,
        rule: RuleDescription,
        profile: Profile,
        number: int | None = None,
    ) -> None:
        """A new row; refused where the name is taken, or the topic has filters enough."""
        check_rule(rule)
        # Nothing is kept that could not be evaluated.
        CompiledRule(rule)
        if self._find(subscription, rule.name):
            raise EntityAlreadyExists(f"The subscription has a rule named '{rule.name}' already.")
        kind = type(rule.filter).__name__
        self._file.rows(
            "INSERT INTO rule(number, subscription, key, name, filter, description, created_ms)"
            " VALUES(?, ?, ?, ?, ?, ?, ?)",
            (number, subscription, rule.key, rule.name, kind, json.dumps(write_rule(rule)),
             rule.created_ms),
        )  # fmt: skip
        is_sql = isinstance(rule.filter, SqlFilter)
        most = profile.sql_filters_max if is_sql else profile.correlation_filters_max
        if not most or not isinstance(rule.filter, SqlFilter | CorrelationFilter):
            return
        ((count,),) = self._file.rows(_COUNT_FILTERS, (topic.id, kind))
        if count > most:
            raise QuotaExceeded(
                f"The subscriptions of '{topic.name}' have {most} rules with a {kind}, the most "
                f"that the profile {profile.name} allows."
            )

    def remove(self, subscription: Entity, name: str) -> tuple[int, int]:
        """Take a row out: the number and the age of what was there."""
        found = self._find(subscription.id, name)
        if found is None:
            raise EntityNotFound(f"There is no rule named '{name}' on '{subscription.name}'.")
        self._file.rows("DELETE FROM rule WHERE number = ?", (found[0],))
        return found

    def _find(self, subscription: int, name: str) -> tuple[int, int] | None:
        query = "SELECT number, created_ms FROM rule WHERE subscription = ? AND key = ?"
        found = self._file.rows(query, (subscription, name_key(name)))
        return (found[0][0], found[0][1]) if found else None
