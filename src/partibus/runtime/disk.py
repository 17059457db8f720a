"""The disk as a seam: who runs a store's blocking calls, and how the answers come back.

Each store has a thread of its own, so that a stalled disk stalls only its own fragments. Calls of
one store run in order and are answered in order. A simulation puts its own Disk here.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Disk(Protocol):
    """Runs blocking work for one store, in order."""

    def call(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` away from the loop; then, on the loop, done(its result or exception)."""

    def close(self) -> None:
        """Finish what was asked for, then stop."""


class ThreadDisk:
    """One thread a store."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Queue the work; the number of callers that wait is bounded by the driver."""
        self._work.put((work, done))

    def close(self) -> None:
        """Wait for the thread: what was committed by then is on disk."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result: Any
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to the caller, who decides
                result = error
            # A loop that was closed needs no answer, but what was asked for is still done.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, result)
