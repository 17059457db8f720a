"""One pipeline while it runs: failures wait longer and longer, and orders are obeyed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline.running.pipeline import RESTART_LAST_MS, RunningPipeline
from partibus.pipeline_files import Order


@dataclass
class Progress:
    """What Spark tells of a batch."""

    timestamp: str
    batchId: int  # noqa: N815 - Spark's name
    numInputRows: int  # noqa: N815
    durationMs: dict[str, int] = field(default_factory=lambda: {"addBatch": 5})  # noqa: N815
    sources: tuple[Any, ...] = ()


@dataclass
class Query:
    """Stands for a query of Spark's, which takes seconds to have."""

    isActive: bool = True  # noqa: N815 - Spark's name
    failure: str = ""
    status: dict[str, str] = field(default_factory=lambda: {"message": "Waiting for data"})
    recentProgress: list[Progress] = field(default_factory=list)  # noqa: N815

    @property
    def lastProgress(self) -> Progress | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> str | None:
        return self.failure or None

    def stop(self) -> None:
        self.isActive = False

    def fail(self, text: str) -> None:
        self.isActive, self.failure = False, text

    def progress(self, batch: int, rows: int) -> None:
        self.recentProgress.append(Progress(f"2026-01-01T00:00:{batch:02}", batch, rows))


class Running:
    """A pipeline and every query that was started for it."""

    def __init__(self, trigger_ms: int = 1000) -> None:
        description = PipelineDescription(
            name="p", source="q", sql="SELECT 1", target="t", trigger_ms=trigger_ms
        )
        self.queries: list[Query] = []
        self.wrong = ""
        self.order = Order()
        self.now_ms = 0
        self.waiting: dict[int, int] | None = None
        self.asked = 0
        self.pipeline = RunningPipeline(description, self._start, self.order, self._ask)  # type: ignore[arg-type]

    def _ask(self) -> dict[int, int] | None:
        self.asked += 1
        return self.waiting

    def _start(self) -> Query:
        if self.wrong:
            raise ValueError(self.wrong)
        self.queries.append(Query())
        return self.queries[-1]

    def turn(self, after_ms: int = 1000) -> str:
        self.now_ms += after_ms
        self.pipeline.turn(self.order, self.now_ms)
        if self.pipeline.is_beginning:
            self.pipeline.turn(self.order, self.now_ms)
        return self.pipeline.state.state

    def give(self, *, paused: bool) -> None:
        self.order = Order(self.order.number + 1, paused)


def test_S5_each_failure_in_a_row_waits_twice_as_long() -> None:
    running = Running()
    running.wrong = "there is no such column"
    assert running.turn() == "failed"
    assert running.pipeline.state.error == "there is no such column"
    waits = []
    for _ in range(8):
        failures, began_ms = running.pipeline.state.failures, running.now_ms
        while running.pipeline.state.failures == failures:
            running.turn()
        waits.append(running.now_ms - began_ms)
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, RESTART_LAST_MS, RESTART_LAST_MS]


def test_S5_a_query_that_has_worked_since_fails_for_the_first_time() -> None:
    running = Running()
    for batch in range(3):
        running.turn()
        running.queries[-1].progress(batch, 10)
        running.queries[-1].fail(
            "the broker is gone\n  at java.lang.Thread.run\n=== Streaming Query ===\nIdentifier: p"
        )
        assert running.turn() == "failed"
        assert running.pipeline.state.error == "the broker is gone"
    assert (len(running.queries), running.pipeline.state.messages) == (3, 30)
    assert running.turn() == "running"


def test_S5_a_paused_pipeline_has_no_query_until_it_is_resumed() -> None:
    running = Running()
    running.turn()
    running.give(paused=True)
    assert running.turn() == "paused"
    assert not running.queries[0].isActive
    assert running.turn(100_000) == "paused"
    running.give(paused=False)
    assert running.turn() == "running"
    assert len(running.queries) == 2


def test_S5_one_that_has_finished_runs_again_when_it_is_told_to() -> None:
    running = Running(trigger_ms=0)
    running.turn()
    running.queries[0].isActive = False
    assert running.turn() == "finished"
    assert running.turn(100_000) == "finished"
    running.give(paused=False)
    assert running.turn() == "running"


def test_S5_a_failed_one_is_tried_at_once_when_it_is_told_to() -> None:
    running = Running()
    running.wrong = "wrong"
    for _ in range(40):
        running.turn()
    running.wrong = ""
    running.give(paused=False)
    assert running.turn(1) == "running"


def test_S5_the_rate_is_that_of_the_last_minute() -> None:
    running = Running()
    running.turn()
    running.queries[0].progress(0, 120)
    running.turn()
    assert (running.pipeline.state.rate, running.pipeline.state.batch) == (2.0, 0)
    running.turn()
    assert running.pipeline.state.messages == 120
    running.turn(60_000)
    assert running.pipeline.state.rate == 0


def test_S5_a_pipeline_waits_while_another_begins_and_runs_when_spark_has_started_it() -> None:
    running = Running()
    running.pipeline.turn(Order(), 1, may_begin=False)
    assert (running.queries, running.pipeline.is_beginning) == ([], False)
    running.pipeline.turn(Order(), 2)
    running.queries[0].status["message"] = "Initializing sources"
    running.pipeline.turn(Order(), 3)
    assert (running.pipeline.state.state, running.pipeline.is_beginning) == ("starting", True)
    running.queries[0].status["message"] = "Processing new data"
    running.pipeline.turn(Order(), 4)
    assert (running.pipeline.state.state, running.pipeline.is_beginning) == ("running", False)


def test_S5_the_lag_of_a_paused_pipeline_goes_on_to_be_told() -> None:
    running = Running()
    running.turn()
    running.waiting = {1: 3, 2: 0}
    running.give(paused=True)
    running.turn(10_000)
    assert running.pipeline.state.lag_messages == 3
    running.waiting = {1: 3, 2: 40}
    running.turn(1000)
    asked = running.asked
    # Now and then, and not with every turn.
    for _ in range(5):
        running.turn(1000)
    assert running.asked == asked + 1
    assert running.pipeline.state.lag_messages == 43
    # Where nobody tells, what was told last stays.
    running.waiting = None
    running.turn(10_000)
    assert running.pipeline.state.lag_messages == 43
