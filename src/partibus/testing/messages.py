"""Messages as clients send them, and what a receiver reads from one. For tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from partibus.broker.message import Incoming, read_message
from partibus.wire.codec import decode, encode, encode_list
from partibus.wire.values import Described, Symbol, Timestamp, UInt, ULong

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA = 0x70, 0x72, 0x73, 0x74, 0x75
BYTES_MAX = 256 * 1024


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def payload(
    body: bytes = b"",
    *,
    message_id: str | None = None,
    session: str | None = None,
    key: str | None = None,
    ttl_ms: int | None = None,
    created_ms: int | None = None,
    expires_ms: int | None = None,
    properties: dict[str, object] | None = None,
    annotations: dict[str, object] | None = None,
) -> bytes:
    """An encoded message."""
    parts = []
    if ttl_ms is not None:
        header = [encode(None), encode(None), encode(UInt(ttl_ms))]
        parts.append(_section(_HEADER, encode_list(header)))
    notes = dict(annotations or {})
    if key is not None:
        notes["x-opt-partition-key"] = key
    if notes:
        pairs = {Symbol(name): value for name, value in notes.items()}
        parts.append(_section(_ANNOTATIONS, encode(pairs)))
    fields: list[object] = [message_id, *[None] * 10]
    fields[8] = None if expires_ms is None else Timestamp(expires_ms)
    fields[9] = None if created_ms is None else Timestamp(created_ms)
    fields[10] = session
    if any(field is not None for field in fields):
        parts.append(_section(_PROPERTIES, encode_list([encode(field) for field in fields])))
    if properties:
        parts.append(_section(_APPLICATION, encode(properties)))
    parts.append(_section(_DATA, encode(body)))
    return b"".join(parts)


def batch(*messages: bytes) -> bytes:
    """Several encoded messages as one batch."""
    return b"".join(_section(_DATA, encode(message)) for message in messages)


def incoming(
    body: bytes = b"", *, message_id: str = "id", session: str | None = None, key: str | None = None
) -> Incoming:
    """A message that a gateway has read."""
    sent = payload(body, message_id=message_id, session=session, key=key)
    return read_message(sent, len(sent), lambda: message_id)


@dataclass(frozen=True, slots=True)
class Read:
    """What a receiver sees of a message."""

    body: bytes
    message_id: Any
    deliveries: int
    ttl_ms: int | None
    annotations: dict[str, Any]
    properties: dict[str, Any]

    @property
    def sequence(self) -> int:
        """The number that the broker gave it."""
        number = self.annotations["x-opt-sequence-number"]
        assert isinstance(number, int)
        # Without the type that it had on the wire.
        return int(number)


def read(delivered: bytes) -> Read:
    """Read a message as a client does: every section decoded."""
    sections: dict[int, Any] = {}
    at = 0
    while at < len(delivered):
        section, at = decode(delivered, at)
        assert isinstance(section, Described)
        assert isinstance(section.descriptor, ULong)
        sections[int(section.descriptor)] = section.value
    header = sections.get(_HEADER) or []
    fields = sections.get(_PROPERTIES) or [None]
    return Read(
        body=sections[_DATA],
        message_id=fields[0],
        deliveries=int(header[4] or 0) if len(header) > 4 else 0,
        ttl_ms=header[2] if len(header) > 2 else None,
        annotations=sections.get(_ANNOTATIONS) or {},
        properties=sections.get(_APPLICATION) or {},
    )
