"""How a message looks to who browses it, receives it by number, or must know when it expires.

Deliveries to receivers in a hurry are put together in the dispenser, from the same parts.
"""

from __future__ import annotations

from partibus.broker.records import Entry
from partibus.wire.errors import DecodeError
from partibus.wire.sections import (
    delivery,
    with_omitted_body_size,
    with_properties,
    without_body,
)

# What header.ttl can hold, in milliseconds.
TTL_MS_MAX = 0xFFFFFFFF


def bare_of(entry: Entry) -> bytes:
    """The message with the time at which it expires, where it does."""
    expires_ms, enqueued_ms = entry.expires_ms, entry.enqueued_ms
    if not expires_ms:
        return entry.bare
    # A time to live that the header cannot hold is told by two times, as .NET reads it.
    is_long = expires_ms - enqueued_ms > TTL_MS_MAX
    try:
        return with_properties(
            entry.bare,
            absolute_expiry_time_ms=expires_ms,
            creation_time_ms=enqueued_ms if is_long else None,
        )
    except DecodeError:
        # Who sent it knows what its properties are; they were readable as far as we need them.
        return entry.bare


def browsed(entry: Entry, partition: int, *, omit_body: bool) -> bytes:
    """A message as a browser sees it: without a lock, with its state."""
    bare = bare_of(entry)
    omitted = 0
    if omit_body:
        bare, omitted = without_body(bare)
    message = delivery(
        bare,
        entry.kept,
        entry.kept_count,
        delivery_count=entry.deliveries,
        ttl_ms=_ttl_ms(entry),
        sequence_number=entry.sequence,
        enqueued_time_ms=entry.enqueued_ms,
        enqueue_sequence_number=entry.origin or entry.sequence,
        partition_id=partition or None,
        dead_letter_source=entry.source,
        message_state=entry.state,
    )
    return with_omitted_body_size(message, omitted) if omit_body else message


def received(entry: Entry, partition: int) -> bytes:
    """A message that was asked for by its number, under lock or deleted already."""
    return delivery(
        bare_of(entry),
        entry.kept,
        entry.kept_count,
        delivery_count=entry.deliveries,
        ttl_ms=_ttl_ms(entry),
        sequence_number=entry.sequence,
        enqueued_time_ms=entry.enqueued_ms,
        enqueue_sequence_number=entry.origin or entry.sequence,
        locked_until_ms=entry.locked_until_ms or None,
        lock_token=entry.token or None,
        partition_id=partition or None,
        dead_letter_source=entry.source,
        message_state=entry.state,
    )


def _ttl_ms(entry: Entry) -> int | None:
    start_ms = entry.due_ms or entry.enqueued_ms
    return entry.expires_ms - start_ms if entry.expires_ms else None
