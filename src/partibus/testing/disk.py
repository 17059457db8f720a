"""A disk that can be made to fail, for stores in a simulated world.

A SimulatedDisk keeps what was committed; the stores opened on it come and go. A crash ends the
open store and loses what its last commit had not finished; a commit can be made to fail, or to
take its time. Faults happen on command, or by chance from a seed: the same seed and the same
calls give the same faults. Nothing here touches a real file.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from partibus.broker.records import (
    Changes,
    Digest,
    Entry,
    FragmentKey,
    FragmentSummary,
    Head,
    Moment,
)
from partibus.store import StoreError, StoreInUse
from partibus.store.memory import MemoryStore
from partibus.store.readers import ReaderPlace


class DiskCrashed(StoreError):
    """The machine went down during this call. Whether the commit held shows when it is back."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each fault is at one commit, from 0 to 1."""

    fail: float = 0.0
    crash: float = 0.0
    stall: float = 0.0
    stall_ms_max: int = 5_000


def _no_wait(_: int) -> None:
    return None


def _nobody_hears() -> None:
    return None


class SimulatedDisk:
    """What outlives a crash, and the faults to come.

    `wait` is called with the milliseconds that a stalled commit takes, before it takes effect;
    a simulated world passes its clock, a test with threads may wait for an event.
    """

    def __init__(
        self,
        seed: int = 0,
        chances: Chances | None = None,
        wait: Callable[[int], None] = _no_wait,
    ) -> None:
        # Chance from a seed is the purpose here; nothing secret comes of it.
        self._random = random.Random(seed)  # noqa: S311
        self._chances = chances or Chances()
        self._wait = wait
        self._durable = MemoryStore()
        self._store: SimulatedStore | None = None
        self._fail = 0
        self._crash_keeps: bool | None = None
        self._stalls_ms: list[int] = []
        self.commits = 0
        # Called when the disk crashes in a commit: where the power fails, it fails for everyone.
        self.crashed: Callable[[], None] = _nobody_hears

    def open(self) -> SimulatedStore:
        """A store on what is durable. The one before must have been closed, or have crashed."""
        if self._store is not None:
            raise StoreInUse("the simulated store is open")
        self._store = SimulatedStore(self, self._durable)
        return self._store

    def fail(self, commits: int = 1) -> None:
        """Let the next commits fail: StoreError, and nothing of them happened."""
        self._fail = commits

    def stall(self, milliseconds: int) -> None:
        """Let one more commit wait; called again, the one after it."""
        self._stalls_ms.append(milliseconds)

    def crash(self) -> None:
        """End the open store now. What was committed stays, its handle is of no more use."""
        if self._store is not None:
            self._store.lose()
            self._store = None

    def crash_in_commit(self, *, keeps: bool) -> None:
        """Crash inside the next commit: before it was durable, or just after (`keeps`)."""
        self._crash_keeps = keeps

    def calm(self) -> None:
        """Forget the faults that were ordered and have not happened."""
        self._fail = 0
        self._crash_keeps = None
        self._stalls_ms.clear()

    def _released(self) -> None:
        self._store = None

    def _commit(self, batch: list[Changes]) -> None:
        self.commits += 1
        stall_ms, failing, crashing = self._faults()
        if stall_ms:
            self._wait(stall_ms)
        if failing:
            raise StoreError("simulated: the disk refused to write")
        if crashing is None:
            self._write(batch)
            return
        self._crash_during(batch, crashing)
        self.crashed()
        raise DiskCrashed("simulated: the machine went down")

    def _write(self, batch: list[Changes]) -> None:
        self._durable.commit(batch)

    def _crash_during(self, batch: list[Changes], keeps: bool) -> None:
        if keeps:
            self._write(batch)
        self.crash()

    def _faults(self) -> tuple[int, bool, bool | None]:
        chances, chance = self._chances, self._random.random
        # Always four throws, so that a fault on command does not shift those of the seed.
        stall, fail, crash, keeps = chance(), chance(), chance(), chance()
        stall_ms = 0
        if self._stalls_ms:
            stall_ms = self._stalls_ms.pop(0)
        elif stall < chances.stall:
            stall_ms = 1 + int(stall / chances.stall * (chances.stall_ms_max - 1))
        failing = self._fail > 0 or fail < chances.fail
        self._fail = max(0, self._fail - 1)
        crashing = self._crash_keeps
        self._crash_keeps = None
        if crashing is None and crash < chances.crash:
            crashing = keeps < 0.5
        return stall_ms, failing, crashing


class SimulatedStore:
    """A Store on a simulated disk. After a crash all of its methods raise StoreError."""

    def __init__(self, disk: SimulatedDisk, durable: MemoryStore) -> None:
        self._disk = disk
        self._durable: MemoryStore | None = durable

    def lose(self) -> None:
        """Cut the store off its disk."""
        self._durable = None

    def fragments(self) -> list[FragmentSummary]:
        """All fragments on the disk."""
        return self._open().fragments()

    def commit(self, batch: list[Changes]) -> None:
        """Commit, unless a fault comes first."""
        self._open()
        self._disk._commit(batch)

    def scan(self, number: int, after: int, count: int, size: int) -> list[Entry]:
        """Active entries with position > after, in order."""
        return self._open().scan(number, after, count, size)

    def find(self, number: int, positions: list[int]) -> list[Entry]:
        """The entries at these positions."""
        return self._open().find(number, positions)

    def browse(
        self, number: int, sequence: int, count: int, size: int, session: str | None = None
    ) -> list[Entry]:
        """Entries from a sequence number on, in any state."""
        return self._open().browse(number, sequence, count, size, session)

    def find_sequences(self, number: int, sequences: list[int]) -> list[Entry]:
        """The entries with these sequence numbers."""
        return self._open().find_sequences(number, sequences)

    def due(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When scheduled entries become active."""
        return self._open().due(after, until_ms, count)

    def expiring(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When entries expire."""
        return self._open().expiring(after, until_ms, count)

    def sighted(self, digests: list[Digest], since_ms: int) -> dict[Digest, int]:
        """Which of these were sighted after a time."""
        return self._open().sighted(digests, since_ms)

    def forget(self, now_ms: int) -> bool:
        """Drop one old bucket of sightings."""
        return self._open().forget(now_ms)

    def heads(self, number: int, after: int, count: int) -> tuple[list[Head], int]:
        """The sessions of the next active entries."""
        return self._open().heads(number, after, count)

    def scan_session(
        self, number: int, session: str, after: int, count: int, size: int
    ) -> list[Entry]:
        """Active entries of a session."""
        return self._open().scan_session(number, session, after, count, size)

    def session_state(self, number: int, session: str) -> bytes | None:
        """What a session keeps."""
        return self._open().session_state(number, session)

    def sessions(self, number: int, after: str | None, count: int, since_ms: int) -> list[str]:
        """Names of sessions."""
        return self._open().sessions(number, after, count, since_ms)

    def destinations(self, number: int, positions: list[int]) -> dict[int, FragmentKey]:
        """Where entries of a transfer queue go."""
        return self._open().destinations(number, positions)

    def marks(self, number: int) -> dict[FragmentKey, int]:
        """Up to where a fragment has taken messages from transfer queues."""
        return self._open().marks(number)

    def produced(self, number: int, writer: str) -> tuple[int, int] | None:
        """The last batch of a bulk writer, and how many messages of it are published."""
        return self._open().produced(number, writer)

    def move_cursor(self, number: int, reader: str, position: int | None) -> bool:
        """Note where a named reader is."""
        return self._open().move_cursor(number, reader, position)

    def cursors(self, number: int) -> dict[str, int]:
        """Where the named readers of a fragment are."""
        return self._open().cursors(number)

    def readers(self) -> list[ReaderPlace]:
        """All bulk readers of the store's fragments."""
        return self._open().readers()

    def sweep(self, number: int, count: int) -> bool:
        """Remove some of what was kept for readers."""
        return self._open().sweep(number, count)

    def drop(self, number: int, count: int) -> bool:
        """Remove up to `count` entries of a fragment."""
        return self._open().drop(number, count)

    def trim(self) -> bool:
        """There is nothing to give back."""
        return self._open().trim()

    def close(self) -> None:
        """Give the store up; the disk can be opened again."""
        if self._durable is not None:
            self._durable = None
            self._disk._released()

    def _open(self) -> MemoryStore:
        if self._durable is None:
            raise StoreError("simulated: this store was closed or has crashed")
        return self._durable
