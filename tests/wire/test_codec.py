"""Promises of the codec: every AMQP value survives the wire, and no bytes can hurt the reader."""

from __future__ import annotations

import contextlib
import math
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.codec import NESTING_MAX, decode, decode_all, encode
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

# Short ones mostly; the long one needs four bytes of size.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("é" * 200)
FLOATS_32 = st.floats(allow_nan=False, width=32)


def integers(cls: type, bits: int, *, signed: bool) -> st.SearchStrategy[object]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(cls)


BY_TYPE: dict[type, st.SearchStrategy[object]] = {
    type(None): st.none(),
    bool: st.booleans(),
    UByte: integers(UByte, 8, signed=False),
    UShort: integers(UShort, 16, signed=False),
    UInt: integers(UInt, 32, signed=False),
    ULong: integers(ULong, 64, signed=False),
    Byte: integers(Byte, 8, signed=True),
    Short: integers(Short, 16, signed=True),
    Int: integers(Int, 32, signed=True),
    Long: integers(Long, 64, signed=True),
    Timestamp: integers(Timestamp, 64, signed=True),
    Float: FLOATS_32.map(Float),
    float: st.floats(allow_nan=False),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    uuid.UUID: st.uuids(),
    bytes: st.binary(max_size=300),
    str: TEXT,
    Symbol: TEXT.map(Symbol),
}
SCALARS = st.one_of(*BY_TYPE.values())
ARRAYS = st.sampled_from(list(BY_TYPE)).flatmap(
    lambda cls: st.lists(BY_TYPE[cls], max_size=8).map(lambda items: Array(items, cls))
)
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(TEXT.map(Symbol) | TEXT, inner, max_size=4),
        st.builds(Described, BY_TYPE[ULong] | BY_TYPE[Symbol], inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda lists: Array([*lists], list)),
    ),
    max_leaves=20,
)


def same(a: object, b: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, Described) and isinstance(b, Described):
        return same(a.descriptor, b.descriptor) and same(a.value, b.value)
    return a == b


@given(VALUES)
def test_a_value_comes_back_equal_and_of_the_same_amqp_type(value: object) -> None:
    assert same(decode_all(encode(value)), value)


@given(VALUES, st.binary(max_size=20))
def test_decoding_stops_where_the_value_ends(value: object, behind: bytes) -> None:
    data = encode(value)
    assert decode(b"\x40" + data + behind, 1)[1] == 1 + len(data)


@given(VALUES, st.data())
def test_a_value_that_is_cut_off_is_refused(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        decode_all(encoded[:cut])


@given(VALUES, st.data())
def test_a_damaged_value_decodes_to_something_or_is_refused(
    value: object, data: st.DataObject
) -> None:
    damaged = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(DecodeError):
        decode_all(bytes(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_decode_to_something_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode(data)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (ULong(0x24), "5324"),
        (Int(-1), "54ff"),
        (Int(200), "71000000c8"),
        (5, "5505"),
        (Long(-129), "81ffffffffffffff7f"),
        (Timestamp(1), "830000000000000001"),
        ("a", "a10161"),
        (Symbol("a"), "a30161"),
        (b"a", "a00161"),
        ([], "45"),
        ([None], "c0020140"),
        ({}, "c10100"),
        (Array([Symbol("a"), Symbol("bc")], Symbol), "e00d02b30000000161000000026263"),
    ],
)
def test_values_take_their_compact_form(value: object, expected: str) -> None:
    assert encode(value).hex() == expected


def test_a_nan_stays_a_nan() -> None:
    assert math.isnan(decode_all(encode(math.nan)))


def test_nesting_is_bounded() -> None:
    value: object = None
    for _ in range(NESTING_MAX):
        value = [value]
    assert decode_all(encode(value)) is not None
    with pytest.raises(DecodeError, match="deeply"):
        decode_all(encode([value]))
    with pytest.raises(DecodeError, match="deeply"):
        decode(b"\x00" * 100_000)


def test_a_count_larger_than_the_bytes_is_refused_before_anything_is_built() -> None:
    with pytest.raises(DecodeError, match="more elements"):
        decode(struct.pack(">BII", 0xD0, 5, 0xFFFFFFFF) + b"\x40")
    with pytest.raises(DecodeError, match="more elements"):
        decode(struct.pack(">BIIB", 0xF0, 5, 0xFFFFFFFF, 0x40))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (UInt(-1), "does not fit"),
        (UByte(256), "does not fit"),
        (1 << 63, "does not fit"),
        (Float(1e300), "does not fit"),
        ("\ud800", "UTF-8"),
        (object(), "no AMQP form"),
        (Decimal32(b"abc"), "decimal"),
        (Array(["a"], Symbol), "in an array"),
        (Array([], object), "no array"),
    ],
)
def test_what_has_no_amqp_form_is_refused(value: object, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        encode(value)


@pytest.mark.parametrize(
    "data",
    ["57", "a101ff", "5602", "7300110000", "730000d800", "c1030140", "c10502454040", "e00100"],
)
def test_malformed_values_are_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        decode_all(bytes.fromhex(data))
