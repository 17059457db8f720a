"""What waits for a pipeline, asked of a broker, while no query runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partibus.broker.partitioning import index_of
from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline.door import Door
from partibus.pipeline.options import Place

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'partibus[spark]'")

from partibus.pipeline.running.waiting import done_until, waiting

if TYPE_CHECKING:
    from tests.pipeline.conftest import Queue


def pipeline(queue: Queue, **options: str) -> PipelineDescription:
    return PipelineDescription(
        name="p", source=queue.name, sql="SELECT 1", target="t", source_options=options
    )


def commit(queue: Queue, checkpoint: Path, batch: int, positions: dict[int, int]) -> None:
    """As Spark leaves a batch behind."""
    with Door(Place(queue.broker.connection_string, queue.name)) as door:
        told = door.positions()
    offsets = {"entity": told["id"], "incarnation": told["incarnation"], "positions": positions}
    for name, text in (
        ("offsets", f"v1\n{{}}\n{json.dumps(offsets)}"),
        ("commits", "v1\n{}"),
    ):
        (checkpoint / name).mkdir(exist_ok=True, parents=True)
        (checkpoint / name / str(batch)).write_text(text)
        (checkpoint / name / f".{batch}.crc").write_text("")


def test_S5_what_waits_is_what_the_checkpoint_has_not_and_the_source_has(
    queue: Queue, tmp_path: Path
) -> None:
    where = queue.broker.connection_string
    fragment = index_of("k", 16) + 1
    queue.send("a", "b", "c", key="k")
    assert done_until(tmp_path) is None
    assert sum((waiting(pipeline(queue), where, tmp_path) or {}).values()) == 3
    assert waiting(pipeline(queue, startingOffsets="latest"), where, tmp_path) is None

    commit(queue, tmp_path, 9, {fragment: 1})
    commit(queue, tmp_path, 10, {fragment: 2})
    # The offsets of a batch that was not committed do not count.
    (tmp_path / "offsets" / "11").write_text("v1\n{}\n{}")
    assert (waiting(pipeline(queue), where, tmp_path) or {})[fragment] == 1

    # What is completed is gone, unless it is kept for the pipeline's reader.
    queue.received()
    assert (waiting(pipeline(queue), where, tmp_path) or {})[fragment] == 0
    with Door(Place(where, queue.name)) as door:
        door.move("pipeline-p", {fragment: 2})
    queue.send("d", key="k")
    queue.received()
    assert (waiting(pipeline(queue), where, tmp_path) or {})[fragment] == 1


def test_S5_what_waits_for_a_consuming_pipeline_is_what_is_there(
    queue: Queue, tmp_path: Path
) -> None:
    queue.send("a", "b", key="k")
    found = waiting(pipeline(queue, mode="consume"), queue.broker.connection_string, tmp_path)
    assert sum((found or {}).values()) == 2


def test_S5_where_nobody_answers_nothing_is_told(
    make_queue: Callable[..., Queue], tmp_path: Path
) -> None:
    queue = make_queue()
    queue.broker.delete_queue(queue.name)
    assert waiting(pipeline(queue), queue.broker.connection_string, tmp_path) is None
    nobody = "Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true"
    assert waiting(pipeline(queue), nobody, tmp_path) is None
