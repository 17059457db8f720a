"""A thread with an event loop, for callers that have none: how a blocking client waits.

The loop keeps the connection alive, renews tokens and takes what comes while the caller is busy
elsewhere; a client that only ran inside calls would lose its locks between them. Calls may come
from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

JOIN_S = 5.0

T = TypeVar("T")


class LoopThread:
    """An event loop of one's own, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="partibus client", daemon=True
        )
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more can be run."""
        return self._loop.is_closed()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it, in the caller's context."""
        if self.is_stopped:
            work.close()
            raise ValueError("the client was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # The caller was interrupted: what it waited for must not go on behind its back.
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Step through what comes, one wait for each."""

        async def step() -> list[T]:
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        while item := self.wait(step()):
            yield item[0]

    def stop(self) -> None:
        """End the loop and the thread."""
        if self.is_stopped:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()
