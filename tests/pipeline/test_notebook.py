"""The notebook of the examples runs from top to bottom, and does what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from partibus.testing.serve import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "orders_in_spark.ipynb"


def test_S1_the_notebook_runs(
    spark: SparkSession, broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", broker.connection_string)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["captured"] == [100, 100]
    assert sorted(names["received"]) == [
        '{"region":"east","total":1250}',
        '{"region":"north","total":1200}',
        '{"region":"south","total":1225}',
        '{"region":"west","total":1275}',
    ]
