"""Delivery states between bytes and values, with the common ones known by heart."""

from __future__ import annotations

from typing import Final

from partibus.wire.codec import decode_all
from partibus.wire.composites import compose, composed
from partibus.wire.performatives import ACCEPTED, RELEASED, Accepted, Received

_ACCEPTED_BYTES: Final = b"\x00\x53\x24\x45"
# The two ways to write an empty list, for the outcomes that have no fields.
_KNOWN: Final[dict[bytes, object]] = {
    _ACCEPTED_BYTES: ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
}


def decode_state(raw: bytes) -> object:
    """The delivery state in these bytes; None for none. Raises DecodeError."""
    if not raw:
        return None
    known = _KNOWN.get(raw)
    return known if known is not None else composed(decode_all(raw))


def encode_state(state: object) -> bytes:
    """The bytes of a delivery state; b"" for None."""
    if state is None:
        return b""
    return _ACCEPTED_BYTES if type(state) is Accepted else compose(state)


def is_final(state: object, settled: bool) -> bool:
    """Whether a disposition decides a delivery, and is not only a word on the way."""
    return settled or (state is not None and not isinstance(state, Received))
