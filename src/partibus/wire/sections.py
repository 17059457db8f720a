"""The sections of a message: found in one pass, patched where the broker must, never decoded."""

from __future__ import annotations


class Sections:
    """What the broker needs to know of a message it takes in."""

    payload: bytes
    ttl_ms: int | None  # header.ttl
    delivery_count: int
    group_id: str | None
    partition_key: str | None
    via_partition_key: str | None
    scheduled_enqueue_time_ms: int | None
    creation_time_ms: int | None
    absolute_expiry_time_ms: int | None
    message_id_raw: bytes  # the encoded AMQP value, b"" where there is none
    bare_offset: int
    properties_offset: int  # -1 where there is no such section, also below
    application_properties_offset: int
    body_offset: int
    footer_offset: int
    kept_count: int
    kept_annotations: bytes

    @property
    def message_id(self) -> str | None:
        """The message-id in its string form; None where there is none."""
        raise NotImplementedError

    @property
    def bare(self) -> bytes:
        """The payload from bare_offset on."""
        raise NotImplementedError

    @property
    def header_size(self) -> int:
        """Bytes of all sections but the body: what counts as headers and properties."""
        raise NotImplementedError


def scan(payload: bytes) -> Sections:
    """Find the sections of a message. Raises DecodeError where they are malformed."""
    raise NotImplementedError


def split_batch(payload: bytes) -> list[bytes]:
    """The messages in a batch (message-format 0x80013700): the contents of its data sections."""
    raise NotImplementedError


def with_message_id(bare: bytes, message_id: object) -> bytes:
    """Give a bare message this id where it has none; all other bytes stay as they are."""
    raise NotImplementedError


def with_application_properties(bare: bytes, changes: dict[str, object]) -> bytes:
    """Merge `changes` into the application properties (None removes nothing: it is a value)."""
    raise NotImplementedError


def with_properties(
    bare: bytes,
    *,
    absolute_expiry_time_ms: int | None = None,
    creation_time_ms: int | None = None,
) -> bytes:
    """Set the times given, leaving the other fields and sections as they are."""
    raise NotImplementedError


def delivery(
    bare: bytes,
    kept_annotations: bytes,
    kept_count: int,
    *,
    delivery_count: int,
    ttl_ms: int | None,
    sequence_number: int,
    enqueued_time_ms: int,
    enqueue_sequence_number: int,
    locked_until_ms: int | None = None,
    lock_token: bytes | None = None,
    partition_id: int | None = None,
    dead_letter_source: str | None = None,
    message_state: int | None = None,
) -> bytes:
    """The message as a receiver gets it: header, both annotations, and the bare message."""
    raise NotImplementedError
