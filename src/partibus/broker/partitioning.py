"""Which fragment a message belongs to.

A key pins: session id, else partition key, else (where duplicates are detected) message id.
Without a key a message may go anywhere, so it goes where the fewest went before and steps over
fragments that do not answer. Nothing else in the broker picks a fragment.
"""

from __future__ import annotations

from collections.abc import Callable

import xxhash

from partibus.broker.errors import InvalidOperation
from partibus.broker.message import Incoming

# What arrives without a key in one turn may stay together up to this many messages: sixteen
# small commits cost ten times what one large one does.
KEYLESS_RUN_MAX = 16

_SIGN_BIT = 1 << 63


def key_of(message: Incoming, detects_duplicates: bool) -> str | None:
    """The effective partition key (K1)."""
    if message.session is not None:
        return message.session
    if message.partition_key is not None:
        return message.partition_key
    return message.message_id if detects_duplicates else None


def key_of_batch(messages: list[Incoming], detects_duplicates: bool) -> str | None:
    """The one key that all messages of a batch share; a batch goes to exactly one fragment."""
    keys = {key_of(message, detects_duplicates) for message in messages}
    if len(keys) == 1:
        return keys.pop()
    distinct = (
        "SessionId, PartitionKey, or MessageId"
        if detects_duplicates
        else ("SessionId or PartitionKey")
    )
    raise InvalidOperation(
        f"Batching brokered messages with distinct {distinct} is not supported "
        "for a partitioned entity; send them in batches of one key."
    )


def index_of(key: str, fragments: int) -> int:
    """The fragment of a key: the same for ever, and the same as Spark's pmod(xxhash64(key), n).

    The hash is part of the on-disk format: a message and its session state must be found in the
    same fragment after a restart, so the salted built-in hash() will not do.
    """
    unsigned = xxhash.xxh64_intdigest(key.encode(), seed=42)
    signed = unsigned - (1 << 64) if unsigned & _SIGN_BIT else unsigned
    return signed % fragments


class Spread:
    """Where messages without a key go: each run to the fragment that had the fewest (K5)."""

    __slots__ = ("_counts", "_next")

    def __init__(self, fragments: int) -> None:
        self._counts = [0] * fragments
        self._next = 0

    def choose(self, messages: int, available: Callable[[int], bool]) -> int | None:
        """The fragment index for a run of messages; None where no fragment is available."""
        counts = self._counts
        size = len(counts)
        best = -1
        for step in range(size):
            index = (self._next + step) % size
            if (best < 0 or counts[index] < counts[best]) and available(index):
                best = index
        if best < 0:
            return None
        # A fragment that was passed over is not owed what it missed: it would get everything
        # for a while when it comes back.
        floor = counts[best]
        for index in range(size):
            if counts[index] < floor:
                counts[index] = floor
        counts[best] += messages
        self._next = (best + 1) % size
        return best
