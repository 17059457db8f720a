"""Doors that are kept open between the tasks of one process.

A task of a small batch takes less time than it takes to connect, with TLS much less. A door that
something went wrong with is closed, and so is one that lay idle for long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from partibus.pipeline.door import Door
from partibus.pipeline.options import Place

# In one process; the longest unused goes first.
IDLE_MAX = 8
# The broker hangs up after a minute.
IDLE_S_MAX = 30.0

_idle: list[tuple[float, Place, Door]] = []


@contextmanager
def lent(place: Place) -> Iterator[Door]:
    """A door for a while. Whoever leaves in order has read all answers to their end."""
    door = _taken(place) or Door(place)
    try:
        yield door
    except BaseException:
        # Also a reader who stops early: the rest of an answer is still on its way.
        door.close()
        raise
    _idle.append((time.monotonic(), place, door))
    while len(_idle) > IDLE_MAX:
        _idle.pop(0)[2].close()


def _taken(place: Place) -> Door | None:
    too_old_s = time.monotonic() - IDLE_S_MAX
    while _idle and _idle[0][0] < too_old_s:
        _idle.pop(0)[2].close()
    for at in reversed(range(len(_idle))):
        if _idle[at][1] == place:
            return _idle.pop(at)[2]
    return None
