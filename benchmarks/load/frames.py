"""Just enough reading of frames for the load generator: sizes, codes, and two performatives.

Both brokers write descriptors as smallulongs and frames without an extended header, so the code
of a performative is the eleventh byte of its frame. What is not expected is an error, not skipped.
"""

from __future__ import annotations

import struct

from partibus.wire.composites import decode_composite
from partibus.wire.performatives import Flow

FLOW = 0x13
TRANSFER = 0x14
DISPOSITION = 0x15
ACCEPTED = b"\x00\x53\x24"
_UINT = struct.Struct(">I").unpack_from


class Broken(RuntimeError):
    """The broker did what the load generator is not made for; the text says what."""


def uint(data: bytes, pos: int) -> tuple[int, int]:
    """The uint at pos and the offset behind it."""
    code = data[pos]
    if code == 0x52:
        return data[pos + 1], pos + 2
    if code == 0x70:
        return _UINT(data, pos + 1)[0], pos + 5
    if code == 0x43:
        return 0, pos + 1
    raise Broken(f"code 0x{code:02x} is no uint")


def fields_at(data: bytes, pos: int) -> int:
    """Where the first field of the performative of the frame at pos stands."""
    return pos + 14 if data[pos + 11] == 0xC0 else pos + 20


def delivery_id(data: bytes, pos: int) -> int:
    """The delivery-id of the transfer frame at pos."""
    _, pos = uint(data, fields_at(data, pos))
    return uint(data, pos)[0]


def disposition(data: bytes, pos: int, end: int) -> tuple[int, int, bool]:
    """First and last delivery of a disposition frame, and whether it says settled, accepted."""
    first, at = uint(data, fields_at(data, pos) + 1)
    last = first
    if data[at] == 0x40:
        at += 1
    else:
        last, at = uint(data, at)
    settled = data[at] == 0x41
    return first, last, settled and data.find(ACCEPTED, at, end) >= 0


def flow(data: bytes, pos: int, end: int) -> Flow:
    """The flow frame at pos."""
    performative, _ = decode_composite(data, pos + 8, end)
    assert isinstance(performative, Flow)
    return performative


def unexpected(data: bytes, pos: int, end: int) -> Broken:
    """What to raise for a frame that ends the load."""
    performative, _ = decode_composite(data, pos + 8, end)
    return Broken(f"the broker said {performative}")
