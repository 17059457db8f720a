"""Why and how a message is set aside, and what receivers may change of its properties."""

from __future__ import annotations

from partibus.broker.errors import InvalidArgument
from partibus.broker.records import Entry, State
from partibus.wire.codec import decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.sections import with_application_properties

MAX_DELIVERIES_REASON = "MaxDeliveryCountExceeded"
EXPIRED_REASON = "TTLExpiredException"
EXPIRED_TEXT = "The message expired and was dead lettered."


def dead_letter(entry: Entry, position: int, reason: str | None, description: str | None) -> Entry:
    """The entry as it arrives in the dead-letter queue: its old number, a new position."""
    notes: dict[str, object] = {}
    if reason is not None:
        notes["DeadLetterReason"] = reason
    if description is not None:
        notes["DeadLetterErrorDescription"] = description
    return Entry(
        position,
        entry.sequence,
        merged(entry.bare, notes),
        entry.kept,
        entry.kept_count,
        entry.enqueued_ms,
        entry.expires_ms,
        entry.deliveries,
        State.ACTIVE,
        entry.session,
        0,
        entry.origin,
        entry.hops,
        entry.source,
    )


def read_modifications(encoded: bytes) -> dict[str, object]:
    """The properties that a receiver wants to modify; read before anything is changed."""
    try:
        found = decode_all(encoded)
    except DecodeError as error:
        raise InvalidArgument(f"The properties to modify cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InvalidArgument("The properties to modify are no map with names for keys.")
    return found


def merged(bare: bytes, changes: dict[str, object]) -> bytes:
    """The message with these application properties; one whose own are unreadable stays so."""
    if not changes:
        return bare
    try:
        return with_application_properties(bare, changes)
    except DecodeError:
        return bare
