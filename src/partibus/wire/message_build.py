"""Putting a message together for a receiver: new header and annotations before the bare message.

The types of the annotations are part of the contract with the clients: a long where a client
expects a long, a timestamp where it expects a time. Everything from the properties on is copied.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64


def _constant(key: str, code: int) -> bytes:
    return b"\xa3" + bytes((len(key),)) + key.encode() + bytes((code,))


_LOCK_TOKEN: Final = b"\x00\x53\x71\xc1\x24\x02" + _constant("x-opt-lock-token", 0x98)
_OMITTED_BODY: Final = b"\x00\x53\x71\xc1\x25\x02" + _constant("omitted-message-body-size", 0x81)
_SEQUENCE_NUMBER: Final = _constant("x-opt-sequence-number", 0x81)
_ENQUEUED_TIME: Final = _constant("x-opt-enqueued-time", 0x83)
_ENQUEUE_SEQUENCE_NUMBER: Final = _constant("x-opt-enqueue-sequence-number", 0x81)
_LOCKED_UNTIL: Final = _constant("x-opt-locked-until", 0x83)
_PARTITION_ID: Final = _constant("x-opt-partition-id", 0x61)
_MESSAGE_STATE: Final = _constant("x-opt-message-state", 0x71)
_DEAD_LETTER_SOURCE: Final = _constant("x-opt-deadletter-source", 0xB1)
_ALWAYS_SIZE: Final = (
    len(_SEQUENCE_NUMBER) + len(_ENQUEUED_TIME) + len(_ENQUEUE_SEQUENCE_NUMBER) + 3 * 8
)
_FIRST_HEADER: Final = b"\x00\x53\x70\xc0\x06\x05\x40\x40\x40\x40\x43"


def delivery(
    bare: bytes,
    kept_annotations: bytes,
    kept_count: i64,
    *,
    delivery_count: i64,
    ttl_ms: int | None,
    sequence_number: i64,
    enqueued_time_ms: i64,
    enqueue_sequence_number: i64,
    locked_until_ms: int | None = None,
    lock_token: bytes | None = None,
    partition_id: int | None = None,
    dead_letter_source: str | None = None,
    message_state: int | None = None,
) -> bytes:
    """The message as a receiver gets it: header, both annotations, and the bare message.

    `lock_token` is the delivery tag: the sixteen bytes in .NET's order (`UUID.bytes_le`); the
    annotation has the same UUID in network order. `ttl_ms` above what a uint holds is left out.
    """
    out = BytesWriter()
    _write_header(out, ttl_ms, delivery_count)
    if lock_token is not None:
        out.write(_LOCK_TOKEN)
        write_i32_be(out, read_i32_le(lock_token, 0))
        write_i16_be(out, read_i16_le(lock_token, 4))
        write_i16_be(out, read_i16_le(lock_token, 6))
        write_i64_be(out, read_i64_be(lock_token, 8))
    size: int = _ALWAYS_SIZE + len(kept_annotations)
    pairs: int = kept_count + 3
    source = b""
    if locked_until_ms is not None:
        size += len(_LOCKED_UNTIL) + 8
        pairs += 1
    if partition_id is not None:
        size += len(_PARTITION_ID) + 2
        pairs += 1
    if dead_letter_source is not None:
        source = dead_letter_source.encode()
        size += len(_DEAD_LETTER_SOURCE) + 4 + len(source)
        pairs += 1
    if message_state is not None:
        size += len(_MESSAGE_STATE) + 4
        pairs += 1
    out.write(b"\x00\x53\x72\xd1")
    write_i32_be(out, size + 4)
    write_i32_be(out, pairs * 2)
    out.write(_SEQUENCE_NUMBER)
    write_i64_be(out, sequence_number)
    out.write(_ENQUEUED_TIME)
    write_i64_be(out, enqueued_time_ms)
    out.write(_ENQUEUE_SEQUENCE_NUMBER)
    write_i64_be(out, enqueue_sequence_number)
    if locked_until_ms is not None:
        out.write(_LOCKED_UNTIL)
        write_i64_be(out, locked_until_ms)
    if partition_id is not None:
        out.write(_PARTITION_ID)
        write_i16_be(out, partition_id)
    if dead_letter_source is not None:
        out.write(_DEAD_LETTER_SOURCE)
        write_i32_be(out, len(source))
        out.write(source)
    if message_state is not None:
        out.write(_MESSAGE_STATE)
        write_i32_be(out, message_state)
    out.write(kept_annotations)
    out.write(bare)
    return out.getvalue()


def with_omitted_body_size(message: bytes, size: int) -> bytes:
    """A message that was put together without lock token and body: says how large that was."""
    # The header always comes first, as a list of few bytes.
    end = 5 + message[4]
    return b"".join((message[:end], _OMITTED_BODY, size.to_bytes(8, "big"), message[end:]))


def _write_header(out: BytesWriter, ttl_ms: int | None, delivery_count: i64) -> None:
    if ttl_ms is None and delivery_count == 0:
        out.write(_FIRST_HEADER)
        return
    out.write(b"\x00\x53\x70\xc0")
    if ttl_ms is None or ttl_ms > 0xFFFFFFFF:
        out.write(b"\x0a\x05\x40\x40\x40\x40\x70")
    else:
        out.write(b"\x0e\x05\x40\x40\x70")
        write_i32_be(out, ttl_ms if ttl_ms < 0x80000000 else ttl_ms - 0x100000000)
        out.write(b"\x40\x70")
    count: int = delivery_count
    write_i32_be(out, count)
