"""The files between a namespace and the process that runs its pipelines."""

from __future__ import annotations

from pathlib import Path

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline_files import (
    DOWN,
    RUNNING,
    SILENT_MS,
    STARTING,
    Declared,
    Lag,
    PipelineFiles,
    PipelineState,
    Reading,
)

PIPELINE = PipelineDescription(name="Sums", source="orders", sql="SELECT 1", target="sums")
DECLARED = Declared(pipelines=(PIPELINE,), connection_string="Endpoint=sb://localhost;Key=secret")
STATE = PipelineState(name="Sums", state=RUNNING, lag=(Lag(1, 3), Lag(2, 4)))


def test_S5_what_was_declared_is_for_the_owner_only(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    assert files.declared() is None
    assert files.states(0) == ()
    files.declare(DECLARED)
    assert files.declared() == DECLARED
    assert {path.stat().st_mode & 0o777 for path in files.directory.iterdir()} == {0o600}


def test_S5_a_process_that_tells_nothing_is_down(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    files.declare(DECLARED)
    assert [each.state for each in files.states(10**12)] == [STARTING]
    files.tell((STATE,), 1000)
    (state,) = files.states(1000 + SILENT_MS)
    assert (state.state, state.lag_messages) == (RUNNING, 7)
    assert [each.state for each in files.states(1001 + SILENT_MS)] == [DOWN]


def test_S5_an_order_holds_over_restarts_and_each_is_a_new_one(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    files.declare(DECLARED)
    before = files.order("Sums")
    files.give_order("Sums", paused=True)
    files.forget()
    files.declare(DECLARED)
    paused = files.order("sums")
    files.give_order("Sums", paused=False)
    resumed = files.order("Sums")
    assert [each.paused for each in (before, paused, resumed)] == [False, True, False]
    assert len({each.number for each in (before, paused, resumed)}) == 3


def test_S5_a_reader_of_a_pipeline_is_known_until_it_is_removed(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    assert files.left_over() == []
    other = PipelineDescription(
        name="other", source="Orders", sql="SELECT 1", target="sums",
        source_options={"readerName": "mine", "mode": "consume"},
    )  # fmt: skip
    nameless = PipelineDescription(
        name="nameless", source="orders", sql="SELECT 1", target="sums",
        source_options={"readerName": ""},
    )  # fmt: skip
    files.declare(Declared(pipelines=(PIPELINE, other, nameless), connection_string=""))
    files.give_order("other", paused=True)
    files.checkpoint("other").mkdir(parents=True)
    assert files.left_over() == []

    files.declare(DECLARED)
    assert files.left_over() == [Reading("other", "Orders", "mine", consumes=True)]
    assert files.left_over("sums") == []
    files.forget()
    assert [each.pipeline for each in files.left_over()] == ["Sums", "other"]
    # It goes on where it was when it comes back.
    files.declare(DECLARED)
    assert [each.pipeline for each in files.left_over()] == ["other"]

    files.remove(files.left_over("OTHER"))
    assert files.left_over() == []
    assert not files.checkpoint("other").exists()
    assert not files.order("other").paused


def test_S5_a_pipeline_with_another_source_leaves_a_reader_at_the_former(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    files.declare(DECLARED)
    files.checkpoint("Sums").mkdir(parents=True)
    moved = PipelineDescription(name="Sums", source="others", sql="SELECT 1", target="sums")
    files.declare(Declared(pipelines=(moved,), connection_string=""))
    files.remove(files.left_over("sums"))
    assert files.left_over() == []
    assert files.checkpoint("Sums").exists()
