"""The access rules of the namespace and of entities in the catalog's file.

Transactions and versions are the catalog's.
"""

from __future__ import annotations

from partibus.broker.access import AccessRule, Right
from partibus.broker.errors import InvalidOperation, QuotaExceeded
from partibus.store.catalog_file import CatalogFile
from partibus.store.snapshot import NAMESPACE

ACCESS_RULES_MAX = 12


class AccessTable:
    """All access rules, within the transaction of whoever asks."""

    __slots__ = ("_file",)

    def __init__(self, file: CatalogFile) -> None:
        self._file = file

    def put(self, scope: int, rule: AccessRule) -> None:
        """Add or replace a rule; refused where there are enough."""
        self._file.rows(
            "INSERT OR REPLACE INTO access_rule(scope, name, primary_key, secondary_key, rights)"
            " VALUES(?, ?, ?, ?, ?)",
            (scope, rule.name, rule.primary_key, rule.secondary_key, _write_rights(rule.rights)),
        )
        ((count,),) = self._file.rows("SELECT count(*) FROM access_rule WHERE scope = ?", (scope,))
        if count > ACCESS_RULES_MAX:
            raise QuotaExceeded(f"There can be at most {ACCESS_RULES_MAX} access rules here.")
        self._check_way_in(scope)

    def remove(self, scope: int, name: str) -> None:
        """Remove a rule; harmless where there is none of this name."""
        self._file.rows("DELETE FROM access_rule WHERE scope = ? AND name = ?", (scope, name))
        self._check_way_in(scope)

    def _check_way_in(self, scope: int) -> None:
        """Without a rule that may manage it nobody could make another."""
        query = "SELECT count(*) FROM access_rule WHERE scope = ? AND rights LIKE '%MANAGE%'"
        if scope == NAMESPACE and self._file.rows(query, (scope,)) == [(0,)]:
            raise InvalidOperation("The namespace must keep a rule with the right Manage.")

    def remove_all(self, scope: int) -> None:
        """Remove the rules of an entity that is gone."""
        self._file.rows("DELETE FROM access_rule WHERE scope = ?", (scope,))


def _write_rights(rights: Right) -> str:
    return ",".join(right.name or "" for right in rights)
