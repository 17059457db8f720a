"""The pipelines of a broker, told to an operator. How they run is shown elsewhere, with Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline.door import Door
from partibus.pipeline.options import Place
from partibus.pipeline_files import RUNNING, Declared, Lag, PipelineFiles, PipelineState
from partibus.testing.serve import LiveBroker

KEY_OF_FRAGMENT_1 = "k8"
SUMS = PipelineDescription(name="sums", source="orders", sql="SELECT 1", target="totals")
STATE = PipelineState(name="sums", state=RUNNING, messages=70, rate=1.5, lag=(Lag(1, 2),))


@pytest.fixture
def files(broker: LiveBroker) -> Iterator[PipelineFiles]:
    """What a process with Spark would have written."""
    files = PipelineFiles(broker.data)
    files.declare(Declared(pipelines=(SUMS,), connection_string="Endpoint=sb://localhost"))
    files.tell((STATE,), round(time.time() * 1000))
    yield files
    files.forget()
    files.remove(files.left_over())


def test_S5_pipelines_are_listed_and_shown(
    partibus: Callable[..., Any], files: PipelineFiles
) -> None:
    (row,) = json.loads(partibus("pipeline", "list", "--output", "json").out)
    assert (row["state"], row["messages"], row["lag"]) == ("running", 70, 2)
    shown = partibus("pipeline", "show", "sums").out
    assert "SELECT 1" in shown
    assert partibus("pipeline", "show", "none").code == 8


def test_S5_a_pipeline_is_paused_until_it_is_resumed(
    partibus: Callable[..., Any], files: PipelineFiles
) -> None:
    assert partibus("pipeline", "pause", "sums").code == 0
    assert files.order("sums").paused
    assert partibus("pipeline", "resume", "SUMS").code == 0
    assert not files.order("sums").paused


def test_S5_nothing_is_kept_for_a_pipeline_that_was_removed(
    partibus: Callable[..., Any], files: PipelineFiles, broker: LiveBroker
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    broker.create_queue("orders", enable_partitioning=True)
    with Door(Place(broker.connection_string, "orders")) as door:
        # As its query would have left it.
        door.move("pipeline-sums", {1: 0})
    refused = partibus("pipeline", "remove", "sums", "--yes")
    assert (refused.code, "is in the configuration" in refused.err) == (8, True)

    # Taken out of the file.
    files.forget()
    partibus("send", "orders", "--lines", "--key", KEY_OF_FRAGMENT_1, stdin="a\nb\n")
    (row,) = json.loads(partibus("pipeline", "list", "--output", "json").out)
    assert (row["name"], row["state"], row["lag"]) == ("sums", "removed", 2)
    assert "partibus pipeline remove sums" in row["error"]
    assert partibus("pipeline", "remove", "sums", "--yes").code == 0
    assert json.loads(partibus("pipeline", "list", "--output", "json").out) == []
    assert json.loads(partibus("reader", "list", "orders", "--output", "json").out) == []
    assert partibus("pipeline", "remove", "sums", "--yes").code == 8
