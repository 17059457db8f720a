"""Transfer and disposition frames, read and written in place.

These two are the frames of every message, so they do not pass through the generic decoder: a
reusable record takes the fields, the payload stays a range of offsets, and a delivery state is
left as bytes for whoever wants it.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be
from mypy_extensions import i64

from partibus.wire.errors import DecodeError
from partibus.wire.octets import compound_count, compound_start, skip, uint_at

TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15

_NULL: Final = 0x40
_TRUE: Final = 0x41
_FALSE: Final = 0x42
# What follows the delivery tag: message-format 0, settled, more, no rcv-settle-mode, no state,
# no resume, not aborted, batchable. All eleven fields are there because pyamqp takes the payload
# for the twelfth.
_TAIL_UNSETTLED: Final = b"\x43\x42\x42\x40\x40\x42\x42\x41"
_TAIL_SETTLED: Final = b"\x43\x41\x42\x40\x40\x42\x42\x41"
_TAG_SIZE_MAX: Final = 32
# The largest performative that `write_many` writes: head, handle, delivery-id, tag, tail.
TRANSFER_OVERHEAD: Final = 8 + 6 + 5 + 5 + 2 + _TAG_SIZE_MAX + 8


class TransferFrame:
    """The fields of a transfer; -1 and b"" stand for what was left out."""

    __slots__ = (
        "aborted", "delivery_id", "handle", "message_format", "more",
        "payload", "settled", "state", "tag",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handle: i64 = -1
        self.delivery_id: i64 = -1
        self.tag: bytes = b""
        self.message_format: i64 = -1
        self.settled: bool = False
        self.more: bool = False
        self.aborted: bool = False
        self.state: bytes = b""
        self.payload: i64 = 0

    def read(self, data: bytes, pos: i64, end: i64) -> None:
        """Take the fields of the list at `pos`; `payload` is then where the message starts."""
        self.handle = -1
        self.delivery_id = -1
        self.tag = b""
        self.message_format = -1
        self.settled = False
        self.more = False
        self.aborted = False
        self.state = b""
        try:
            self._read(data, pos, end)
        except IndexError as error:
            raise DecodeError("a transfer is cut off") from error
        if self.handle < 0:
            raise DecodeError("a transfer without a handle")

    def _read(self, data: bytes, pos: i64, end: i64) -> None:  # noqa: C901 - calls cost here
        if data[pos] == 0xC0:
            list_end = pos + 2 + data[pos + 1]
            count: i64 = data[pos + 2]
            pos += 3
        else:
            list_end = skip(data, pos, end)
            count = compound_count(data, pos, list_end)
            pos = compound_start(data, pos)
        index: i64
        for index in range(count):
            code: i64 = data[pos]
            if code == _FALSE or code == _NULL:  # noqa: SIM109 - a tuple costs more here
                # Also what was left out is false, and a false handle is missed at the end.
                pos += 1
            elif code == _TRUE:
                self._set_flag(index)
                pos += 1
            elif index == 2:
                if code == 0xA0:
                    after = pos + 2 + data[pos + 1]
                    self.tag = data[pos + 2 : after]
                else:
                    after = skip(data, pos, list_end)
                    self.tag = _binary(data, pos, after)
                pos = after
            elif index < 4:
                if code == 0x52:
                    value: i64 = data[pos + 1]
                    pos += 2
                elif code == 0x43:
                    value = 0
                    pos += 1
                else:
                    value = uint_at(data, pos)
                    pos = skip(data, pos, list_end)
                if index == 0:
                    self.handle = value
                elif index == 1:
                    self.delivery_id = value
                else:
                    self.message_format = value
            else:
                after = skip(data, pos, list_end)
                self._set_rare(index, data, pos, after)
                pos = after
        if pos != list_end or pos > end:
            raise DecodeError("a transfer is longer than its fields")
        self.payload = list_end

    def _set_flag(self, index: i64) -> None:
        if index == 4:
            self.settled = True
        elif index == 5:
            self.more = True
        elif index == 9:
            self.aborted = True
        elif index < 8:
            raise DecodeError("a boolean where none belongs in a transfer")

    def _set_rare(self, index: i64, data: bytes, pos: i64, end: i64) -> None:
        if index == 7:
            self.state = data[pos:end]
        elif index != 6 and _boolean(data, pos):
            self._set_flag(index)


class DispositionFrame:
    """The fields of a disposition; `state` is b"" where there is none."""

    __slots__ = ("first", "last", "role", "settled", "state")

    def __init__(self) -> None:
        self.role: bool = False
        self.first: i64 = -1
        self.last: i64 = -1
        self.settled: bool = False
        self.state: bytes = b""

    def read(self, data: bytes, pos: i64, end: i64) -> None:
        """Take the fields of the list at `pos`; `last` is `first` where it was left out."""
        self.role = self.settled = False
        self.first = self.last = -1
        self.state = b""
        try:
            self._read(data, pos, end)
        except IndexError as error:
            raise DecodeError("a disposition is cut off") from error
        if self.first < 0:
            raise DecodeError("a disposition without first")
        if self.last < 0:
            self.last = self.first

    def _read(self, data: bytes, pos: i64, end: i64) -> None:
        list_end = skip(data, pos, end)
        count: i64 = compound_count(data, pos, list_end)
        pos = compound_start(data, pos)
        index: i64
        for index in range(count):
            code: i64 = data[pos]
            if code == _NULL:
                pos += 1
                continue
            after = skip(data, pos, list_end)
            if index == 0:
                self.role = _boolean(data, pos)
            elif index == 1:
                self.first = uint_at(data, pos)
            elif index == 2:
                self.last = uint_at(data, pos)
            elif index == 3:
                self.settled = _boolean(data, pos)
            elif index == 4:
                self.state = data[pos:after]
            pos = after
        if pos != list_end:
            raise DecodeError("a disposition is longer than its fields")


def _boolean(data: bytes, pos: i64) -> bool:
    code: i64 = data[pos]
    if code == 0x42:
        return False
    if code == _TRUE:
        return True
    if code != 0x56 or data[pos + 1] > 1:
        raise DecodeError(f"code 0x{code:02x} is no boolean")
    return data[pos + 1] == 1


def _binary(data: bytes, pos: i64, end: i64) -> bytes:
    code: i64 = data[pos]
    if code == 0xB0:
        return data[pos + 5 : end]
    raise DecodeError(f"code 0x{code:02x} is no binary")


class TransferWriter:
    """Writes the transfers of one link, of which most bytes are always the same."""

    __slots__ = ("_channel", "_handle", "_prefix", "_prefix_tag_size")

    def __init__(self, channel: int, handle: int) -> None:
        self._channel: i64 = channel
        self._handle: i64 = handle
        self._prefix: bytes = b""
        self._prefix_tag_size: i64 = -1

    def _prepare(self, tag_size: i64) -> None:
        """Write down what stands between the size of the frame and the delivery-id."""
        if tag_size > _TAG_SIZE_MAX:
            raise DecodeError(f"a delivery tag of {tag_size} bytes")
        out = BytesWriter()
        out.write(b"\x02\x00")
        _write_u16(out, self._channel)
        out.write(b"\x00\x53\x14\xc0")
        out.append(1 + 5 + 5 + 2 + tag_size + 8)
        out.append(11)
        out.append(0x70)
        _write_u32(out, self._handle)
        out.append(0x70)
        self._prefix = out.getvalue()
        self._prefix_tag_size = tag_size

    def write(
        self, out: BytesWriter, delivery_id: i64, tag: bytes, payload: bytes, settled: bool
    ) -> None:
        """Append a transfer that needs one frame, has format 0 and no state."""
        tag_size: i64 = len(tag)
        if tag_size != self._prefix_tag_size:
            self._prepare(tag_size)
        prefix = self._prefix
        size: int = 4 + len(prefix) + 4 + 2 + tag_size + 8 + len(payload)
        write_i32_be(out, size)
        out.write(prefix)
        signed: int = delivery_id if delivery_id < 0x80000000 else delivery_id - 0x100000000
        write_i32_be(out, signed)
        out.append(0xA0)
        out.append(tag_size)
        out.write(tag)
        out.write(_TAIL_SETTLED if settled else _TAIL_UNSETTLED)
        out.write(payload)


def _write_u32(out: BytesWriter, value: i64) -> None:
    signed: int = value if value < 0x80000000 else value - 0x100000000
    write_i32_be(out, signed)


def _write_u16(out: BytesWriter, value: i64) -> None:
    signed: int = value if value < 0x8000 else value - 0x10000
    write_i16_be(out, signed)


def transfer_frame(
    *,
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    message_format: int,
    settled: bool,
    more: bool,
    state: bytes,
    payload: bytes,
) -> bytes:
    """One transfer frame of any kind; `state` is encoded already, b"" for none."""
    fields = BytesWriter()
    fields.append(0x70)
    _write_u32(fields, handle)
    fields.append(0x70)
    _write_u32(fields, delivery_id)
    fields.append(0xA0)
    fields.append(len(tag))
    fields.write(tag)
    fields.append(0x70)
    _write_u32(fields, message_format)
    fields.append(_TRUE if settled else 0x42)
    fields.append(_TRUE if more else 0x42)
    fields.append(_NULL)
    fields.write(state or b"\x40")
    fields.write(b"\x42\x42\x41")
    body = fields.getvalue()
    out = BytesWriter()
    write_i32_be(out, 8 + 12 + len(body) + len(payload))
    out.write(b"\x02\x00")
    _write_u16(out, channel)
    out.write(b"\x00\x53\x14\xd0")
    _write_u32(out, len(body) + 4)
    _write_u32(out, 11)
    out.write(body)
    out.write(payload)
    return out.getvalue()


def write_disposition(
    out: BytesWriter,
    channel: i64,
    role: bool,
    first: i64,
    last: i64,
    settled: bool,
    state: bytes,
) -> None:
    """Append a disposition frame; `state` is encoded already, b"" for none."""
    if not state:
        state = b"\x40"
    size: int = len(state) + 1 + 5 + 5 + 1
    write_i32_be(out, 8 + 3 + 9 + size)
    out.write(b"\x02\x00")
    _write_u16(out, channel)
    out.write(b"\x00\x53\x15\xd0")
    write_i32_be(out, size + 4)
    write_i32_be(out, 5)
    out.append(_TRUE if role else 0x42)
    out.append(0x70)
    _write_u32(out, first)
    out.append(0x70)
    _write_u32(out, last)
    out.append(_TRUE if settled else 0x42)
    out.write(state)
