"""Sequence numbers that are given out before their messages are there.

Who schedules a message in a transaction is told its number at once, but the message comes with the
discharge. The number is taken from the fragment's counter in memory; if the transaction is rolled
back it is never used. Who gave a number out, and whether it still counts, is not known here.
"""

from __future__ import annotations

import msgspec

from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming


def reserve(fragment: Fragment, count: int) -> int:
    """Keep the next positions from being given to others; returns the first."""
    first = fragment.counters.next_position
    fragment.counters.next_position += count
    return first


def place(fragment: Fragment, position: int, message: Incoming, now_ms: int) -> None:
    """Take a message in at a position that was reserved.

    It is scheduled in any case: an active message never stands before others that came earlier.
    One that is due gets its new number in a moment, as all do that become active.
    """
    counters = fragment.counters
    later = counters.next_position
    assert position < later, "a position that was reserved"
    counters.next_position = position
    try:
        due_ms = max(message.due_ms, now_ms + 1)
        fragment.send([msgspec.structs.replace(message, due_ms=due_ms)], now_ms)
    finally:
        counters.next_position = later
