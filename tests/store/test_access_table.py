"""Access rules in the catalog: bounded in number, and always a way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.broker.errors import InvalidOperation, QuotaExceeded
from partibus.store.access_table import ACCESS_RULES_MAX
from partibus.store.catalog import ROOT_RULE, Catalog, NamespaceSettings


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    settings = NamespaceSettings("test", 2, "standard")
    return Catalog.make(tmp_path / "catalog.sqlite", settings, lambda: "a2V5")


def test_the_namespace_keeps_a_rule_that_may_manage_it(catalog: Catalog) -> None:
    before = catalog.load().rules_of()
    with pytest.raises(InvalidOperation, match="Manage"):
        catalog.delete_access_rule(ROOT_RULE)
    with pytest.raises(InvalidOperation, match="Manage"):
        catalog.put_access_rule(AccessRule(ROOT_RULE, "a", "b", Right.SEND))
    assert catalog.load().rules_of() == before
    catalog.put_access_rule(AccessRule("other", "a", "b", ~Right(0)))
    catalog.delete_access_rule(ROOT_RULE)
    assert [each.name for each in catalog.load().rules_of()] == ["other"]


def test_there_are_only_so_many(catalog: Catalog) -> None:
    for number in range(ACCESS_RULES_MAX - 1):
        catalog.put_access_rule(AccessRule(f"r{number}", "a", "b", Right.SEND))
    with pytest.raises(QuotaExceeded):
        catalog.put_access_rule(AccessRule("more", "a", "b", Right.SEND))
    assert len(catalog.load().rules_of()) == ACCESS_RULES_MAX
