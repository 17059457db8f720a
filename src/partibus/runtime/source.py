"""One node's share in a receiver: what it may send, and what it has sent."""

from __future__ import annotations


class Source:
    """One node's share in a receiver."""

    __slots__ = ("asked_ms", "dry", "index", "limit", "received", "up")

    def __init__(self, index: int) -> None:
        self.index = index
        self.up = False
        # Totals since the subscription: what we said we take, and what came.
        self.limit = 0
        self.received = 0
        # It said that it has nothing for us now; it sends when that changes.
        self.dry = False
        self.asked_ms = 0

    @property
    def outstanding(self) -> int:
        """What it may still send."""
        return max(self.limit - self.received, 0)
