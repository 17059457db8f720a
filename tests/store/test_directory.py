"""A data directory has one owner, knows its stores, and refuses what is not its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from partibus.store import StoreDamaged, StoreError, StoreInUse
from partibus.store.directory import DataDirectory, Layout, read_layout
from partibus.testing.contracts import made_changes, made_entry

STORES = 4


def made(path: Path, *directories: Path) -> Layout:
    """Make a data directory and let it go again."""
    owner = DataDirectory(path, directories, STORES)
    owner.release()
    return owner.layout


def test_a_new_directory_is_private_and_holds_its_stores(tmp_path: Path) -> None:
    layout = made(tmp_path / "data")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    names = [layout.store_path(store).name for store in range(STORES)]
    assert names == [f"store-{store:02d}.sqlite" for store in range(STORES)]
    for store in range(STORES):
        assert layout.store_path(store).stat().st_mode & 0o777 == 0o600
        layout.open_store(store).close()


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    owner = DataDirectory(tmp_path, (), STORES)
    with pytest.raises(StoreInUse, match=f"{tmp_path} is in use by process {os.getpid()}"):
        DataDirectory(tmp_path)
    owner.release()
    DataDirectory(tmp_path).release()


def test_a_node_reads_the_layout_beside_the_owner_and_owns_its_stores(tmp_path: Path) -> None:
    owner = DataDirectory(tmp_path, (), STORES)
    layout = read_layout(tmp_path)
    assert layout == owner.layout
    store = layout.open_store(1)
    with pytest.raises(StoreInUse, match=rf"store-01.sqlite is in use by process {os.getpid()}"):
        layout.open_store(1)
    layout.open_store(2).close()
    store.close()
    layout.open_store(1).close()
    owner.release()


def test_the_locks_of_a_killed_process_are_free_and_those_of_a_live_one_are_not(
    tmp_path: Path,
) -> None:
    layout = made(tmp_path)
    script = (
        "import sys; from pathlib import Path; from partibus.store.directory import read_layout;"
        "store = read_layout(Path(sys.argv[1])).open_store(0); print('open', flush=True);"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(StoreInUse, match=f"process {child.pid}"):
            layout.open_store(0)
        child.kill()
        child.wait()
    layout.open_store(0).close()


def test_stores_are_dealt_out_over_their_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    layout = made(tmp_path / "data", one, two)
    assert [layout.store_path(store).parent for store in range(STORES)] == [one, two, one, two]
    assert read_layout(tmp_path / "data") == layout
    # Not given again, they are where they were.
    owner = DataDirectory(tmp_path / "data")
    assert owner.layout == layout
    owner.release()


def test_directories_given_in_another_order_or_place_are_found(tmp_path: Path) -> None:
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    made(tmp_path / "data", one, two)
    one.rename(three)
    layout = made(tmp_path / "data", two, three)
    assert layout.directories == (three, two)
    assert read_layout(tmp_path / "data") == layout
    layout.open_store(0).close()


def test_a_directory_that_is_missing_empty_or_left_out_is_named(tmp_path: Path) -> None:
    one, two, other = tmp_path / "one", tmp_path / "two", tmp_path / "other"
    made(tmp_path / "data", one, two)
    other.mkdir()
    with pytest.raises(StoreError, match=f"not given: {two}"):
        DataDirectory(tmp_path / "data", (one,))
    with pytest.raises(StoreError, match=f"{other} does not hold stores"):
        DataDirectory(tmp_path / "data", (one, other))
    two.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{two} does not hold stores .* mounted"):
        DataDirectory(tmp_path / "data")


def test_directories_that_cannot_serve_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    one = tmp_path / "one"
    with pytest.raises(StoreError, match="given twice"):
        DataDirectory(tmp_path / "data", (one, one))
    with pytest.raises(StoreError, match="2 store directories are too many for 1 stores"):
        DataDirectory(tmp_path / "data", (one, tmp_path / "two"), 1)
    with pytest.raises(StoreError, match="1 to 100 stores, not 101"):
        DataDirectory(tmp_path / "data", (one,), 101)
    assert not one.exists()


def test_another_number_of_stores_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(StoreError, match="has 4 stores; their number cannot become 8"):
        DataDirectory(tmp_path, (), 8)


def test_the_stores_of_another_namespace_are_refused(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")
    with pytest.raises(StoreError, match="stores of another namespace"):
        DataDirectory(tmp_path / "ours", theirs.directories)
    with pytest.raises(StoreError, match="stores of another namespace"):
        DataDirectory(tmp_path / "third", theirs.directories)
    theirs.store_path(1).replace(ours.store_path(1))
    with pytest.raises(StoreDamaged, match=r"store-01.sqlite belongs to another"):
        ours.open_store(1)
    # Nor may two stores of the same namespace change places.
    ours.store_path(0).replace(ours.store_path(2))
    with pytest.raises(StoreDamaged, match=r"store-02.sqlite belongs to another"):
        ours.open_store(2)
    with pytest.raises(StoreDamaged, match=r"store-00.sqlite is missing"):
        ours.open_store(0)


def test_a_first_start_that_was_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    layout = made(tmp_path)
    layout.store_path(3).unlink()
    path = tmp_path / "namespace.json"
    path.write_text(path.read_text().replace('"made": true', '"made": false'))
    with pytest.raises(StoreError, match="its owner must start first"):
        read_layout(tmp_path)
    assert made(tmp_path) == layout
    layout.open_store(3).close()


def test_the_data_directory_can_be_moved_as_a_whole(tmp_path: Path) -> None:
    before = made(tmp_path / "before")
    store = before.open_store(0)
    changes = made_changes(1, created=True)
    changes.added = [made_entry(1)]
    store.commit([changes])
    store.close()
    (tmp_path / "before").rename(tmp_path / "after")
    store = made(tmp_path / "after").open_store(0)
    assert len(store.find(1, [1])) == 1
    store.close()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "\x00"])
def test_a_damaged_or_newer_layout_is_named(tmp_path: Path, text: str) -> None:
    made(tmp_path)
    (tmp_path / "namespace.json").write_text(text)
    with pytest.raises(StoreDamaged, match=r"namespace\.json"):
        DataDirectory(tmp_path)


def test_a_directory_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(StoreError, match="file"):
        DataDirectory(tmp_path / "file" / "data")
