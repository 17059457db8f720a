from __future__ import annotations

from pathlib import Path

from partibus.broker.message import Incoming
from partibus.store.staged import label, list_staged
from partibus.store.staging import StagedWriter, Staging, staged_name


def stage(staging: Staging, place: Path, attempt: str, *fragments: int) -> None:
    staging.prepare(place, attempt)
    writer = StagedWriter(place / staged_name(attempt))
    for fragment in fragments:
        writer.add(fragment, Incoming(b"bare", b"", 0, 0, 0, None, None, b"\xa1\x01a"))
    writer.finish()


def test_S1_what_is_staged_is_told_by_writer_and_batch_until_it_is_published(
    tmp_path: Path,
) -> None:
    staging = Staging(tmp_path)
    place = staging.place((7, 1), "job", 3)
    stage(staging, place, "a-1", 1, 2)
    stage(staging, place, "b-1", 1)
    label(place, 7, "job")
    label(place, 8, "too late")

    (batch,) = list_staged(tmp_path)
    assert batch[:4] == (7, "job", 3, 2)
    assert batch.bytes == sum(path.stat().st_size for path in place.iterdir())
    assert (batch.is_decided, batch.since_ms > 0) == (False, True)

    staging.decide(place, {"b-1": {"1": 1}})
    assert list_staged(tmp_path)[0].is_decided
    staging.finish(place)
    assert list_staged(tmp_path) == []


def test_S1_what_has_no_label_is_told_all_the_same(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    stage(staging, staging.place((7, 1), "job", 3), "a", 1)
    (batch,) = list_staged(tmp_path)
    assert batch[:4] == (0, "", 3, 1)
    assert list_staged(tmp_path / "nothing") == []
