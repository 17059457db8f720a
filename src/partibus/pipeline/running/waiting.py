"""How many messages wait for a pipeline, also while no query of it runs.

Where the pipeline is stands in its checkpoint: at the end of the last batch that was committed.
Where its source ends, the broker says. The difference is what a query would find to do.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline.door import Door, DoorRefused, DoorUnavailable
from partibus.pipeline.offsets import Offsets, Standing
from partibus.pipeline.options import CONSUME, EARLIEST, ReadOptions, read_options
from partibus.pipeline.running.query import source_options

# Who asks has other things to do: once, and not for long.
TIMEOUT_S = 2.0
# Spark's file of a batch: its version, what it knew, then the offsets of each source.
_OFFSETS_LINE = 2


def waiting(
    pipeline: PipelineDescription, connection_string: str, checkpoint: Path
) -> dict[int, int] | None:
    """Messages by fragment that the pipeline has not done; None where that is not known now."""
    options = read_options(source_options(pipeline, connection_string))
    place = replace(options.place, timeout_s=TIMEOUT_S)
    try:
        with Door(place, tries_max=1) as door:
            told = door.positions(None, "" if options.mode == CONSUME else options.reader_name)
    except (DoorRefused, DoorUnavailable):
        return None
    if options.mode == CONSUME:
        # What it is done with has left the source.
        return {each["fragment"]: each.get("active", 0) for each in told["fragments"]}
    return _behind(options, Standing.read(told), done_until(checkpoint))


def _behind(
    options: ReadOptions, standing: Standing, done: Offsets | None
) -> dict[int, int] | None:
    if done is None or not done.is_same_life(standing):
        if options.starting != EARLIEST:
            return None
        done = standing.begin()
    return {
        # What was completed and not kept is not waited for.
        each.number: max(each.last - max(done.positions.get(each.number, 0), each.first - 1), 0)
        for each in standing.fragments
    }


def done_until(checkpoint: Path) -> Offsets | None:
    """Where the last batch ended that was committed; None where there is none."""
    try:
        batches = [int(each.name) for each in (checkpoint / "commits").iterdir() if _is_one(each)]
        if not batches:
            return None
        lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
        found: Any = json.loads(lines[_OFFSETS_LINE])
        return Offsets.read(found)
    except (FileNotFoundError, IndexError, KeyError, TypeError, ValueError):
        # Not begun yet; or Spark writes it otherwise, and will say itself what it thinks of it.
        return None


def _is_one(file: Path) -> bool:
    return file.name.isdigit()
