"""What a fragment keeps of a message, and what one commit changes.

An Entry is a message as its fragment sees it: where it stands, its times and counts, and the
bytes that go back out. Changes is everything that one durable commit writes for one fragment.
These are plain values between the rules (broker) and the files (store); neither the rules nor
SQL live here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from partibus.broker.blocks import Block

# A position is a counter within a fragment. In a store's file it shares one 64-bit key with the
# fragment's number: 19 bits of number, 44 of position (17 million million messages a fragment).
POSITION_BITS = 44
POSITION_MAX = (1 << POSITION_BITS) - 1
FRAGMENT_NUMBER_MAX = (1 << 19) - 1


class SubQueue(IntEnum):
    """The queues that make up one entity's fragment. Each keeps entries and counters of its own."""

    ACTIVE = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2
    # Messages on their way to other entities; nobody receives from it.
    TRANSFER = 3


class State(IntEnum):
    """The state of a message, with the numbers that clients see (x-opt-message-state).

    What is reserved for a bulk reader no client sees; it counts as active, like what is locked.
    """

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    RESERVED = 3


class FragmentKey(NamedTuple):
    """Which fragment: an entity in one of its lives, one of its partitions, one sub-queue.

    `partition` is the partition id that clients see in sequence numbers: 0 for a conventional
    entity, 1 to n for the fragments of a partitioned one.
    """

    entity: int
    incarnation: int
    partition: int
    subqueue: int


class Entry:
    """One message in a fragment.

    `position` orders the entries of a fragment by arrival. In the active sub-queue it is the
    counter part of the sequence number; a dead letter keeps its old `sequence` and gets a new
    position, because dead letters arrive late and readers follow arrivals.
    """

    __slots__ = (
        "bare", "deliveries", "due_ms", "enqueued_ms", "expires_ms", "hops", "kept", "kept_count",
        "locked_until_ms", "origin", "position", "sequence", "session", "source", "state", "token",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        sequence: int,
        bare: bytes,
        kept: bytes,
        kept_count: int,
        enqueued_ms: int,
        expires_ms: int = 0,
        deliveries: int = 0,
        state: int = 0,
        session: str | None = None,
        due_ms: int = 0,
        origin: int = 0,
        hops: int = 0,
        source: str | None = None,
    ) -> None:
        self.position = position
        # The whole number a client sees: partition id in the top 16 bits, counter below.
        self.sequence = sequence
        # The bare message (properties, application properties, body, footer), never re-encoded.
        self.bare = bare
        # The sender's own message annotations: raw encoded pairs, and how many values they are.
        self.kept = kept
        self.kept_count = kept_count
        self.enqueued_ms = enqueued_ms
        # When its time to live ends; 0: never.
        self.expires_ms = expires_ms
        # Deliveries that failed: what header.delivery-count says.
        self.deliveries = deliveries
        self.state = state
        self.session = session
        # When a scheduled message becomes active; 0 for all others.
        self.due_ms = due_ms
        # The sequence number at the first entity a forwarded message entered; 0: its own.
        self.origin = origin
        self.hops = hops
        # The entity a forwarded dead letter came from.
        self.source = source
        # Locks live in memory only: a crash makes locked messages available again.
        self.token = b""
        self.locked_until_ms = 0

    @property
    def size(self) -> int:
        """The bytes that count towards the quota and are kept as content."""
        return len(self.bare) + len(self.kept)

    def schedule(self, due_ms: int) -> None:
        """Become active later; the time to live is kept as what would end then."""
        self.state = State.SCHEDULED
        self.due_ms = due_ms
        if self.expires_ms:
            self.expires_ms += due_ms - self.enqueued_ms


class Publication:
    """A message that a topic passes on: its content is kept once, however many copies point there.

    It has the number that the topic gave it, or the one that it had where it was forwarded from.
    Where its content lies, the store says that writes it.
    """

    __slots__ = (
        "bare", "body", "copies", "enqueued_ms", "hops", "kept", "kept_count", "offset", "origin",
        "position", "session", "source", "ttl_ms",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        bare: bytes,
        kept: bytes,
        kept_count: int,
        ttl_ms: int,
        session: str | None,
        enqueued_ms: int,
        origin: int,
        hops: int = 0,
        source: str | None = None,
    ) -> None:
        self.position = position
        self.bare = bare
        self.kept = kept
        self.kept_count = kept_count
        self.ttl_ms = ttl_ms
        self.session = session
        self.enqueued_ms = enqueued_ms
        self.origin = origin
        self.hops = hops
        self.source = source
        # The numbers of the fragments that have a copy, and its position there.
        self.copies: list[tuple[int, int]] = []
        self.body = 0
        self.offset = 0


class Copy(Entry):
    """An entry of a subscription: the content of a publication, or its end behind another head.

    `shared` bytes at the end are those of the publication; all of them are where nothing changed.
    """

    __slots__ = ("publication", "shared")

    def __init__(
        self,
        position: int,
        sequence: int,
        publication: Publication,
        expires_ms: int,
    ) -> None:
        super().__init__(
            position,
            sequence,
            publication.bare,
            publication.kept,
            publication.kept_count,
            publication.enqueued_ms,
            expires_ms,
            0,
            0,
            publication.session,
            0,
            publication.origin,
            publication.hops,
            publication.source,
        )
        self.publication = publication
        self.shared = len(publication.bare) + len(publication.kept)


class Counters:
    """One row per fragment, written with every commit: exact counts without a scan.

    The totals only grow; accepted = completed + dead_lettered + expired + forwarded + discarded
    + what is present, in every committed state. That sum is what an audit checks.
    """

    __slots__ = (
        "accepted",
        "active",
        "bytes",
        "completed",
        "dead_lettered",
        "deferred",
        "discarded",
        "expired",
        "forwarded",
        "next_position",
        "scheduled",
    )

    def __init__(
        self,
        next_position: int = 1,
        active: int = 0,
        deferred: int = 0,
        scheduled: int = 0,
        bytes: int = 0,
        accepted: int = 0,
        completed: int = 0,
        dead_lettered: int = 0,
        expired: int = 0,
        forwarded: int = 0,
        discarded: int = 0,
    ) -> None:
        self.next_position = next_position
        self.active = active
        self.deferred = deferred
        self.scheduled = scheduled
        self.bytes = bytes
        self.accepted = accepted
        self.completed = completed
        self.dead_lettered = dead_lettered
        self.expired = expired
        self.forwarded = forwarded
        self.discarded = discarded

    def copy(self) -> Counters:
        """The same numbers, to be written while the originals go on changing."""
        return Counters(*(getattr(self, name) for name in COUNTER_FIELDS))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counters) and all(
            getattr(self, name) == getattr(other, name) for name in COUNTER_FIELDS
        )

    def __repr__(self) -> str:
        return f"Counters({', '.join(f'{n}={getattr(self, n)}' for n in COUNTER_FIELDS)})"


COUNTER_FIELDS = (
    "next_position",
    "active",
    "deferred",
    "scheduled",
    "bytes",
    "accepted",
    "completed",
    "dead_lettered",
    "expired",
    "forwarded",
    "discarded",
)


# A window of duplicate detection spans at most this many bits more than one of its buckets.
BUCKETS_BITS = 2


class Digest(NamedTuple):
    """128 bits that stand for a message, as two signed numbers.

    That two different messages have the same is less likely than a damaged memory chip; with 64
    bits one message in some million million would have been dropped as another's duplicate.
    """

    high: int
    low: int


class Bucket(NamedTuple):
    """A span of time: the `number`th of 2**exponent milliseconds since 1970."""

    exponent: int
    number: int

    @property
    def end_ms(self) -> int:
        """The first moment after it."""
        return (self.number + 1) << self.exponent

    @property
    def forgotten_ms(self) -> int:
        """When nothing in it can be inside a window any more."""
        return self.end_ms + (1 << (self.exponent + BUCKETS_BITS))


class Sighting(NamedTuple):
    """A message that was accepted, and when."""

    digest: Digest
    at_ms: int
    bucket: Bucket


class Changes:
    """What one commit writes for one fragment. All of it happens, or none.

    `added` are new entries in order of position, higher than all before, but for scheduled ones
    whose numbers were reserved; `removed` positions whose entries are gone for
    good; `updated` entries whose deliveries, state or times changed in place; `rewritten` entries
    whose content changed as well (a receiver modified their properties); `sighted` are messages
    that are to be known again (duplicate detection), `states` what sessions keep from now on;
    `outbox` says where messages of a transfer queue go, by their positions, and `marks` up to
    which position this fragment has taken messages from transfer queues; `produced` how far the
    batch of a bulk writer has come, by its name; `published` is what a topic passes on, and the
    copies are `added` to the fragments of its subscriptions, by the same commit; `blocks` are new
    messages too, written in bulk.
    """

    __slots__ = (
        "added", "blocks", "counters", "created", "due_ms", "expires_ms", "key", "marks", "number",
        "outbox", "produced", "published", "removed", "rewritten", "shares", "sighted", "states",
        "updated",
    )  # fmt: skip

    def __init__(self, number: int, key: FragmentKey, created: bool) -> None:
        self.number = number
        self.key = key
        # The fragment is new: its row is made by this commit (fragments are made lazily).
        self.created = created
        self.added: list[Entry] = []
        self.blocks: list[Block] = []
        self.removed: list[int] = []
        self.updated: list[Entry] = []
        self.rewritten: list[Entry] = []
        self.sighted: list[Sighting] = []
        # By session: its state, None where it has none any more, and when that was said.
        self.states: dict[str, tuple[bytes | None, int]] = {}
        self.outbox: dict[int, FragmentKey] = {}
        self.marks: dict[FragmentKey, int] = {}
        self.produced: dict[str, tuple[int, int]] = {}
        self.published: list[Publication] = []
        # All entries of the fragment are copies, whose contents others may need.
        self.shares = False
        self.counters: Counters = Counters()
        # The earliest times at which one of these becomes active, or expires; 0: none does.
        self.due_ms = 0
        self.expires_ms = 0


def earliest(one_ms: int, other_ms: int) -> int:
    """The earlier of two times, of which either may be 0: never."""
    return min(one_ms, other_ms) if one_ms and other_ms else one_ms or other_ms


class Moment(NamedTuple):
    """A time at which something happens to an entry, and where the entry stands."""

    at_ms: int
    number: int
    position: int


class Head(NamedTuple):
    """A session that has messages: where the oldest of them stands, and since when."""

    position: int
    session: str
    enqueued_ms: int


class FragmentSummary(NamedTuple):
    """What a store knows of a fragment without reading its entries."""

    number: int
    key: FragmentKey
    counters: Counters
