"""Consuming an entity as a stream: the broker reserves each batch, and completes it afterwards.

Offsets count, for each fragment, the messages that the reader was given since it first began. The
broker gives the next ones when Spark asks where the next batch ends, and takes the place at which
that batch begins for an acknowledgement: Spark has done everything before it. A batch that is run
again after a crash is the same batch, because what is reserved does not change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from partibus.pipeline.door import Door, DoorUnavailable
from partibus.pipeline.lending import lent
from partibus.pipeline.offsets import DataLoss, Offsets
from partibus.pipeline.options import ReadOptions
from partibus.pipeline.reading import (
    FRAGMENTS_PAUSE_S,
    FRAGMENTS_S_MAX,
    IDLE_PAUSE_S,
    Ranges,
    freeze,
    partitions,
)

if TYPE_CHECKING:
    import pyarrow as pa

# More than the broker gives at once.
NO_LIMIT = 1 << 31


class ConsumingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that takes its messages out of the entity."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._door: Door | None = None
        # Of this start of the query; 0: the broker was not asked yet.
        self._epoch = 0
        self._told: dict[str, Any] = {}
        # Whether the broker was told in this start what is done.
        self._has_advanced = False
        # How many messages a query may still take that takes what is available now.
        self._left: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Connections do not travel to executors.
        return {**self.__dict__, "_door": None}

    # On the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins: with what its reader is not done with."""
        self._begin()
        return self._offsets("done").plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch takes."""
        most = self._options.messages_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next batch ends. Everything up to `start` is done: the broker is told."""
        given = Offsets.read(start)
        self._begin()
        self._check(given)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else NO_LIMIT
        if self._left is not None:
            most = min(most, self._left)
        end = self._next(given, most)
        # A query that ends when there is nothing new does not end because of who is not there.
        deadline_s = time.monotonic() + FRAGMENTS_S_MAX
        while self._left and end == given and (why := self._unavailable()):
            if time.monotonic() > deadline_s:
                raise DoorUnavailable(f"not all fragments can be consumed: {why}")
            time.sleep(FRAGMENTS_PAUSE_S)
            end = self._next(given, min(most, self._left))
        if given.until(end):
            return end.plain()
        if self._left is None:
            time.sleep(IDLE_PAUSE_S)
        return start

    def _next(self, start: Offsets, most: int) -> Offsets:
        before = self._offsets("last", start)
        self._advance(start, most)
        # A fragment that does not answer stays where it is.
        end = self._offsets("last", start)
        if self._left is not None:
            # What was reserved already was not free when it was counted.
            gained = sum(each.upto - each.after for each in before.until(end))
            self._left = max(self._left - gained, 0)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where it would end if all that is there were given, for who watches the lag."""
        positions = {
            each["fragment"]: each["last"] + each["free"]
            for each in self._told.get("fragments", ())
            if "last" in each
        }
        return Offsets(self._told.get("id", 0), self._told.get("incarnation", 0), positions).plain()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what is there now, and as much as that is."""
        self._begin()
        deadline_s = time.monotonic() + FRAGMENTS_S_MAX
        while why := self._unavailable():
            if time.monotonic() > deadline_s:
                raise DoorUnavailable(f"not all fragments can be consumed: {why}")
            time.sleep(FRAGMENTS_PAUSE_S)
            self._epoch = 0
            self._begin()
        self._left = sum(each.get("free", 0) for each in self._told["fragments"])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for each group of ranges."""
        if not self._has_advanced:
            # A batch of an earlier start runs again: the broker counts what was given in vain.
            self._begin()
            given = Offsets.read(start)
            self._check(given)
            self._advance(given, 0)
        ranges = Offsets.read(start).until(Offsets.read(end))
        return partitions(ranges, self._options) or [Ranges([])]

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to here is done; mostly the broker knows that already."""
        self._begin()
        self._advance(Offsets.read(end), 0)

    def stop(self) -> None:
        """Spark does not always call this. What is reserved stays so for the next start."""
        if self._door is not None:
            self._door.close()

    def _begin(self) -> None:
        """Get an epoch: another driver with the same reader may not go on from here."""
        if self._door is None:
            self._door = Door(self._options.place)
        if not self._epoch:
            self._told = self._door.ask("POST", self._path())
            self._epoch = self._told["epoch"]

    def _unavailable(self) -> str:
        """What the first fragment says that does not answer; empty where all do."""
        found = [each["unavailable"] for each in self._told["fragments"] if "unavailable" in each]
        return str(found[0]) if found else ""

    def _path(self) -> str:
        return f"/consumers/{quote(self._options.reader_name, safe='')}"

    def _advance(self, done: Offsets, most: int) -> None:
        assert self._door is not None
        query = {"epoch": str(self._epoch), "most": str(most)}
        body = json.dumps(done.positions).encode()
        self._told = self._door.ask("PUT", self._path(), query, body)
        self._has_advanced = True

    def _offsets(self, which: str, known: Offsets | None = None) -> Offsets:
        positions = dict(known.positions) if known else {}
        for each in self._told["fragments"]:
            if which in each:
                positions[each["fragment"]] = each[which]
        return Offsets(self._told["id"], self._told["incarnation"], dict(sorted(positions.items())))

    def _check(self, start: Offsets) -> None:
        """Refuse a checkpoint that does not belong to what the broker knows of the reader."""
        name = self._options.reader_name
        advice = "start with a new checkpoint"
        if (start.entity, start.incarnation) != (self._told["id"], self._told["incarnation"]):
            raise DataLoss(f"the entity was deleted and made again since this query ran; {advice}")
        for each in self._told["fragments"]:
            at = start.positions.get(each["fragment"], 0)
            if "last" in each and not each["done"] <= at <= each["last"]:
                raise DataLoss(
                    f"the checkpoint of this query is at {at} in fragment {each['fragment']}, but "
                    f"the reader '{name}' is done with {each['done']} and was given up to "
                    f"{each['last']}: the reader was removed, or used with another checkpoint, or "
                    f"one of the two is an older copy; {advice}"
                )

    # In an executor ---------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        assert isinstance(partition, Ranges)
        freeze()
        with lent(self._options.place) as door:
            for each in partition.ranges:
                yield from door.reserved(each, self._columns, self._options.reader_name)
