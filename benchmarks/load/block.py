"""Transfer frames encoded beforehand, of which only a few bytes change.

256 frames of equal length lie one after another. The lowest byte of the delivery-id is the index
in the block, so it never changes; the bytes above it are the same in all frames, and one strided
assignment sets one of them in all 256.
"""

from __future__ import annotations

import struct

from benchmarks.load.plan import Plan

from partibus.wire.codec import encode
from partibus.wire.values import Described, Symbol, Timestamp, ULong

COUNT = 256
_HEX = b"0123456789abcdef"
# No bytes of a message look like these by chance, so that their offsets can be searched for.
_ID = 0xFEDC_BA98
_MESSAGE_ID = "<message-id>"


class Block:
    """The next transfers of one link, ready to be written to its socket."""

    def __init__(self, channel: int, handle: int, plan: Plan, name: str) -> None:
        """`name` is eight characters that no other link has: message ids begin with it."""
        frames = [_frame(channel, handle, plan, i, name) for i in range(COUNT)]
        self.length = len(frames[0])
        assert all(len(frame) == self.length for frame in frames)
        first = frames[0]
        id_bytes = struct.pack(">I", _ID)
        # The delivery-id and the delivery-tag are the same four bytes.
        self._ids = [first.index(id_bytes), first.rindex(id_bytes)]
        assert len(set(self._ids)) == 2
        start = first.index(_MESSAGE_ID.encode())
        self._digits = start + len(_MESSAGE_ID)
        self._data = bytearray(b"".join(frames))
        for i, char in enumerate(name.encode()):
            self._fill(start + i, char)
        for at in self._ids:
            self._data[at + 3 :: self.length] = bytes(range(COUNT))
        self._data[self._digits + 6 :: self.length] = bytes(_HEX[i >> 4] for i in range(COUNT))
        self._data[self._digits + 7 :: self.length] = bytes(_HEX[i & 15] for i in range(COUNT))
        self._view = memoryview(self._data)
        self.base = 0
        self.turn_to(0)

    def _fill(self, offset: int, value: int) -> None:
        self._data[offset :: self.length] = bytes((value,)) * COUNT

    def turn_to(self, base: int) -> None:
        """Make it the transfers base .. base + 255; a view given out before must be used up."""
        self.base = base
        high = base >> 8
        for at in self._ids:
            for place, shift in ((0, 16), (1, 8), (2, 0)):
                self._fill(at + place, high >> shift & 0xFF)
        for place in range(6):
            self._fill(self._digits + place, _HEX[high >> 4 * (5 - place) & 15])

    def frames(self, first: int, last: int) -> memoryview:
        """The frames of transfers first .. last - 1, which the block must hold."""
        return self._view[(first - self.base) * self.length : (last - self.base) * self.length]


def _frame(channel: int, handle: int, plan: Plan, index: int, name: str) -> bytes:
    fields = [
        b"\x52" + bytes((handle,)),
        b"\x70" + struct.pack(">I", _ID),
        b"\xa0\x04" + struct.pack(">I", _ID),
        b"\x43",
        b"\x42",
    ]
    body = b"".join(fields)
    head = b"\x00\x53\x14\xc0" + bytes((len(body) + 1, len(fields)))
    content = head + body + _message(plan, _key(plan, index, name))
    return struct.pack(">IBBH", 8 + len(content), 2, 0, channel) + content


def _key(plan: Plan, index: int, name: str) -> str | None:
    if plan.sessions:
        # More than a block has messages: each link has its own part of them.
        return f"{name}-{index % (plan.keys // plan.connections):04}"
    return f"customer-{index % plan.keys:04}" if plan.keys else None


def _message(plan: Plan, key: str | None) -> bytes:
    """Header, annotations where needed, properties, two application properties, and the data."""
    sections: list[Described] = [Described(ULong(0x70), [True])]
    annotations: dict[object, object] = {}
    if key is not None and not plan.sessions:
        annotations[Symbol("x-opt-partition-key")] = key
    if plan.due_ms:
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(plan.due_ms)
    if annotations:
        sections.append(Described(ULong(0x72), annotations))
    # The digits of the message id follow the marker; its first eight characters become the name.
    message_id = _MESSAGE_ID + "0" * 8
    properties: list[object] = [message_id, None, None, "order"]
    if plan.sessions:
        properties += [None] * 6 + [key]
    sections.append(Described(ULong(0x73), properties))
    sections.append(Described(ULong(0x74), {"tenant": "contoso", "attempt": 1}))
    body = bytes(i * 37 & 0xFF for i in range(plan.size))
    return b"".join(map(encode, sections)) + encode(Described(ULong(0x75), body))
