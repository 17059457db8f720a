"""How many wrong tokens a connection may show: five, or one while a node sees many of them.

Counted by the node for both doors. Who shows good tokens is not counted, however many there are;
so an attack costs strangers and clients with a wrong key, and leaves the others their processor.
What happens to a connection is the doors' business.
"""

from __future__ import annotations

# As many as a client with a key that was just replaced may need to notice.
STRIKES = 5
STRIKES_UNDER_ATTACK = 1
# More than this in a second at one node is an attack, or comes to the same.
MANY_PER_S = 100
_SECOND_MS = 1_000


class WrongTokens:
    """The wrong tokens that one node has seen."""

    __slots__ = ("_before", "_now", "_second", "total")

    def __init__(self) -> None:
        # How many in this second and in the one before it.
        self._now = self._before = 0
        self._second = 0
        self.total = 0

    def shown(self, now_ms: int) -> int:
        """One more was shown; how many a connection may show now until it is closed."""
        second = now_ms // _SECOND_MS
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now = 0
            self._second = second
        self._now += 1
        self.total += 1
        is_attack = max(self._now, self._before) > MANY_PER_S
        return STRIKES_UNDER_ATTACK if is_attack else STRIKES
