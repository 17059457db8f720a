"""The simulated disk fails as disks do, and the same way every time."""

from __future__ import annotations

import pytest

from partibus.store import StoreError, StoreInUse
from partibus.testing.contracts import PLENTY, made_changes, made_entry
from partibus.testing.disk import Chances, DiskCrashed, SimulatedDisk, SimulatedStore


def send(store: SimulatedStore, position: int) -> None:
    """Commit one entry."""
    changes = made_changes(1, created=not store.fragments())
    changes.added = [made_entry(position)]
    store.commit([changes])


def positions(store: SimulatedStore) -> list[int]:
    """All positions on the disk."""
    return [entry.position for entry in store.scan(1, 0, 1_000, PLENTY)]


def test_a_crash_keeps_what_was_committed_and_ends_the_store() -> None:
    disk = SimulatedDisk()
    store = disk.open()
    send(store, 1)
    disk.crash()
    with pytest.raises(StoreError):
        positions(store)
    with pytest.raises(StoreError):
        send(store, 2)
    assert positions(disk.open()) == [1]


@pytest.mark.parametrize(("keeps", "kept"), [(False, [1]), (True, [1, 2])])
def test_a_crash_in_a_commit_keeps_all_of_it_or_nothing(keeps: bool, kept: list[int]) -> None:
    disk = SimulatedDisk()
    store = disk.open()
    send(store, 1)
    disk.crash_in_commit(keeps=keeps)
    with pytest.raises(DiskCrashed):
        send(store, 2)
    assert positions(disk.open()) == kept


def test_a_failed_commit_leaves_nothing_and_the_next_may_succeed() -> None:
    disk = SimulatedDisk()
    store = disk.open()
    disk.fail(2)
    for _ in range(2):
        with pytest.raises(StoreError):
            send(store, 1)
        assert positions(store) == []
    send(store, 1)
    assert positions(store) == [1]


def test_a_stalled_commit_takes_effect_after_its_time() -> None:
    waited: list[tuple[int, int]] = []
    disk = SimulatedDisk(wait=lambda stall_ms: waited.append((stall_ms, len(positions(store)))))
    store = disk.open()
    disk.stall(1_500)
    send(store, 1)
    send(store, 2)
    assert waited == [(1_500, 0)]


def test_a_disk_has_one_open_store() -> None:
    disk = SimulatedDisk()
    store = disk.open()
    with pytest.raises(StoreInUse):
        disk.open()
    store.close()
    disk.open().close()


def test_a_seed_decides_all_faults() -> None:
    def history(seed: int) -> list[str]:
        disk = SimulatedDisk(seed, Chances(fail=0.2, crash=0.1, stall=0.2), lambda _: None)
        store, story = disk.open(), []
        for position in range(1, 100):
            try:
                send(store, position)
                story.append("kept")
            except DiskCrashed:
                store = disk.open()
                story.append("crash")
            except StoreError:
                story.append("fail")
        return [*story, *map(str, positions(store))]

    assert history(1) == history(1)
    assert history(1) != history(2)
    assert {"kept", "crash", "fail"} <= set(history(1))
