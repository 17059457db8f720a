"""Messages written in bulk, arranged as a store keeps them: contents in bundles, a number for each.

Whoever takes them in looks at none of them: they get positions as a whole, go to the disk as they
are, and are read from there when somebody asks for them. Only plain messages can be arranged so:
active at once, of no session, with the entity's own time to live. How they are encoded is not
known here, nor how they lie in a file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from partibus.broker.message import Incoming

# A row is one number: from its low bits on the message's place in its bundle, where it begins
# there, its length, how much of that are annotations, and how many values these are.
INDEX_BITS = 6
OFFSET_BITS = 17
LENGTH_BITS = 22
KEPT_BITS = 12
COUNT_BITS = 4

OFFSET_SHIFT = INDEX_BITS
LENGTH_SHIFT = OFFSET_SHIFT + OFFSET_BITS
KEPT_SHIFT = LENGTH_SHIFT + LENGTH_BITS
COUNT_SHIFT = KEPT_SHIFT + KEPT_BITS

BUNDLE_MESSAGES = 1 << INDEX_BITS
BUNDLE_BYTES = 1 << OFFSET_BITS
LENGTH_MAX = (1 << LENGTH_BITS) - 1
KEPT_MAX = (1 << KEPT_BITS) - 1

_INDEX = (1 << INDEX_BITS) - 1
_OFFSET = (1 << OFFSET_BITS) - 1


class Block:
    """Some messages for one fragment, in order."""

    __slots__ = ("content", "enqueued_ms", "expires_ms", "position", "rows")

    def __init__(self, rows: array[int], content: bytes) -> None:
        self.rows = rows
        # All bundles, one after the other.
        self.content = content
        # What the fragment says of them: the position of the first, and their times.
        self.position = 0
        self.enqueued_ms = 0
        self.expires_ms = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> int:
        """The position of the last message."""
        return self.position + len(self.rows) - 1

    def bundles(self) -> Iterator[tuple[int, int, bytes]]:
        """Of each bundle: its first message counted from the block's, how many, and the content."""
        rows, at, begin = self.rows, 0, 0
        while at < len(rows):
            # The place of the last message of a full bundle tells it; others are looked through.
            end = min(at + BUNDLE_MESSAGES, len(rows))
            while rows[end - 1] & _INDEX != end - 1 - at:
                end -= 1
            row = rows[end - 1]
            size = (row >> OFFSET_SHIFT & _OFFSET) + (row >> LENGTH_SHIFT & LENGTH_MAX)
            yield at, end - at, self.content[begin : begin + size]
            at, begin = end, begin + size

    def behind(self, count: int) -> Block:
        """What is left without the first of them."""
        lengths = [row >> LENGTH_SHIFT & LENGTH_MAX for row in self.rows]
        kept = [row >> KEPT_SHIFT << KEPT_SHIFT for row in self.rows[count:]]
        return Block(arrange(lengths[count:], kept), self.content[sum(lengths[:count]) :])

    def messages(self) -> list[Incoming]:
        """One by one, for who must see each; their ids are not looked for."""
        found: list[Incoming] = []
        begin = 0
        for row in self.rows:
            end = begin + (row >> LENGTH_SHIFT & LENGTH_MAX)
            middle = begin + (row >> KEPT_SHIFT & KEPT_MAX)
            kept, bare = self.content[begin:middle], self.content[middle:end]
            found.append(Incoming(bare, kept, row >> COUNT_SHIFT, 0, 0, None, None, b""))
            begin = end
        return found


def arrange(lengths: Iterable[int], kept: Iterable[int]) -> array[int]:
    """The rows of messages that lie one behind the other.

    Of each its length, no more than LENGTH_MAX, and what `kept_part` says of its annotations.
    """
    rows = array("q")
    index = offset = 0
    for length, part in zip(lengths, kept, strict=True):
        if index == BUNDLE_MESSAGES or (index and offset + length >= BUNDLE_BYTES):
            index = offset = 0
        rows.append(index | offset << OFFSET_SHIFT | length << LENGTH_SHIFT | part)
        index += 1
        offset += length
    return rows


def kept_part(length: int, count: int) -> int:
    """What a row says of annotations: their length, no more than KEPT_MAX, and their number."""
    return length << KEPT_SHIFT | count << COUNT_SHIFT
