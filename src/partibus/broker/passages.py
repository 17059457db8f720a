"""What a forwarded message keeps of where it has been, and what it is when it moves on.

Between two entities a message is an entry of the first one's transfer queue; it travels as an
Incoming with a Passage and becomes an entry of the second. Keys and times are read from it anew,
because they decide about it anew. Where it goes is not known here.
"""

from __future__ import annotations

from partibus.broker.message import Incoming, Passage
from partibus.broker.records import Entry
from partibus.wire.codec import encode
from partibus.wire.errors import DecodeError
from partibus.wire.sections import Sections, scan

_ANNOTATIONS = b"\x00\x53\x72\xd1"


def note_passages(messages: list[Incoming], added: list[Entry]) -> None:
    """Give the entries that were made last what the messages they were made of bring along."""
    for message, entry in zip(messages, added[-len(messages) :], strict=True):
        passage = message.passage
        assert passage is not None, "all messages of a request are forwarded, or none is"
        entry.origin = passage.origin
        entry.hops = passage.hops
        entry.source = passage.source
        entry.enqueued_ms = passage.enqueued_ms


def moving(entry: Entry, now_ms: int) -> Incoming:
    """An entry of a transfer queue as it travels: one hop more, what is left of its time."""
    found = _read(entry.bare, entry.kept, entry.kept_count)
    ttl_ms = max(entry.expires_ms - now_ms, 1) if entry.expires_ms else 0
    passage = Passage(
        entry.origin or entry.sequence, entry.enqueued_ms, entry.hops + 1, entry.source
    )
    if found is None:
        return Incoming(
            entry.bare,
            entry.kept,
            entry.kept_count,
            ttl_ms,
            0,
            entry.session,
            None,
            encode(str(entry.sequence)),
            passage,
        )
    return Incoming(
        entry.bare,
        entry.kept,
        entry.kept_count,
        ttl_ms,
        found.scheduled_enqueue_time_ms or 0,
        found.group_id,
        found.partition_key,
        found.message_id_raw,
        passage,
    )


def via_key_of(message: Incoming) -> str | None:
    """The key that chooses the fragment of the transfer queue (x-opt-via-partition-key)."""
    if not message.kept_count:
        return None
    found = _read(message.bare, message.kept, message.kept_count)
    return found.via_partition_key if found is not None else None


def transferred(message: Incoming, now_ms: int) -> Entry:
    """A message that is sent via an entity, as it enters its transfer queue."""
    expires_ms = now_ms + message.ttl_ms if message.ttl_ms else 0
    return Entry(
        0,
        0,
        message.bare,
        message.kept,
        message.kept_count,
        now_ms,
        expires_ms,
        session=message.session,
    )


def _read(bare: bytes, kept: bytes, kept_count: int) -> Sections | None:
    """The keys and times of a message that was read before; None where it cannot be any more."""
    payload = bare
    if kept_count:
        size = (len(kept) + 4).to_bytes(4, "big")
        payload = b"".join((_ANNOTATIONS, size, (2 * kept_count).to_bytes(4, "big"), kept, bare))
    try:
        return scan(payload)
    except DecodeError:
        # A receiver may have changed its properties to something that we do not understand.
        return None
