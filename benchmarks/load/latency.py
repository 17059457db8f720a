"""Latencies as they are gathered, and their percentiles."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate


class Latencies:
    """Pairs of seconds and how many messages they stand for."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        self.add = self._seen.append

    def percentiles_ms(self, *wanted: float) -> list[float]:
        """The latencies in milliseconds that these shares of the messages stay within."""
        ordered = sorted(self._seen)
        reached = list(accumulate(count for _, count in ordered))
        if not ordered:
            return [0.0] * len(wanted)
        places = (bisect_left(reached, share * reached[-1]) for share in wanted)
        return [round(ordered[place][0] * 1000, 3) for place in places]
