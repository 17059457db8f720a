"""Messaging stores: where fragments live.

A store keeps the entries and counters of many fragments and commits changes to them durably.
It decides nothing, knows no AMQP, and does not know the time. All its methods block; whoever
owns a store calls it from one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from partibus.broker.records import (
    Changes,
    Digest,
    Entry,
    FragmentKey,
    FragmentSummary,
    Head,
    Moment,
)

if TYPE_CHECKING:
    from partibus.store.readers import ReaderPlace


class StoreError(Exception):
    """The store could not do it: the world failed, not the caller. Nothing of the call holds."""


class StoreDamaged(StoreError):
    """What is on disk is not what was written: a checksum or the format does not match."""


class StoreInUse(StoreError):
    """Another process owns this data directory."""


class Store(Protocol):
    """The whole interface. Every implementation passes testing.contracts.check_store."""

    def fragments(self) -> list[FragmentSummary]:
        """All fragments in this store, from their counter rows alone."""

    def commit(self, batch: list[Changes]) -> None:
        """Make all of these changes durable, together. On StoreError none of them happened."""

    def scan(self, number: int, after: int, count: int, size: int) -> list[Entry]:
        """Active entries of a fragment with position > after, in order of position.

        At most `count` entries; stops once `size` bytes are gathered (but returns at least one
        entry where there is one). Deferred and scheduled entries are not returned.
        """

    def find(self, number: int, positions: list[int]) -> list[Entry]:
        """The entries at these positions, in any state; those that do not exist are left out."""

    def browse(
        self, number: int, sequence: int, count: int, size: int, session: str | None = None
    ) -> list[Entry]:
        """Entries with this sequence number or a higher one, in that order.

        In any state but reserved: nobody is shown what belongs to a bulk reader.
        Limits as in scan; with a session, only the entries of that session.
        """

    def find_sequences(self, number: int, sequences: list[int]) -> list[Entry]:
        """The entries with these sequence numbers, in any state; others are left out."""

    def due(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When scheduled entries of all fragments become active: after one moment, up to a time.

        In the order of time, number and position.
        """

    def expiring(self, after: Moment, until_ms: int, count: int) -> list[Moment]:
        """When entries expire, in all fragments and states; otherwise as due()."""

    def sighted(self, digests: list[Digest], since_ms: int) -> dict[Digest, int]:
        """Which of these were sighted after a time, and when: what duplicates are known by."""

    def forget(self, now_ms: int) -> bool:
        """Drop one bucket of sightings that no window reaches any more; True if there was one."""

    def heads(self, number: int, after: int, count: int) -> tuple[list[Head], int]:
        """The sessions of the next `count` active entries with position > after.

        Each with the first of these entries, in order of position; and the position of the last
        entry looked at, 0 where nothing lies behind it.
        """

    def scan_session(
        self, number: int, session: str, after: int, count: int, size: int
    ) -> list[Entry]:
        """As scan, the entries of one session only."""

    def session_state(self, number: int, session: str) -> bytes | None:
        """What a session keeps; None where it keeps nothing."""

    def sessions(self, number: int, after: str | None, count: int, since_ms: int) -> list[str]:
        """Names of sessions that have active entries or a state, in order, from `after` on.

        Where `since_ms` is not negative: only those whose state was set later than that.
        """

    def destinations(self, number: int, positions: list[int]) -> dict[int, FragmentKey]:
        """Where entries of a transfer queue go, by their positions."""

    def marks(self, number: int) -> dict[FragmentKey, int]:
        """Up to which position a fragment has taken messages from each transfer queue."""

    def produced(self, number: int, writer: str) -> tuple[int, int] | None:
        """The last batch of a bulk writer, and how many messages of it are published."""

    def move_cursor(self, number: int, reader: str, position: int | None) -> bool:
        """Note where a named reader is, or (None) that it is no more; False: there are too many.

        What leaves the fragment behind its place is kept for it, where nobody else sees it.
        """

    def cursors(self, number: int) -> dict[str, int]:
        """Up to where the named readers of a fragment have read; -1: they lost their place."""

    def readers(self) -> list[ReaderPlace]:
        """All bulk readers of this store's fragments, those that browse and those that consume."""

    def sweep(self, number: int, count: int) -> bool:
        """Remove some of what was kept for readers that have passed; True while there is more."""

    def drop(self, number: int, count: int) -> bool:
        """Remove up to `count` entries of a fragment nobody needs; True once all of it is gone."""

    def trim(self) -> bool:
        """Give free space back, a bounded step; True while there is more to give.

        For idle moments: the commits behind it wait for it.
        """

    def close(self) -> None:
        """Give the store up. Everything committed stays."""
