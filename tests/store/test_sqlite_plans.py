"""Looking for messages must not read the whole file: every lookup goes by an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.store import statements
from partibus.store.sqlite import SqliteStore

PLANS = {
    "BROWSE": "INTEGER PRIMARY KEY",
    "BROWSE_SESSION": "message_session",
    "BROWSE_DEAD": "message_sequence",
    "FIND_DEAD": "message_sequence",
    "DUE": "message_due",
    "EXPIRING": "message_expires",
}


@pytest.mark.parametrize("name", PLANS)
def test_a_lookup_uses_its_index(name: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite", "test")
    text = getattr(statements, name)
    values = (1, 1, 1, 1)[: 4 if "?4" in text else text.count("?")]
    plan = list(store._cursor.execute(f"EXPLAIN QUERY PLAN {text}", values))
    store.close()
    steps = [str(row[3]) for row in plan]
    assert any("SEARCH message" in step and PLANS[name] in step for step in steps), steps
    assert not any("SCAN message" in step or "TEMP B-TREE" in step for step in steps), steps
