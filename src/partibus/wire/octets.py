"""Stepping over encoded AMQP values without making anything of them.

For the code on the path of every message. Positions are native integers; reading beyond the end
of the data raises IndexError, which the callers turn into DecodeError at their entry.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from partibus.wire.errors import DecodeError

VARIABLE_8: Final = 0x20
_VARIABLE_32: Final = 0x21
_DESCRIBED: Final = 0x22
_INVALID: Final = 0xFF


def _spans() -> bytes:
    """For each constructor: the bytes of the whole value if fixed, else how to find its size."""
    spans = bytearray([_INVALID]) * 256
    spans[0x00] = _DESCRIBED
    widths = {
        0: (0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
        1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56),
        2: (0x60, 0x61),
        4: (0x70, 0x71, 0x72, 0x73, 0x74),
        8: (0x80, 0x81, 0x82, 0x83, 0x84),
        16: (0x94, 0x98),
    }
    for width, codes in widths.items():
        for code in codes:
            spans[code] = width + 1
    for code in (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0):
        spans[code] = VARIABLE_8
        spans[code | 0x10] = _VARIABLE_32
    return bytes(spans)


# `SPANS[code]` below VARIABLE_8 is the width of the whole value. The loops over fields look into it
# themselves where a call of `skip` per field would be most of the cost.
SPANS: Final = _spans()


def skip(data: bytes, pos: i64, end: i64) -> i64:
    """The offset behind the value at `pos`; DecodeError if that lies behind `end`."""
    todo: i64 = 1
    while todo > 0:
        todo -= 1
        span: i64 = SPANS[data[pos]]
        if span < VARIABLE_8:
            pos += span
        elif span == VARIABLE_8:
            pos += 2 + data[pos + 1]
        elif span == _VARIABLE_32:
            size: int = read_i32_be(data, pos + 1)
            pos += 5 + (size & 0xFFFFFFFF)
        elif span == _DESCRIBED:
            pos += 1
            todo += 2
        else:
            raise DecodeError(f"no type has the code 0x{data[pos]:02x}")
        if pos > end:
            raise DecodeError("a value is cut off")
    return pos


def skip_many(data: bytes, pos: i64, count: i64) -> i64:
    """The offset behind `count` values; the caller checks that it has not left its section."""
    for _ in range(count):
        span: i64 = SPANS[data[pos]]
        if span < VARIABLE_8:
            pos += span
        elif span == VARIABLE_8:
            pos += 2 + data[pos + 1]
        else:
            pos = skip(data, pos, len(data))
    return pos


def uint_at(data: bytes, pos: i64) -> i64:
    """The uint (or ulong) at `pos`."""
    code: i64 = data[pos]
    if code == 0x52 or code == 0x53:
        return data[pos + 1]
    if code == 0x70:
        value: int = read_i32_be(data, pos + 1)
        return value & 0xFFFFFFFF
    if code == 0x43 or code == 0x44:
        return 0
    raise DecodeError(f"code 0x{code:02x} is no uint")


def text_at(data: bytes, pos: i64, end: i64) -> str:
    """The string, symbol or binary from `pos` to `end` as text."""
    code: i64 = data[pos]
    if code == 0xA1 or code in (0xA3, 0xA0):
        text = data[pos + 2 : end]
    elif code in (0xB1, 0xB3, 0xB0):
        text = data[pos + 5 : end]
    else:
        raise DecodeError(f"code 0x{code:02x} is no text")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("text is not UTF-8") from error


def compound_count(data: bytes, pos: i64, end: i64) -> i64:
    """The number of elements of the list or map at `pos`, whose end is `end`.

    `compound_start` says where the first one stands.
    """
    code: i64 = data[pos]
    if code == 0x45:
        return 0
    if code == 0xC0 or code == 0xC1:
        count: int = data[pos + 2]
        if pos + 3 > end:
            raise DecodeError("a compound value is cut off")
    elif code == 0xD0 or code == 0xD1:
        count = read_i32_be(data, pos + 5)
        if pos + 9 > end:
            raise DecodeError("a compound value is cut off")
    else:
        raise DecodeError(f"code 0x{code:02x} is neither list nor map")
    if count < 0 or count > end - pos:
        raise DecodeError("more elements than bytes")
    return count


def compound_start(data: bytes, pos: i64) -> i64:
    """Where the first element of the list or map at `pos` stands."""
    code: i64 = data[pos]
    if code == 0x45:
        return pos + 1
    return pos + 3 if code < 0xD0 else pos + 9
