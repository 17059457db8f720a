"""A power cut tears the file of a store, and what was committed is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.store import StoreError
from partibus.testing.contracts import PLENTY, made_changes, made_entry
from partibus.testing.disk import DiskCrashed
from partibus.testing.file_disk import FileDisk, FileStore


def send(store: FileStore, position: int) -> None:
    changes = made_changes(1, created=not store.fragments())
    changes.added = [made_entry(position)]
    store.commit([changes])


def positions(store: FileStore) -> list[int]:
    return [entry.position for entry in store.scan(1, 0, 1_000, PLENTY)]


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_commit_is_there_whole_or_not_at_all(seed: int, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "store.sqlite", seed)
    accepted: list[int] = []
    for position in range(1, 24, 2):
        store = disk.open()
        assert positions(store) == accepted
        send(store, position)
        accepted.append(position)
        disk.crash_in_commit(keeps=False)
        with pytest.raises(DiskCrashed):
            send(store, position + 1)
        with pytest.raises(StoreError):
            send(store, position + 2)
        reopened = disk.open()
        assert positions(reopened) in (accepted, [*accepted, position + 1])
        accepted = positions(reopened)
        reopened.check()
        reopened.close()


def test_a_commit_that_was_synced_outlives_the_power(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "store.sqlite")
    store = disk.open()
    disk.crash_in_commit(keeps=True)
    with pytest.raises(DiskCrashed):
        send(store, 1)
    assert positions(disk.open()) == [1]
    disk.crash()
