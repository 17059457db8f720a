"""AMQP 1.0 values to bytes and back (part 1 of the standard).

Encoding picks the compact forms. Decoding trusts nothing: every malformed input raises
DecodeError, in time linear in its length, with nesting and counts bounded before memory is taken.
Messages are not decoded here as a rule: `sections` and `transfer` read what they need in place.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from librt.strings import (
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
)
from mypy_extensions import i64

from partibus.wire.errors import DecodeError, EncodeError
from partibus.wire.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

NESTING_MAX: Final = 64
# Elements without width (null, true, uint0, ...) cost the sender nothing, so their number cannot
# be held against the bytes that came.
WIDTHLESS_ELEMENTS_MAX: Final = 256


def decode(data: bytes, pos: int = 0, end: int = -1) -> tuple[Any, int]:
    """The value that starts at `pos`, and the offset behind it."""
    limit = len(data) if end < 0 else end
    if limit > len(data) or pos < 0:
        raise DecodeError("beyond the end of the data")
    return _read(data, pos, limit, 0)


def decode_all(data: bytes) -> Any:
    """The one value that `data` consists of."""
    value, end = decode(data)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes behind the value")
    return value


def _read(data: bytes, pos: i64, end: i64, depth: i64) -> tuple[object, i64]:
    if pos >= end:
        raise DecodeError("a value is cut off")
    code: i64 = data[pos]
    if code != 0:
        return _read_body(code, data, pos + 1, end, depth)
    if depth >= NESTING_MAX:
        raise DecodeError("nested too deeply")
    descriptor, pos = _read(data, pos + 1, end, depth + 1)
    value, pos = _read(data, pos, end, depth + 1)
    return Described(descriptor, value), pos


def _read_body(code: i64, data: bytes, pos: i64, end: i64, depth: i64) -> tuple[object, i64]:
    """The value behind its constructor, which stands once for all elements of an array."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        width: i64 = fixed[0]
        if end - pos < width:
            raise DecodeError("a value is cut off")
        return fixed[1](data, pos), pos + width
    size_width: i64 = 4 if code & 0x10 else 1
    kind = code & 0xEF
    if kind not in _VARIABLE_KINDS:
        raise DecodeError(f"no type has the code 0x{code:02x}")
    if end - pos < size_width:
        raise DecodeError("a value is cut off")
    size: i64 = _read_size(data, pos, size_width)
    pos += size_width
    if size > end - pos:
        raise DecodeError("a value is cut off")
    if kind < 0xC0:
        return _read_text(kind, data[pos : pos + size]), pos + size
    if depth >= NESTING_MAX:
        raise DecodeError("nested too deeply")
    if size < size_width:
        raise DecodeError("a compound value without a count")
    count: i64 = _read_size(data, pos, size_width)
    after = pos + size
    if kind == 0xE0:
        return _read_array(data, pos + size_width, after, count, depth + 1), after
    return _read_compound(kind, data, pos + size_width, after, count, depth + 1), after


def _read_size(data: bytes, pos: i64, width: i64) -> i64:
    if width == 1:
        return data[pos]
    value: int = read_i32_be(data, pos)
    return value & 0xFFFFFFFF


def _read_text(kind: i64, octets: bytes) -> object:
    if kind == 0xA0:
        return octets
    try:
        text = octets.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("text is not UTF-8") from error
    return text if kind == 0xA1 else Symbol(text)


def _read_compound(kind: i64, data: bytes, pos: i64, end: i64, count: i64, depth: i64) -> object:
    if count > end - pos:
        raise DecodeError("more elements than bytes")
    items: list[object] = []
    for _ in range(count):
        item, pos = _read(data, pos, end, depth)
        items.append(item)
    if pos != end:
        raise DecodeError("a compound value is longer than its elements")
    return items if kind == 0xC0 else _map_of(items)


def _map_of(items: list[object]) -> dict[object, object]:
    if len(items) % 2:
        raise DecodeError("a map with a key without value")
    result: dict[object, object] = {}
    for index in range(0, len(items), 2):
        key = items[index]
        if isinstance(key, (list, dict, Described)):
            raise DecodeError("a map key is not a simple value")
        result[key] = items[index + 1]
    return result


def _read_array(data: bytes, pos: i64, end: i64, count: i64, depth: i64) -> Array:
    descriptor: object = None
    if pos < end and data[pos] == 0:
        descriptor, pos = _read(data, pos + 1, end, depth)
    if pos >= end:
        raise DecodeError("an array without a constructor")
    code: i64 = data[pos]
    element_type = _ELEMENT_TYPES.get(code)
    if element_type is None:
        raise DecodeError(f"no array has elements of code 0x{code:02x}")
    pos += 1
    if count > (WIDTHLESS_ELEMENTS_MAX if code < 0x50 else end - pos):
        raise DecodeError("more elements than bytes")
    items: list[object] = []
    for _ in range(count):
        item, pos = _read_body(code, data, pos, end, depth)
        items.append(item)
    if pos != end:
        raise DecodeError("an array is longer than its elements")
    return Array(items, element_type, descriptor)


def _read_bool(data: bytes, pos: int) -> object:
    if data[pos] > 1:
        raise DecodeError("a boolean that is neither")
    return data[pos] == 1


def _read_char(data: bytes, pos: int) -> object:
    point = read_i32_be(data, pos)
    if not 0 <= point <= 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError("no character has this code point")
    return Char(chr(point))


# Constructor code to (width, reader); the readers may trust that the bytes are there.
_FIXED: Final[dict[int, tuple[int, Callable[[bytes, int], object]]]] = {
    0x40: (0, lambda data, pos: None),
    0x41: (0, lambda data, pos: True),
    0x42: (0, lambda data, pos: False),
    0x43: (0, lambda data, pos: UInt(0)),
    0x44: (0, lambda data, pos: ULong(0)),
    0x45: (0, lambda data, pos: []),
    0x50: (1, lambda data, pos: UByte(data[pos])),
    0x51: (1, lambda data, pos: Byte((data[pos] ^ 0x80) - 0x80)),
    0x52: (1, lambda data, pos: UInt(data[pos])),
    0x53: (1, lambda data, pos: ULong(data[pos])),
    0x54: (1, lambda data, pos: Int((data[pos] ^ 0x80) - 0x80)),
    0x55: (1, lambda data, pos: Long((data[pos] ^ 0x80) - 0x80)),
    0x56: (1, _read_bool),
    0x60: (2, lambda data, pos: UShort(int(read_i16_be(data, pos)) & 0xFFFF)),
    0x61: (2, lambda data, pos: Short(read_i16_be(data, pos))),
    0x70: (4, lambda data, pos: UInt(int(read_i32_be(data, pos)) & 0xFFFFFFFF)),
    0x71: (4, lambda data, pos: Int(read_i32_be(data, pos))),
    0x72: (4, lambda data, pos: Float(read_f32_be(data, pos))),
    0x73: (4, _read_char),
    0x74: (4, lambda data, pos: Decimal32(data[pos : pos + 4])),
    0x80: (8, lambda data, pos: ULong(int(read_i64_be(data, pos)) & 0xFFFFFFFFFFFFFFFF)),
    0x81: (8, lambda data, pos: Long(read_i64_be(data, pos))),
    0x82: (8, lambda data, pos: float(read_f64_be(data, pos))),
    0x83: (8, lambda data, pos: Timestamp(read_i64_be(data, pos))),
    0x84: (8, lambda data, pos: Decimal64(data[pos : pos + 8])),
    0x94: (16, lambda data, pos: Decimal128(data[pos : pos + 16])),
    0x98: (16, lambda data, pos: uuid.UUID(bytes=data[pos : pos + 16])),
}
# Codes with a size before them, the bit for "four bytes of size" taken out.
_VARIABLE_KINDS: Final = frozenset((0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0))
_ELEMENT_TYPES: Final[dict[int, type]] = {
    0x40: type(None), 0x41: bool, 0x42: bool, 0x56: bool,
    0x50: UByte, 0x60: UShort, 0x43: UInt, 0x52: UInt, 0x70: UInt,
    0x44: ULong, 0x53: ULong, 0x80: ULong,
    0x51: Byte, 0x61: Short, 0x54: Int, 0x71: Int, 0x55: Long, 0x81: Long,
    0x72: Float, 0x82: float, 0x73: Char, 0x83: Timestamp, 0x98: uuid.UUID,
    0x74: Decimal32, 0x84: Decimal64, 0x94: Decimal128,
    0xA0: bytes, 0xB0: bytes, 0xA1: str, 0xB1: str, 0xA3: Symbol, 0xB3: Symbol,
    0x45: list, 0xC0: list, 0xD0: list, 0xC1: dict, 0xD1: dict, 0xE0: Array, 0xF0: Array,
}  # fmt: skip


def encode(value: object) -> bytes:
    """The value in its most compact form. Raises EncodeError for what has none."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise EncodeError(f"{type(value).__name__} has no AMQP form")
    return encoder(value)


def encode_list(items: list[bytes]) -> bytes:
    """A list of values that are encoded already."""
    if not items:
        return b"\x45"
    return _compound(0xC0, items)


def encode_map(items: list[bytes]) -> bytes:
    """A map of keys and values, alternating, that are encoded already."""
    return _compound(0xC1, items)


def _compound(code: int, items: list[bytes]) -> bytes:
    body = b"".join(items)
    if len(body) < 255 and len(items) < 256:
        return bytes((code, len(body) + 1, len(items))) + body
    return struct.pack(">BII", code | 0x10, len(body) + 4, len(items)) + body


def _sized(code: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes((code, len(body))) + body
    return struct.pack(">BI", code | 0x10, len(body)) + body


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError("text has no UTF-8 form") from error


def _packed(code: int, form: str, value: object) -> bytes:
    try:
        return struct.pack(form, code, value)
    except (struct.error, OverflowError) as error:
        raise EncodeError(f"{value!r} does not fit its AMQP type") from error


def _encode_small(value: Any, zero: int, small: int, full: int, form: str) -> bytes:
    if value == 0:
        return bytes((zero,))
    return bytes((small, value)) if 0 < value < 256 else _packed(full, form, value)


def _encode_signed(value: Any, small: int, full: int, form: str) -> bytes:
    return _packed(small, ">Bb", value) if -128 <= value < 128 else _packed(full, form, value)


def _encode_decimal(value: Any, code: int, width: int) -> bytes:
    if len(value) != width:
        raise EncodeError(f"a decimal of {len(value)} bytes")
    return bytes((code,)) + bytes(value)


def _encode_described(value: Any) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _encode_dict(value: Any) -> bytes:
    items: list[bytes] = []
    for key, item in value.items():
        items.append(encode(key))
        items.append(encode(item))
    return encode_map(items)


def _encode_array(value: Any) -> bytes:
    code = _ARRAY_CODES.get(value.element_type)
    if code is None:
        raise EncodeError(f"no array has elements of {value.element_type}")
    if value.element_type is type(None) and len(value) > WIDTHLESS_ELEMENTS_MAX:
        raise EncodeError("too many elements without width")
    bodies = [_element(code, value.element_type, item) for item in value]
    descriptor = b"" if value.descriptor is None else b"\x00" + encode(value.descriptor)
    body = descriptor + bytes((code,)) + b"".join(bodies)
    if len(body) < 255 and len(bodies) < 256:
        return bytes((0xE0, len(body) + 1, len(bodies))) + body
    return struct.pack(">BII", 0xF0, len(body) + 4, len(bodies)) + body


def _element(code: int, element_type: type, item: Any) -> bytes:
    """An element without its constructor, in the one width that all elements have."""
    if type(item) is not element_type and not (element_type is Long and type(item) is int):
        raise EncodeError(f"{item!r} in an array of {element_type.__name__}")
    form = _ARRAY_FORMS.get(code)
    if form is not None:
        return _packed(code, form, item)[1:]
    encoded = encode(item)
    if code < 0xA0:
        return encoded[1:]
    return _widened(encoded, code)


def _widened(encoded: bytes, code: int) -> bytes:
    """A value of variable width with four bytes of size (and count), without constructor."""
    if encoded[0] == code:
        return encoded[1:]
    if encoded[0] == 0x45:
        return b"\x00\x00\x00\x04\x00\x00\x00\x00"
    if code < 0xC0:
        return struct.pack(">I", encoded[1]) + encoded[2:]
    return struct.pack(">II", encoded[1] + 3, encoded[2]) + encoded[3:]


_ARRAY_CODES: Final[dict[type, int]] = {
    type(None): 0x40, bool: 0x56, UByte: 0x50, UShort: 0x60, UInt: 0x70, ULong: 0x80,
    Byte: 0x51, Short: 0x61, Int: 0x71, Long: 0x81, int: 0x81, Float: 0x72, float: 0x82,
    Char: 0x73, Timestamp: 0x83, uuid.UUID: 0x98,
    Decimal32: 0x74, Decimal64: 0x84, Decimal128: 0x94,
    bytes: 0xB0, str: 0xB1, Symbol: 0xB3, list: 0xD0, dict: 0xD1, Array: 0xF0,
}  # fmt: skip
_ARRAY_FORMS: Final[dict[int, str]] = {
    0x56: ">B?", 0x70: ">BI", 0x80: ">BQ", 0x71: ">Bi", 0x81: ">Bq",
}  # fmt: skip
_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda v: b"\x40",
    bool: lambda v: b"\x41" if v else b"\x42",
    UByte: lambda v: _packed(0x50, ">BB", v),
    UShort: lambda v: _packed(0x60, ">BH", v),
    UInt: lambda v: _encode_small(v, 0x43, 0x52, 0x70, ">BI"),
    ULong: lambda v: _encode_small(v, 0x44, 0x53, 0x80, ">BQ"),
    Byte: lambda v: _packed(0x51, ">Bb", v),
    Short: lambda v: _packed(0x61, ">Bh", v),
    Int: lambda v: _encode_signed(v, 0x54, 0x71, ">Bi"),
    Long: lambda v: _encode_signed(v, 0x55, 0x81, ">Bq"),
    int: lambda v: _encode_signed(v, 0x55, 0x81, ">Bq"),
    Float: lambda v: _packed(0x72, ">Bf", v),
    float: lambda v: _packed(0x82, ">Bd", v),
    Decimal32: lambda v: _encode_decimal(v, 0x74, 4),
    Decimal64: lambda v: _encode_decimal(v, 0x84, 8),
    Decimal128: lambda v: _encode_decimal(v, 0x94, 16),
    Char: lambda v: _packed(0x73, ">BI", ord(v)),
    Timestamp: lambda v: _packed(0x83, ">Bq", v),
    uuid.UUID: lambda v: b"\x98" + v.bytes,
    bytes: lambda v: _sized(0xA0, v),
    str: lambda v: _sized(0xA1, _utf8(v)),
    Symbol: lambda v: _sized(0xA3, _utf8(v)),
    list: lambda v: encode_list([encode(item) for item in v]),
    dict: _encode_dict,
    Array: _encode_array,
    Described: _encode_described,
}
