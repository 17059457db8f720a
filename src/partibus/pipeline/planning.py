"""How the ranges of fragments are dealt out to Spark's tasks.

Few tasks for little work, as many as there are cores: a task costs more than a thousand messages.
One task per fragment where each has much. Pure.
"""

from __future__ import annotations

from partibus.pipeline.door import Range

# A fragment with so many messages deserves a task of its own.
LARGE = 50_000


def size(asked: Range) -> int:
    """How many messages a range may hold."""
    return asked.upto - asked.after


def deal(
    ranges: list[Range],
    cores: int,
    min_partitions: int = 0,
    records_max: int = 0,
    fragments_max: int = 0,
) -> list[list[Range]]:
    """Groups of ranges, one per task; what is in a group is read in order."""
    if not ranges:
        return []
    if fragments_max:
        return [ranges[at : at + fragments_max] for at in range(0, len(ranges), fragments_max)]
    pieces = [piece for each in ranges for piece in _cut(each, records_max)]
    while len(pieces) < min_partitions:
        largest = max(pieces, key=size)
        if size(largest) < 2:
            break
        at = pieces.index(largest)
        pieces[at : at + 1] = _cut(largest, (size(largest) + 1) // 2)
    large = [[each] for each in pieces if records_max or size(each) >= LARGE]
    small = [each for each in pieces if not records_max and size(each) < LARGE]
    count = min(len(small), max(cores, min_partitions - len(large)))
    groups: list[list[Range]] = [[] for _ in range(count)]
    for each in sorted(small, key=size, reverse=True):
        min(groups, key=lambda group: sum(map(size, group))).append(each)
    return large + groups


def _cut(asked: Range, most: int) -> list[Range]:
    if not most or size(asked) <= most:
        return [asked]
    starts = range(asked.after, asked.upto, most)
    return [Range(asked.fragment, at, min(at + most, asked.upto)) for at in starts]
