"""Ownership of files by one process at a time.

A lock is flock() on a file of its own, so the kernel gives it up with the process, however that
ends, and a process that is merely paused keeps it. A child that is forked without exec shares
its parent's locks: whoever owns stores starts its children by exec.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from partibus.store import StoreError, StoreInUse

_OWNER_BYTES_MAX = 32


class OwnerLock:
    """Held from construction until release() or the end of the process."""

    __slots__ = ("_file", "path")

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._file, _OWNER_BYTES_MAX, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise StoreError(f"{path}: {error.strerror}") from error
            raise StoreInUse(f"{what} is in use by process {owner or 'unknown'}") from error
        # For the message above only; what counts is the kernel's lock.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let the next owner in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
