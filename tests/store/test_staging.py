from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.blocks import Block, arrange
from partibus.broker.message import Incoming
from partibus.store import StoreDamaged, StoreError
from partibus.store.staging import (
    CHUNK_MESSAGES,
    NotStaged,
    StagedReader,
    StagedWriter,
    Staging,
    files_of,
    staged_name,
)


def message(number: int) -> Incoming:
    return Incoming(b"bare %d" % number, b"", 0, 0, 0, None, None, b"\xa1\x01a")


def staged(path: Path, count: int, fragment: int = 1) -> None:
    writer = StagedWriter(path)
    for number in range(count):
        writer.add(fragment, message(number))
        writer.add(9, message(-1))
    writer.finish()


def read(reader: StagedReader) -> list[bytes]:
    found: list[bytes] = []
    while staged := reader.next():
        messages = staged.messages() if isinstance(staged, Block) else staged
        found += [each.bare for each in messages]
    return found


@pytest.mark.parametrize("skip", [0, 1, CHUNK_MESSAGES - 1, CHUNK_MESSAGES, 2500, 3000])
def test_S1_what_was_staged_is_read_from_any_message_on(tmp_path: Path, skip: int) -> None:
    staged(tmp_path / "a", 3000)
    assert read(StagedReader(tmp_path / "a", 1, skip)) == [
        b"bare %d" % n for n in range(skip, 3000)
    ]


@pytest.mark.parametrize("skip", [0, 1, 99, 100, 150, 300])
def test_S1_blocks_are_read_in_the_order_in_which_they_were_staged(
    tmp_path: Path, skip: int
) -> None:
    """Between messages that were staged one by one, from any message on."""
    bodies = [b"bare %d" % number for number in range(300)]
    writer = StagedWriter(tmp_path / "a")
    for number in range(50):
        writer.add(1, message(number))
    block = Block(
        arrange([len(each) for each in bodies[50:250]], [0] * 200), b"".join(bodies[50:250])
    )
    writer.append(1, block)
    writer.append(2, Block(arrange([3], [0]), b"abc"))
    for number in range(250, 300):
        writer.add(1, message(number))
    writer.finish()
    assert writer.counts == {1: 300, 2: 1}
    assert read(StagedReader(tmp_path / "a", 1, skip)) == bodies[skip:]
    assert read(StagedReader(tmp_path / "a", 2)) == [b"abc"]


def test_S1_a_damaged_or_missing_file_is_told_from_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    staged(path, 10)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        read(StagedReader(path, 9))
    with pytest.raises(StoreError):
        read(StagedReader(tmp_path / "b", 1))


def test_S1_nothing_is_left_of_what_was_not_finished(tmp_path: Path) -> None:
    writer = StagedWriter(tmp_path / "a")
    writer.add(1, message(1))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_S1_the_first_decision_holds(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    place = staging.place((1, 1), "query", 7)
    with pytest.raises(NotStaged, match="was not staged"):
        staging.decide(place, {"a": {"1": 10}})
    staged(place / staged_name("a"), 10)
    assert staging.decide(place, {"a": {"1": 10}}) == {"a": {"1": 10}}
    assert staging.decide(place, {"b": {"2": 10}}) == {"a": {"1": 10}}
    assert list(files_of(place, {"a": {"1": 10}})) == [(1, place / staged_name("a"), 10)]


def test_S1_a_published_batch_is_over_for_good(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    place = staging.place((1, 1), "query", 7)
    staging.prepare(place, "a")
    assert not staging.is_done(place)
    staging.decide(place, {"a": {}})
    staging.finish(place)
    assert staging.is_done(place)
    assert staging.is_done(staging.place((1, 1), "query", 6))
    assert not staging.is_done(staging.place((1, 1), "query", 8))
    assert not staging.is_done(staging.place((1, 2), "query", 7))
    assert not place.exists()


def test_S1_an_attempt_that_is_decided_on_is_not_discarded(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    place = staging.place((1, 1), "query", 1)
    staging.prepare(place, "a")
    staged(place / staged_name("a"), 5, 3)
    staging.decide(place, {"a": {"3": 5}})
    staging.discard(place, "a")
    assert (place / staged_name("a")).exists()
    undecided = staging.place((1, 1), "query", 2)
    staging.prepare(undecided, "a")
    staged(undecided / staged_name("a"), 5)
    staging.discard(undecided, "a")
    assert not (undecided / staged_name("a")).exists()


def test_S1_what_nobody_decided_on_is_swept_in_time(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    old = staging.place((1, 1), "query", 1)
    staging.prepare(old, "a")
    kept = staging.place((1, 1), "query", 2)
    staging.decide(kept, {})
    assert staging.sweep(0) == 0
    assert staging.sweep(1e12) == 1
    assert not old.exists()
    assert kept.exists()


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a.b", "x" * 129])
def test_S1_a_name_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    staging = Staging(tmp_path)
    with pytest.raises(ValueError, match="letters, digits and dashes"):
        staging.prepare(tmp_path / "1", name)
