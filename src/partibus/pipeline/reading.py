"""Reading an entity into Spark, at once or as a stream, without touching its messages.

The driver plans by positions, executors fetch ranges. Spark keeps the objects of driver and
executors apart: what a method sets here is not seen by `read`.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from partibus.pipeline.ahead import ahead
from partibus.pipeline.door import Door, DoorUnavailable, Range
from partibus.pipeline.lending import lent
from partibus.pipeline.offsets import DataLoss, Offsets, Standing, checked, limited, span
from partibus.pipeline.options import EARLIEST, LATEST, Positions, ReadOptions
from partibus.pipeline.planning import deal

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# Spark asks again and again while there is nothing new. The pause comes after a look, never before
# one: whoever sends and then waits for the query must not be told of an older look.
IDLE_PAUSE_S = 0.04
# How long a reader waits for fragments that do not answer, where it needs all of them.
FRAGMENTS_S_MAX = 30.0
FRAGMENTS_PAUSE_S = 0.5
# Said once by each start of a query that reads without a name.
NAMELESS = (
    "the stream from '%s' has no readerName: messages that consumers complete before Spark has "
    "read them are missing in it, also from a batch that is run again. Give it a name (the "
    "option readerName), and the broker keeps messages until it has passed; or say that this is "
    "meant, with an empty readerName"
)
# How often a named reader tells where it is, between its batches.
HOLD_S = 1.0


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_ranges(
    options: ReadOptions, columns: list[str], asked: Ranges
) -> Iterator[pa.RecordBatch]:
    """In an executor: the messages of some ranges."""
    freeze()
    with lent(options.place) as door:
        yield from ahead(_read(door, options, columns, asked))


def _read(
    door: Door, options: ReadOptions, columns: list[str], asked: Ranges
) -> Generator[pa.RecordBatch]:
    for each in asked.ranges:
        yield from door.messages(each, columns, options.reader_name)


def partitions(ranges: list[Range], options: ReadOptions) -> list[Ranges]:
    """The tasks that read these ranges."""
    cores = os.cpu_count() or 1
    groups = deal(
        ranges,
        cores,
        options.min_partitions,
        options.records_per_partition,
        options.fragments_per_task,
    )
    return [Ranges(group) for group in groups]


def whole_standing(door: Door, at_ms: int | None = None) -> Standing:
    """Where the entity stands, with all of its fragments."""
    deadline_s = time.monotonic() + FRAGMENTS_S_MAX
    while True:
        standing = Standing.read(door.positions(at_ms))
        if not standing.unavailable:
            return standing
        if time.monotonic() > deadline_s:
            number, why = next(iter(standing.unavailable.items()))
            raise DoorUnavailable(f"fragment {number} cannot be read: {why}")
        time.sleep(FRAGMENTS_PAUSE_S)


def boundary(door: Door, wanted: Positions, at_ms: int | None) -> Offsets:
    """The offsets that an option names."""
    standing = whole_standing(door, at_ms)
    if at_ms is not None:
        return standing.at_time()
    if wanted == EARLIEST:
        return standing.begin()
    if wanted == LATEST:
        return standing.end()
    assert isinstance(wanted, dict)
    unknown = wanted.keys() - {each.number for each in standing.fragments}
    if unknown:
        raise ValueError(
            f"there is no fragment {min(unknown)}; there are "
            f"{', '.join(str(each.number) for each in standing.fragments)}"
        )
    # Sequence numbers name the first message to read, and fragments not named begin at theirs.
    return standing.offsets(
        {**standing.begin().positions, **{number: max(at - 1, 0) for number, at in wanted.items()}}
    )


class BrowsingReader(DataSourceReader):
    """A batch read: everything between two boundaries."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each group of ranges."""
        options = self._options
        with Door(options.place) as door:
            start = boundary(door, options.starting or EARLIEST, options.starting_ms)
            end = boundary(door, options.ending, options.ending_ms)
        # A batch of nothing still needs its one task.
        return partitions(start.until(end), options) or [Ranges([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In an executor."""
        assert isinstance(partition, Ranges)
        return read_ranges(self._options, self._columns, partition)


class BrowsingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: each batch goes on where the last one ended."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._door: Door | None = None
        # As it was seen last.
        self._standing: Standing | None = None
        # Where a query ends that reads what is available now.
        self._target: Offsets | None = None
        self._waiting_since_s: float | None = None
        self._held_s = 0.0
        self._is_warned = False

    def __getstate__(self) -> dict[str, Any]:
        # Connections do not travel to executors.
        return {**self.__dict__, "_door": None, "_standing": None}

    # On the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        options = self._options
        start = boundary(self._doors(), options.starting or LATEST, options.starting_ms)
        if options.reader_name:
            self._doors().move(options.reader_name, start.positions)
        return start.plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch takes."""
        if self._options.messages_per_trigger:
            return ReadMaxRows(self._options.messages_per_trigger)
        if self._options.bytes_per_trigger:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next batch ends. Everything up to `start` is done."""
        end = self._latest(start, limit)
        if end is start and self._target is None:
            time.sleep(IDLE_PAUSE_S)
        return end

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        standing = self._standing = self._look()
        given = Offsets.read(start)
        if self._options.reader_name:
            self._hold(given, standing)
        elif not self._is_warned and not self._options.is_nameless_by_choice:
            # Spark asks here in one process beside the driver, whose errors are the driver's.
            self._is_warned = True
            log.warning(NAMELESS, self._options.place.entity)
        begin = checked(given, standing, fail=self._options.fail_on_data_loss)
        end = self._end(begin, standing)
        if self._is_too_little(span(begin, end)):
            return start
        most = self._most(limit, standing)
        if most is not None:
            end = limited(begin, end, most)
        if not span(begin, end) and given.is_same_life(end):
            # Spark compares texts: nothing new must be the same text.
            return start
        return end.plain()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the entity ends, for who watches the lag: asked for after every latestOffset."""
        return (self._standing or self._look()).end().plain()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what is there now, and nothing that comes later."""
        self._target = whole_standing(self._doors()).end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for each group of ranges."""
        ranges = Offsets.read(start).until(Offsets.read(end))
        return partitions(ranges, self._options) or [Ranges([])]

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to here is done: nothing of it need be kept for a named reader."""
        if self._options.reader_name:
            self._doors().move(self._options.reader_name, Offsets.read(end).positions)

    def stop(self) -> None:
        """Spark does not always call this."""
        if self._door is not None:
            self._door.close()

    def _doors(self) -> Door:
        if self._door is None:
            self._door = Door(self._options.place)
        return self._door

    def _look(self) -> Standing:
        standing = Standing.read(self._doors().positions(None, self._options.reader_name))
        for number, why in standing.unavailable.items():
            log.warning("fragment %d cannot be read now and is waited for: %s", number, why)
        return standing

    def _hold(self, start: Offsets, standing: Standing) -> None:
        """Tell the broker now and then how far we are; Spark's commit comes a batch late."""
        name, door = self._options.reader_name, self._doors()
        if standing.is_place_lost:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"the reader '{name}' was so far behind that the broker could not keep "
                    "messages for it any longer, so some may be gone; start with a new checkpoint "
                    "and another readerName, or set failOnDataLoss=false"
                )
            log.warning("the reader %r lost its place and may have missed messages", name)
            door.ask("DELETE", f"/readers/{quote(name, safe='')}")
        now_s = time.monotonic()
        # A query that ends by itself has no later time to tell it.
        is_time = self._target is not None or now_s - self._held_s >= HOLD_S
        if is_time and start.is_same_life(standing):
            self._held_s = now_s
            door.move(name, start.positions)

    def _end(self, begin: Offsets, standing: Standing) -> Offsets:
        # A fragment that does not answer stays where it is.
        positions = {**begin.positions, **standing.end().positions}
        target = self._target
        if target is not None and target.is_same_life(standing):
            positions = {
                number: max(
                    min(at, target.positions.get(number, 0)), begin.positions.get(number, 0)
                )
                for number, at in positions.items()
            }
        return standing.offsets(positions)

    def _is_too_little(self, available: int) -> bool:
        """Whether to wait for more messages."""
        least = self._options.min_messages_per_trigger
        if not least or self._target is not None or available >= least:
            self._waiting_since_s = None
            return False
        now_s = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        waited_ms = (now_s - self._waiting_since_s) * 1000
        if available and waited_ms >= self._options.max_trigger_delay_ms:
            self._waiting_since_s = None
            return False
        return True

    def _most(self, limit: ReadLimit, standing: Standing) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._options.bytes_per_trigger:
            messages = sum(each.messages for each in standing.fragments)
            size = sum(each.bytes for each in standing.fragments)
            fitting = max(self._options.bytes_per_trigger * messages // size, 1) if size else 1
            most = fitting if most is None else min(most, fitting)
        return most

    # In an executor ---------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        assert isinstance(partition, Ranges)
        return read_ranges(self._options, self._columns, partition)


_is_frozen = False


def freeze() -> None:
    """Spark's worker looks for garbage after every task; what lives now is none."""
    global _is_frozen
    if not _is_frozen:
        _is_frozen = True
        gc.collect()
        gc.freeze()
