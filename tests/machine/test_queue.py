"""Whatever clients do to a queue, in whatever order, while the power fails: it is what a dict says.

The same machine on one fragment and on sixteen, on the memory store and on the SQLite store, whose
file a power cut tears. To let it run for longer, as `make chaos` does:

    MACHINE_EXAMPLES=2000 pytest tests/machine
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import TestCase

import pytest
from hypothesis import settings

from partibus.store.sqlite import SqliteStore
from partibus.testing.disk import SimulatedDisk
from partibus.testing.file_disk import FileDisk
from partibus.testing.little_room import LITTLE_ROOM
from partibus.testing.machine.transaction_rules import QueueMachine

EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "0"))
RUN = settings(
    max_examples=EXAMPLES or 15,
    stateful_step_count=50 if EXAMPLES else 30,
    derandomize=not EXAMPLES,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
)


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LITTLE_ROOM.items():
        monkeypatch.setattr(f"partibus.{name}", value)


@cache
def blank_file() -> tuple[Path, TemporaryDirectory[str]]:
    """An empty store, made once: most of an example's time would go into making files."""
    folder = TemporaryDirectory(prefix="partibus-blank-")
    path = Path(folder.name) / "blank.sqlite"
    SqliteStore(path).close()
    return path, folder


def files(folder: Path, count: int) -> Sequence[SimulatedDisk]:
    template, _ = blank_file()
    return [FileDisk(folder / f"{n}.sqlite", n, template) for n in range(count)]


class OnOneFragment(QueueMachine):
    fragments = 1


class OnSixteenFragments(QueueMachine):
    fragments = 16


class OnOneFragmentInAFile(OnOneFragment):
    make_disks = staticmethod(files)


class OnSixteenFragmentsInFiles(OnSixteenFragments):
    make_disks = staticmethod(files)


def case(machine: type[QueueMachine]) -> type[TestCase]:
    """The test that pytest runs."""
    found = machine.TestCase
    found.settings = RUN
    return found


TestOnOneFragment = case(OnOneFragment)
TestOnSixteenFragments = case(OnSixteenFragments)
TestOnOneFragmentInAFile = case(OnOneFragmentInAFile)
TestOnSixteenFragmentsInFiles = case(OnSixteenFragmentsInFiles)
