"""How a fragment takes in blocks: without looking at their messages.

They get positions and times as a whole, and once committed they are left to the disk, as a backlog
is; who asks for them reads them from there.
"""

from __future__ import annotations

from partibus.broker.blocks import Block
from partibus.broker.durations import FOREVER_MS
from partibus.broker.records import Changes, Counters, Entry, earliest
from partibus.broker.window import Window


def place(block: Block, changes: Changes, counters: Counters, ttl_ms: int, now_ms: int) -> None:
    """Give the messages their positions and times."""
    block.position = counters.next_position
    block.enqueued_ms = now_ms
    block.expires_ms = now_ms + ttl_ms if ttl_ms < FOREVER_MS else 0
    changes.blocks.append(block)
    changes.expires_ms = earliest(changes.expires_ms, block.expires_ms)
    counters.next_position += len(block)
    counters.active += len(block)
    counters.accepted += len(block)
    counters.bytes += len(block.content)


def leave_to_disk(window: Window, added: list[Entry], blocks: list[Block]) -> None:
    """Committed together: what came before the first block is shown, the rest is on disk only."""
    first = blocks[0].position
    before = [entry for entry in added if entry.position < first]
    if before:
        window.arrived(before)
    window.left(first - 1, max(blocks[-1].last, added[-1].position if added else 0))


def entries_of(block: Block, high: int) -> list[Entry]:
    """A block's messages once they have positions; `high` is the fragment's part of the numbers."""
    return [
        Entry(
            position, high | position, each.bare, each.kept, each.kept_count, block.enqueued_ms,
            block.expires_ms,
        )
        for position, each in enumerate(block.messages(), block.position)
    ]  # fmt: skip


def added_entries(changes: Changes, sequence_bits: int) -> list[Entry]:
    """All that is new, also what was written in bulk, in order of position."""
    if not changes.blocks:
        return changes.added
    high = changes.key.partition << sequence_bits
    found = [entry for block in changes.blocks for entry in entries_of(block, high)]
    return sorted(changes.added + found, key=lambda entry: entry.position)
