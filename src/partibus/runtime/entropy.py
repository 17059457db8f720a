"""Random bytes in bulk: one system call serves hundreds of lock tokens."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

POOL_BYTES = 4096


class Entropy:
    """A pool of random bytes, refilled from the system (or from a seed, in a simulation)."""

    __slots__ = ("_at", "_pool", "_source")

    def __init__(self, source: Callable[[int], bytes] = os.urandom) -> None:
        self._source = source
        self._pool = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` random bytes."""
        end = self._at + count
        if end > len(self._pool):
            if count > POOL_BYTES // 4:
                return self._source(count)
            self._pool = self._source(POOL_BYTES)
            self._at, end = 0, count
        start, self._at = self._at, end
        return self._pool[start:end]

    def message_id(self) -> str:
        """An id for a message that came without one."""
        return uuid.UUID(bytes=self.take(16), version=4).hex
