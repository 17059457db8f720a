"""A message as it enters: its keys and times, and the bytes that will go back out.

Reads the few properties that the rules need from the sections and checks their limits. The body
is neither decoded nor copied more than once. Which fragment a message goes to is partitioning's
business; when it expires, the fragment's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partibus.broker.errors import (
    ArgumentOutOfRange,
    InvalidOperation,
    MessageTooLarge,
    MessageUndecodable,
)
from partibus.wire.codec import encode
from partibus.wire.errors import DecodeError
from partibus.wire.sections import Sections, scan, split_batch, text_of_id, with_message_id

KEY_LENGTH_MAX = 128
HEADERS_BYTES_MAX = 64 * 1024
BATCH_FORMAT = 0x80013700
# An encoded id no longer than this, of a type that ids have, needs no closer look.
SHORT_ID_BYTES = KEY_LENGTH_MAX
# string, binary, uuid, ulong
ID_CONSTRUCTORS = frozenset(b"\xa1\xb1\xa0\xb0\x98\x80\x53\x44")


class Passage(msgspec.Struct, array_like=True, gc=False):
    """Where a forwarded message has been."""

    # Its number in the first entity it entered, and when it did.
    origin: int
    enqueued_ms: int
    # How often it was forwarded, this time included.
    hops: int
    # The entity in which it became a dead letter.
    source: str | None


class Incoming(msgspec.Struct, array_like=True, gc=False):
    """A message on its way to a fragment. Travels between nodes as it is."""

    bare: bytes
    kept: bytes
    kept_count: int
    # Milliseconds to live as the sender wishes; 0: it did not say.
    ttl_ms: int
    # When it is to become active; 0: at once.
    due_ms: int
    session: str | None
    partition_key: str | None
    # As it is encoded: few need its text.
    encoded_id: bytes
    # Of a forwarded message; all messages of a request have one, or none has.
    passage: Passage | None = None

    @property
    def message_id(self) -> str:
        """The message id as text, by which ids of all types are compared."""
        return text_of_id(self.encoded_id)


def read_message(payload: bytes, bytes_max: int, new_id: Callable[[], str]) -> Incoming:
    """Take one message in. Raises a Refusal where it breaks a rule; nothing is kept of it then."""
    if len(payload) > bytes_max:
        raise MessageTooLarge(
            f"The message of {len(payload)} bytes is larger than the {bytes_max} bytes allowed."
        )
    try:
        sections = scan(payload)
        encoded_id = sections.message_id_raw
        bare = sections.bare
        if not encoded_id:
            message_id = new_id()
            encoded_id = encode(message_id)
            bare = with_message_id(bare, message_id)
        elif not _is_plain_id(encoded_id):
            check_length("MessageId", text_of_id(encoded_id))
    except DecodeError as error:
        raise MessageUndecodable(f"The message cannot be read: {error}") from error
    session, partition_key = sections.group_id, sections.partition_key
    if session is not None or partition_key is not None:
        check_keys(session, partition_key)
    if sections.header_size > HEADERS_BYTES_MAX:
        raise MessageTooLarge(
            f"Headers and properties take {sections.header_size} bytes; "
            f"{HEADERS_BYTES_MAX} are allowed."
        )
    return Incoming(
        bare,
        sections.kept_annotations,
        sections.kept_count,
        _time_to_live(sections),
        sections.scheduled_enqueue_time_ms or 0,
        session,
        partition_key,
        encoded_id,
    )


def read_batch(payload: bytes, bytes_max: int, new_id: Callable[[], str]) -> list[Incoming]:
    """Take in a batch (message-format 0x80013700): each of its data sections is a message."""
    if len(payload) > bytes_max:
        raise MessageTooLarge(
            f"The batch of {len(payload)} bytes is larger than the {bytes_max} bytes allowed."
        )
    try:
        parts = split_batch(payload)
    except DecodeError as error:
        raise MessageUndecodable(f"The batch cannot be read: {error}") from error
    if not parts:
        raise MessageUndecodable("The batch holds no message.")
    return [read_message(part, bytes_max, new_id) for part in parts]


def _is_plain_id(encoded_id: bytes) -> bool:
    return (
        encoded_id[0] in ID_CONSTRUCTORS
        and len(encoded_id) <= SHORT_ID_BYTES
        and encoded_id[1:].isascii()
    )


def check_length(name: str, value: str) -> None:
    """Refuse a key or id that is too long."""
    if len(value) > KEY_LENGTH_MAX:
        raise ArgumentOutOfRange(
            f"{name} has {len(value)} characters; {KEY_LENGTH_MAX} are allowed."
        )


def check_keys(session: str | None, partition_key: str | None) -> None:
    """Refuse keys that are too long or contradict each other."""
    if session is not None:
        check_length("SessionId", session)
    if partition_key is not None:
        check_length("PartitionKey", partition_key)
    # Checked on conventional entities as well, as the service does since 2020.
    if session is not None and partition_key is not None and session != partition_key:
        raise InvalidOperation(
            f"SessionId '{session}' and PartitionKey '{partition_key}' are both set and differ; "
            "they must be identical."
        )


def _time_to_live(sections: Sections) -> int:
    """header.ttl; where it is absent, the span between the two times that .NET sets instead."""
    if sections.ttl_ms is not None:
        return sections.ttl_ms
    expiry, creation = sections.absolute_expiry_time_ms, sections.creation_time_ms
    if expiry is not None and creation is not None and expiry > creation:
        return expiry - creation
    return 0
