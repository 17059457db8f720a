"""Protocol headers, and the cutting of a byte stream into frames (§2.2, §2.3 of the standard).

The splitter knows nothing of what frames mean; it bounds their size before it gathers them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i64

from partibus.wire.errors import DecodeError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

FRAME_AMQP: Final = 0
FRAME_SASL: Final = 1

# §2.4.1: what every peer must be able to take before open.
FRAME_SIZE_MIN: Final = 512
_HEAD: Final = 8


class FramingError(DecodeError):
    """The stream cannot be cut into frames: a size too large or too small, a bad data offset."""


class FrameSplitter:
    """Cuts frames out of chunks of any size.

    After `next_frame` said True, the frame is `data[body:end]` with `channel` and `frame_type`;
    these stay valid until the next call. Chunks are joined once per frame and not once per chunk,
    so a peer that sends single bytes costs no more than their number.
    """

    __slots__ = (
        "_chunks", "_gathered", "_needed", "_pos",
        "body", "channel", "data", "end", "frame_size_max", "frame_type",
    )  # fmt: skip

    def __init__(self, frame_size_max: int) -> None:
        self.frame_size_max: i64 = frame_size_max
        self.data: bytes = b""
        self.body: i64 = 0
        self.end: i64 = 0
        self.channel: i64 = 0
        self.frame_type: i64 = 0
        self._pos: i64 = 0
        self._chunks: list[bytes] = []
        self._gathered: i64 = 0
        self._needed: i64 = 0

    def feed(self, chunk: bytes) -> None:
        """Take in what arrived; it is not looked at before `next_frame` or `next_header`."""
        if self._pos < len(self.data):
            self._chunks.append(self.data[self._pos :])
            self._gathered += len(self.data) - self._pos
            self.data = b""
            self._pos = 0
        if not self._chunks:
            self.data = chunk
            self._pos = 0
            return
        self._chunks.append(chunk)
        self._gathered += len(chunk)
        if self._gathered >= self._needed:
            self.data = b"".join(self._chunks)
            self._chunks = []
            self._gathered = 0

    @property
    def buffered(self) -> int:
        """Bytes that are held and not yet cut."""
        return self._gathered + len(self.data) - self._pos

    def next_header(self) -> bytes:
        """The next eight bytes, a protocol header; b"" while they are not all there."""
        if len(self.data) - self._pos < _HEAD:
            self._needed = _HEAD
            return b""
        self._pos += _HEAD
        return self.data[self._pos - _HEAD : self._pos]

    def next_frame(self) -> bool:
        """Step to the next frame; False while it is not all there."""
        data = self.data
        pos = self._pos
        there: i64 = len(data) - pos
        if there < _HEAD:
            self._needed = _HEAD
            return False
        size: int = read_i32_be(data, pos)
        if size < _HEAD or size > self.frame_size_max:
            raise FramingError(f"a frame of {size & 0xFFFFFFFF} bytes")
        if there < size:
            self._needed = size
            return False
        offset: i64 = data[pos + 4]
        offset *= 4
        if offset < _HEAD or offset > size:
            raise FramingError(f"a data offset of {offset} in a frame of {size} bytes")
        self.frame_type = data[pos + 5]
        channel: int = read_i16_be(data, pos + 6)
        self.channel = channel & 0xFFFF
        self.body = pos + offset
        self.end = pos + size
        self._pos = pos + size
        return True


def write_frame(out: BytesWriter, frame_type: i64, channel: i64, body: bytes) -> None:
    """Append a frame with this body."""
    write_i32_be(out, len(body) + _HEAD)
    out.append(2)
    out.append(frame_type)
    signed: int = channel if channel < 0x8000 else channel - 0x10000
    write_i16_be(out, signed)
    out.write(body)
