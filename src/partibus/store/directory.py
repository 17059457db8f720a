"""The data directory of a namespace: who owns it, and where its stores lie.

The supervisor owns the directory as a whole; each node besides owns the stores it opens (see
locks.py), so a node that was paused cannot write beside its successor. Which store lies in which
directory is written down when they are made, and never changes; directories that were moved are
known by the mark in them. What is inside a store's file is not known here.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partibus.store import StoreDamaged, StoreError
from partibus.store.locks import OwnerLock
from partibus.store.sqlite import SqliteStore

LAYOUT_FORMAT = 1
LAYOUT_NAME = "namespace.json"
LOCK_NAME = "lock"
MARK_NAME = "stores.json"
STORES_NAME = "stores"
STORES_DEFAULT = 16
# Two digits in the name of a file; also far more than one machine has use for.
STORES_MAX = 100


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the stores of a namespace lie. The identity is made once and is in every file."""

    identity: str
    directories: tuple[Path, ...]
    stores: int

    def store_path(self, store: int) -> Path:
        """The file of one store: store i lies in directory i mod n."""
        assert 0 <= store < self.stores, f"store {store} of {self.stores}"
        return self.directories[store % len(self.directories)] / f"store-{store:02d}.sqlite"

    def open_store(self, store: int, *, make: bool = False) -> SqliteStore:
        """Open one store and own it until it is closed."""
        return SqliteStore(self.store_path(store), f"{self.identity}/{store:02d}", make=make)


class DataDirectory:
    """A data directory owned by this process, made if it is not there."""

    def __init__(
        self, path: Path, directories: Sequence[Path] = (), stores: int | None = None
    ) -> None:
        self.path = path
        _make_directory(path)
        self._lock = OwnerLock(path / LOCK_NAME, f"data directory {path}")
        try:
            self.layout = self._found(directories, stores)
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        """Let another process own the directory. Its stores have locks of their own."""
        self._lock.release()

    def _found(self, directories: Sequence[Path], stores: int | None) -> Layout:
        if not (self.path / LAYOUT_NAME).exists():
            layout = self._planned(directories, stores or STORES_DEFAULT)
            return self._made(layout)
        layout, made = _read(self.path)
        if stores is not None and stores != layout.stores:
            raise StoreError(
                f"{self.path} has {layout.stores} stores; their number cannot become {stores}"
            )
        if not made:
            # The first start did not come to its end. Nothing was accepted yet.
            return self._made(layout)
        found = _by_mark(self.path, layout, directories)
        if found != layout:
            _write(self.path, found, made=True)
        return found

    def _planned(self, directories: Sequence[Path], stores: int) -> Layout:
        if not 1 <= stores <= STORES_MAX:
            raise StoreError(f"a namespace has 1 to {STORES_MAX} stores, not {stores}")
        chosen = tuple(directory.absolute() for directory in directories)
        chosen = chosen or (self.path.absolute() / STORES_NAME,)
        if len(set(chosen)) != len(chosen):
            raise StoreError("a store directory was given twice")
        if len(chosen) > stores:
            raise StoreError(f"{len(chosen)} store directories are too many for {stores} stores")
        for directory in chosen:
            if (directory / MARK_NAME).exists():
                raise StoreError(f"{directory} holds stores of another namespace")
        layout = Layout(secrets.token_hex(16), chosen, stores)
        _write(self.path, layout, made=False)
        return layout

    def _made(self, layout: Layout) -> Layout:
        for index, directory in enumerate(layout.directories):
            _make_directory(directory)
            mark = {
                "format": LAYOUT_FORMAT,
                "identity": layout.identity,
                "directory": index,
                "of": len(layout.directories),
            }
            _write_json(directory / MARK_NAME, mark)
        for store in range(layout.stores):
            layout.open_store(store, make=True).close()
        for directory in layout.directories:
            _sync_directory(directory)
        _write(self.path, layout, made=True)
        return layout


def read_layout(path: Path) -> Layout:
    """The layout of a data directory that somebody else owns: what a node asks for."""
    layout, made = _read(path)
    if not made:
        raise StoreError(f"{path} has not been made to its end; its owner must start first")
    return layout


def _by_mark(data: Path, layout: Layout, directories: Sequence[Path]) -> Layout:
    """The layout with its directories where they are now, in their old order."""
    given = tuple(directory.absolute() for directory in directories) or layout.directories
    places: dict[int, Path] = {}
    for directory in given:
        if not (directory / MARK_NAME).exists():
            raise StoreError(
                f"{directory} does not hold stores of {data} (is it mounted?); they were in "
                + ", ".join(map(str, layout.directories))
            )
        mark = _read_json(directory / MARK_NAME)
        if mark.get("identity") != layout.identity:
            raise StoreError(f"{directory} holds stores of another namespace")
        places[mark["directory"]] = directory
    missing = [str(d) for i, d in enumerate(layout.directories) if i not in places]
    if missing:
        raise StoreError(f"store directories of {data} were not given: {', '.join(missing)}")
    ordered = tuple(places[index] for index in range(len(layout.directories)))
    return Layout(layout.identity, ordered, layout.stores)


def _read(data: Path) -> tuple[Layout, bool]:
    path = data / LAYOUT_NAME
    found = _read_json(path)
    if found.get("format") != LAYOUT_FORMAT:
        raise StoreDamaged(
            f"{path} has format {found.get('format')}; this partibus reads format {LAYOUT_FORMAT}"
        )
    # What lies inside the data directory is written relative to it, so that it can be moved.
    directories = tuple(data.absolute() / directory for directory in found["directories"])
    return Layout(found["identity"], directories, found["stores"]), found["made"]


def _write(data: Path, layout: Layout, *, made: bool) -> None:
    inside = data.absolute()
    directories = [
        str(directory.relative_to(inside) if directory.is_relative_to(inside) else directory)
        for directory in layout.directories
    ]
    found = {
        "format": LAYOUT_FORMAT,
        "identity": layout.identity,
        "stores": layout.stores,
        "directories": directories,
        "made": made,
    }
    _write_json(data / LAYOUT_NAME, found)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise StoreDamaged(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise StoreDamaged(f"{path} is damaged: not an object")
    return found


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file as a whole: after a crash it is the old one or the new one."""
    new = path.with_name(f"{path.name}.new")
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w") as stream:
            json.dump(content, stream, indent=2)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    _sync_directory(path.parent)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
