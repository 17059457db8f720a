"""A process killed at any moment leaves the last commit it reported, or the one after it.

This file is also the program that is killed: run by itself, it commits to a store for ever, by a
plan in which the state after every commit is known, and prints the number of each commit.
"""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from partibus.broker.records import Changes, Entry, FragmentKey
from partibus.store.sqlite import SqliteStore
from partibus.testing.contracts import PLENTY

FRAGMENTS = (1, 2)
# Messages live for so many commits.
LIFE = 7


def added(commit: int) -> range:
    """The positions that a commit adds to each fragment: one, or many more than a bundle."""
    start = (commit - 1) // 2 * 101 + 1
    return range(start, start + 100) if commit % 2 else range(start + 100, start + 101)


def entry(number: int, position: int) -> Entry:
    """An entry whose content follows from its place."""
    content = b"%d/%d " % (number, position) * (position % 150)
    return Entry(position, position, content, b"kept", 1, position)


def planned(commit: int) -> list[Changes]:
    """The batch of one commit: new entries, and the end of old ones, in both fragments."""
    batch = []
    for number in FRAGMENTS:
        changes = Changes(number, FragmentKey(number, 1, 0, 0), created=commit == 1)
        changes.added = [entry(number, position) for position in added(commit)]
        if commit > LIFE:
            changes.removed = list(added(commit - LIFE))
        changes.counters.accepted = commit
        batch.append(changes)
    return batch


def expected(commit: int, number: int) -> list[tuple[int, bytes]]:
    """Positions and contents after a commit."""
    positions = [p for c in range(max(1, commit - LIFE + 1), commit + 1) for p in added(c)]
    return [(position, entry(number, position).bare) for position in positions]


@pytest.mark.parametrize("seed", range(6))
def test_everything_reported_is_there_and_nothing_is_half(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "store-00.sqlite"
    committed = 0
    # The same store is killed again and again, so that recovery builds on recovery.
    for _ in range(3):
        reported = run_and_kill(path, committed, after=chance.randrange(1, 120))
        with closing(SqliteStore(path)) as store:
            summaries = store.fragments()
            committed = summaries[0].counters.accepted
            assert committed in (reported, reported + 1)
            assert [s.counters.accepted for s in summaries] == [committed] * len(FRAGMENTS)
            for number in FRAGMENTS:
                found = [(e.position, e.bare) for e in store.scan(number, 0, 10_000, PLENTY)]
                assert found == expected(committed, number)
            store.check()


def run_and_kill(path: Path, committed: int, after: int) -> int:
    """Run this file, kill it once it has reported some commits; the last it reported."""
    child = subprocess.Popen(
        [sys.executable, __file__, str(path), str(committed)], stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(after)]
        child.kill()
        lines += child.stdout.readlines()
    # A line without an end was cut off with its process.
    return int([line for line in lines if line.endswith(b"\n")][-1])


def commit_for_ever(path: Path, committed: int) -> None:
    """Commit by plan and report, until killed."""
    store = SqliteStore(path)
    for commit in count(committed + 1):
        store.commit(planned(commit))
        sys.stdout.write(f"{commit}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    commit_for_ever(Path(sys.argv[1]), int(sys.argv[2]))
