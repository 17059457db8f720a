"""Commits of stores on one disk take turns, and a slow one does not hold up the others."""

from __future__ import annotations

from partibus.runtime.gate import COMMITS_AT_ONCE, PATIENCE_MS, Gate
from partibus.testing.clock import ManualClock


class Commits:
    """Commits that begin when they may, and end when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate = Gate(self.clock)
        self.begun: list[int] = []

    def begin(self, number: int) -> bool:
        self.begun.append(number)
        return True


def test_only_so_many_commits_run_at_once_and_the_next_begins_when_one_ends() -> None:
    commits = Commits()
    for _ in range(COMMITS_AT_ONCE + 2):
        commits.gate.enter(commits.begin)
    assert commits.begun == list(range(1, COMMITS_AT_ONCE + 1))
    commits.gate.leave(1)
    assert commits.begun == list(range(1, COMMITS_AT_ONCE + 2))


def test_a_commit_that_hangs_does_not_keep_the_others_waiting() -> None:
    commits = Commits()
    for _ in range(COMMITS_AT_ONCE + 1):
        commits.gate.enter(commits.begin)
    assert len(commits.begun) == COMMITS_AT_ONCE
    commits.clock.advance(PATIENCE_MS + 1)
    assert len(commits.begun) == COMMITS_AT_ONCE + 1


def test_who_finds_nothing_to_commit_gives_its_place_to_the_next() -> None:
    commits = Commits()
    for _ in range(3 * COMMITS_AT_ONCE):
        commits.gate.enter(lambda _: False)
    commits.gate.enter(commits.begin)
    assert len(commits.begun) == 1
