"""One pipeline while it runs: started, watched, started again when it fails, paused when asked.

The failure of one is no concern of the others. Time is an argument; who looks after it calls
`turn` about once a second.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline_files import (
    FAILED,
    FINISHED,
    PAUSED,
    RUNNING,
    STARTING,
    Lag,
    Order,
    PipelineState,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

RESTART_FIRST_MS = 1_000
RESTART_LAST_MS = 60_000
RATE_OVER_MS = 60_000
LAG_EVERY_MS = 5_000
ERROR_CHARACTERS_MAX = 600
MS_PER_S = 1000
# How begins what Spark says of a query whose source it has not started yet.
INITIALIZING = "Initializing"
# Spark's own errors end in a code, and then come plans of hundreds of columns.
_CODED = re.compile(r"^(.*?SQLSTATE: \w+).*", re.DOTALL)


class RunningPipeline:
    """A pipeline and its query."""

    def __init__(
        self,
        description: PipelineDescription,
        start: Callable[[], StreamingQuery],
        order: Order,
        waiting: Callable[[], dict[int, int] | None] = lambda: None,
    ) -> None:
        self.description = description
        self._start = start
        # Asks the broker how many messages of each fragment wait; None: it does not tell.
        self._waiting = waiting
        self._lag_ms = 0
        self._order = order
        self._query: StreamingQuery | None = None
        self._due_ms = 0
        self._failures_in_a_row = 0
        # The time of the last progress that was counted, as Spark writes it.
        self._seen = ""
        self._counted: deque[tuple[int, int]] = deque()
        self.state = PipelineState(name=description.name)

    @property
    def is_beginning(self) -> bool:
        """Whether Spark is still starting its query."""
        return self._query is not None and self.state.state == STARTING

    def turn(self, order: Order, now_ms: int, *, may_begin: bool = True) -> None:
        """See how it is, and do what is to be done; start a query only where it may begin now."""
        is_new = order.number != self._order.number
        self._order = order
        if order.paused:
            self._pause(now_ms)
            return
        if is_new and self._query is None:
            self._due_ms = now_ms
            self._failures_in_a_row = 0
            self._become(STARTING, now_ms)
        if self._query is not None:
            self._watch(self._query, now_ms)
        elif self.state.state == PAUSED:
            self._become(STARTING, now_ms)
        is_due = self.state.state != FINISHED and now_ms >= self._due_ms
        if self._query is None and is_due and may_begin:
            self._begin(now_ms)
        self._rate(now_ms)
        self._lag(now_ms)

    def stop(self) -> None:
        """End the query; what it was doing is done again when it begins anew."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def _pause(self, now_ms: int) -> None:
        if self._query is not None:
            self._count(self._query, now_ms)
            self.stop()
        if self.state.state != PAUSED:
            log.info("pipeline paused pipeline=%s", self.description.name)
            self._become(PAUSED, now_ms)
        self._due_ms = 0
        self._rate(now_ms)
        self._lag(now_ms)

    def _begin(self, now_ms: int) -> None:
        try:
            self._query = self._start()
        except Exception as error:  # noqa: BLE001 - its code is the user's, and may fail in any way
            self._fail(str(error) or type(error).__name__, now_ms)
            return
        self._become(STARTING, now_ms)

    def _watch(self, query: StreamingQuery, now_ms: int) -> None:
        # Asked before what it did is counted, so that nothing is left uncounted.
        is_active = query.isActive
        self._count(query, now_ms)
        if is_active:
            if self.is_beginning and not _is_initializing(query):
                log.info("pipeline started pipeline=%s", self.description.name)
                self._become(RUNNING, now_ms)
            return
        self._query = None
        error = query.exception()
        if error is not None:
            self._fail(str(error), now_ms)
        elif self.description.trigger_ms == 0:
            log.info("pipeline finished pipeline=%s", self.description.name)
            self._become(FINISHED, now_ms)
        else:
            self._fail("the query was stopped", now_ms)

    def _fail(self, error: str, now_ms: int) -> None:
        wait_ms = min(RESTART_FIRST_MS * 2**self._failures_in_a_row, RESTART_LAST_MS)
        self._failures_in_a_row += 1
        self._due_ms = now_ms + wait_ms
        text = _shortened(error)
        log.error(
            "pipeline failed, restarting it pipeline=%s wait_s=%d error=%s",
            self.description.name, wait_ms // MS_PER_S, text,
        )  # fmt: skip
        self._become(FAILED, now_ms)
        self._replace(failures=self.state.failures + 1, error=text)

    # What it has done -------------------------------------------------------------------------

    def _count(self, query: StreamingQuery, now_ms: int) -> None:
        last = query.lastProgress
        if last is None or str(last.timestamp) == self._seen:
            return
        from partibus.pipeline.lag import lag_of

        # Written alike, times compare as text.
        news = [each for each in query.recentProgress if str(each.timestamp) > self._seen]
        self._seen = str(last.timestamp)
        read = sum(each.numInputRows for each in news)
        done = [each for each in news if _has_run(each)]
        if done:
            self._failures_in_a_row = 0
            self._replace(batch=done[-1].batchId, batch_ms=_duration(done[-1]), error="")
        if read:
            self._counted.append((now_ms, read))
        self._replace(messages=self.state.messages + read)
        if found := lag_of(last):
            self._tell_lag(found, now_ms)

    def _lag(self, now_ms: int) -> None:
        """Where Spark has not told it for a while, the broker does: nobody may be running."""
        if now_ms - self._lag_ms >= LAG_EVERY_MS:
            self._lag_ms = now_ms
            found = self._waiting()
            if found is not None:
                self._tell_lag(found, now_ms)

    def _tell_lag(self, found: dict[int, int], now_ms: int) -> None:
        self._lag_ms = now_ms
        self._replace(lag=tuple(Lag(*each) for each in sorted(found.items())))

    def _rate(self, now_ms: int) -> None:
        while self._counted and self._counted[0][0] <= now_ms - RATE_OVER_MS:
            self._counted.popleft()
        read = sum(number for _, number in self._counted)
        self._replace(rate=round(read * MS_PER_S / RATE_OVER_MS, 3))

    def _become(self, state: str, now_ms: int) -> None:
        self._replace(state=state, since_ms=now_ms)

    def _replace(self, **changes: Any) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)


def _is_initializing(query: StreamingQuery) -> bool:
    return str(query.status["message"]).startswith(INITIALIZING)


def _has_run(progress: Any) -> bool:
    """Whether this is about a batch, and not about having waited for one."""
    return bool(progress.numInputRows) or "addBatch" in progress.durationMs


def _duration(progress: Any) -> int:
    return int(progress.durationMs.get("triggerExecution", 0))


def _shortened(error: str) -> str:
    """What a person wants to know of it: Spark's texts go on with plans and where it happened."""
    error = error.partition("=== Streaming Query ===")[0]
    error = _CODED.sub(r"\1", error, count=1)
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace"))]
    return " ".join(useful)[:ERROR_CHARACTERS_MAX] or "unknown"
