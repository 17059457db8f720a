"""How far streaming queries are behind: positions per fragment that wait to be read.

Spark's progress says where a batch ended and where the entity ends; the difference is the lag. A
position may belong to a message that was completed meanwhile, so the lag is an upper bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

# The lag by fragment.
Lag = dict[int, int]
Report = Callable[[str, Lag], None]


def lag_of(progress: Any) -> Lag:
    """The lag of a query after a batch, over all of its sources of this format."""
    lag: Lag = {}
    for source in progress.sources:
        end, latest = _positions(source.endOffset), _positions(source.latestOffset)
        for fragment, last in latest.items():
            behind = max(last - end.get(fragment, 0), 0)
            lag[int(fragment)] = lag.get(int(fragment), 0) + behind
    return lag


def _positions(text: str | None) -> dict[str, int]:
    """The positions in an offset; none where it is another source's."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return {}
    positions = found.get("positions") if isinstance(found, dict) else None
    return positions if isinstance(positions, dict) else {}


class LagListener(StreamingQueryListener):
    """Tells the lag of every query after every batch, under its name or else its id.

    `spark.streams.addListener(LagListener(print))`
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        progress = event.progress
        lag = lag_of(progress)
        if lag:
            self._report(progress.name or str(progress.id), lag)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """There was nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The query is over."""
