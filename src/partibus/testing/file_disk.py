"""A simulated disk that is a real file: the SQLite store, and what a power cut leaves of it.

A crash leaves what was synced. Of a commit that it interrupts, any of the sectors that were
written and not synced may have reached the disk, in any order and torn anywhere: which ones, the
seed decides. The file is then what the next store finds when it opens it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from partibus.broker.records import Changes
from partibus.store import StoreError, StoreInUse
from partibus.store.sqlite import SqliteStore
from partibus.testing.disk import SimulatedDisk

# The least that a disk writes whole.
SECTOR_BYTES = 512

# The database and its log, as they lie on disk.
Image = tuple[bytes, bytes]


class FileDisk(SimulatedDisk):
    """A store's file in a folder, and the faults to come."""

    def __init__(self, path: Path, seed: int = 0, template: Path | None = None) -> None:
        super().__init__(seed)
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._files: FileStore | None = None
        # Chance from a seed is the purpose here; nothing secret comes of it.
        self._sectors = Random(seed)  # noqa: S311
        if template is not None:
            shutil.copyfile(template, path)

    def open(self) -> FileStore:  # type: ignore[override]
        """A store on what is durable. The one before must have been closed, or have crashed."""
        if self._files is not None:
            raise StoreInUse("the store is open")
        self._files = FileStore(self, self._path)
        return self._files

    def crash(self) -> None:
        """End the open store now; its file stays as it is at this moment."""
        if self._files is not None:
            self._leave(self._image())

    def _write(self, batch: list[Changes]) -> None:
        assert self._files is not None
        self._files.write(batch)

    def _crash_during(self, batch: list[Changes], keeps: bool) -> None:
        before = self._image()
        self._write(batch)
        after = self._image()
        # Where the log was folded into the database it was synced first: the commit holds.
        is_synced = keeps or after[0] != before[0]
        self._leave(after if is_synced else (before[0], self._torn(before[1], after[1])))

    def _torn(self, before: bytes, after: bytes) -> bytes:
        """The log with some of the sectors that were written to it, and others not."""
        length = self._sectors.choice((len(before), len(after), len(after)))
        torn = bytearray(before[:length].ljust(length, b"\0"))
        share = self._sectors.choice((0.0, 0.5, 0.9))
        for at in range(0, length, SECTOR_BYTES):
            if self._sectors.random() < share:
                torn[at : at + SECTOR_BYTES] = after[at : at + SECTOR_BYTES]
        return bytes(torn[:length])

    def _image(self) -> Image:
        log = self._log.read_bytes() if self._log.exists() else b""
        return self._path.read_bytes(), log

    def _leave(self, image: Image) -> None:
        assert self._files is not None
        # Closing writes to the file; what it writes comes too late to be found.
        self._files.lose()
        self._files = None
        database, log = image
        self._path.write_bytes(database)
        self._log.write_bytes(log)
        self._path.with_name(f"{self._path.name}-shm").unlink(missing_ok=True)

    def _released(self) -> None:
        self._files = None


class FileStore(SqliteStore):
    """A SQLite store on such a disk. After a crash all of its methods raise StoreError."""

    def __init__(self, disk: FileDisk, path: Path) -> None:
        super().__init__(path)
        self._disk = disk
        self._is_lost = False

    def commit(self, batch: list[Changes]) -> None:
        """Commit, unless a fault comes first."""
        if self._is_lost:
            raise StoreError("simulated: this store was closed or has crashed")
        self._disk._commit(batch)

    def write(self, batch: list[Changes]) -> None:
        """Commit in truth."""
        super().commit(batch)

    def lose(self) -> None:
        """Cut the store off its disk."""
        self._is_lost = True
        super().close()

    def close(self) -> None:
        """Give the store up; the disk can be opened again."""
        if not self._is_lost:
            self.lose()
            self._disk._released()
