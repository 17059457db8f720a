"""The transfer queue of a fragment: messages on their way to other entities.

A message enters it in the commit in which it leaves its queue, or in that of a transaction which
sends it via this entity, together with the fragment it goes to. Its position here only grows, so
the destination needs to remember one number to know what it has. It leaves when the destination
has it, or for the transfer dead-letter queue. Who sends, and when, is not known here.
"""

from __future__ import annotations

from partibus.broker.errors import QuotaExceeded
from partibus.broker.fragment import MEGABYTE, Fragment
from partibus.broker.records import Entry, FragmentKey, State


class TransferFragment(Fragment):
    """The messages of one fragment that are leaving it."""

    def check_room(self, size: int) -> None:
        """Refuse what does not fit into the entity's quota."""
        quota = self.settings.max_size_mb * MEGABYTE
        if self.counters.bytes + size > quota:
            raise QuotaExceeded(
                f"{self.counters.bytes} of {quota} bytes wait in the transfer queue; {size} more "
                "do not fit. Receive from the destinations, or make the entity larger."
            )

    def take_in(
        self, entries: list[Entry], destinations: list[FragmentKey], source: str | None
    ) -> list[Entry]:
        """Take messages in, each with where it goes; returns them as they are here.

        `source` is the entity in which they have become dead letters, where they have.
        """
        counters = self.counters
        changes = self._stage()
        moved: list[Entry] = []
        for entry, destination in zip(entries, destinations, strict=True):
            position = counters.next_position
            counters.next_position = position + 1
            here = Entry(
                position,
                entry.sequence or self._high | position,
                entry.bare,
                entry.kept,
                entry.kept_count,
                entry.enqueued_ms,
                entry.expires_ms,
                entry.deliveries,
                State.ACTIVE,
                entry.session,
                0,
                # Without one it did not come from a queue, but is sent via this entity.
                entry.origin or entry.sequence,
                entry.hops,
                source or entry.source,
            )
            moved.append(here)
            changes.outbox[position] = destination
            counters.bytes += here.size
        changes.added += moved
        counters.active += len(moved)
        counters.accepted += len(moved)
        return moved


def is_sent_via(entry: Entry) -> bool:
    """Whether an entry of a transfer queue was sent via its entity, not forwarded from it."""
    return not entry.origin
