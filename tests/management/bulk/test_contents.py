from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partibus.wire.codec import encode, encode_list
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import Parts, parts

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")

LONG = 300


def sized(short: int, octets: bytes, *, is_long: bool) -> bytes:
    """A value with its size in one octet or in four."""
    if is_long or len(octets) > 255:
        return bytes([short | 0x10]) + len(octets).to_bytes(4, "big") + octets
    return bytes([short, len(octets)]) + octets


def compound(short: int, items: list[bytes], *, is_long: bool) -> bytes:
    body = b"".join(items)
    if is_long or len(body) > 254:
        count = len(items).to_bytes(4, "big")
        return bytes([short | 0x10]) + (len(body) + 4).to_bytes(4, "big") + count + body
    return bytes([short, len(body) + 1, len(items)]) + body


texts = st.builds(
    lambda text, is_long: sized(0xA1, text.encode(), is_long=is_long),
    st.text(max_size=20) | st.text("x", min_size=LONG, max_size=LONG),
    st.booleans(),
)
octet_strings = st.builds(
    lambda octets, is_long: sized(0xA0, octets, is_long=is_long),
    st.binary(max_size=20) | st.binary(min_size=LONG, max_size=LONG),
    st.booleans(),
)
ids = texts | octet_strings | st.sampled_from([b"\x40", b"\x53\x07", b"\xa1\x02\xc3\x28", b"\x45"])
ids |= st.binary(min_size=16, max_size=16).map(lambda octets: b"\x98" + octets)
properties = st.one_of(
    st.just(b""),
    st.just(b"\x00\x53\x73\x45"),
    st.builds(
        lambda first, more, is_long: (
            b"\x00\x53\x73" + compound(0xC0, [first, *more], is_long=is_long)
        ),
        ids,
        st.lists(texts | st.just(b"\x40"), max_size=4),
        st.booleans(),
    ),
)
maps = st.builds(
    lambda pairs, is_long: (
        b"\x00\x53\x74" + compound(0xC1, [each for pair in pairs for each in pair], is_long=is_long)
    ),
    st.lists(
        st.tuples(texts, texts | st.sampled_from([b"\x41", b"\x54\x05", b"\x40"])), max_size=3
    ),
    st.booleans(),
)
application = st.just(b"") | maps | st.sampled_from([b"\x00\x53\x74\x45", b"\x00\x53\x74\x40"])
data = octet_strings.map(lambda octets: b"\x00\x53\x75" + octets)
bodies = st.one_of(
    data,
    st.just(b""),
    st.builds(lambda one, two: one + two, data, data),
    texts.map(lambda text: b"\x00\x53\x77" + text),
    data.map(lambda one: one + b"\x00\x53\x78\xc1\x01\x00"),
)
messages = st.builds(lambda *each: b"".join(each), properties, application, bodies)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A message with an octet changed, or cut off somewhere."""
    message = bytearray(draw(messages) or b"\x00")
    at = draw(st.integers(0, len(message) - 1))
    if draw(st.booleans()):
        message[at] = draw(st.integers(0, 255))
    else:
        del message[at:]
    return bytes(message)


def one_by_one(bare: bytes) -> Parts:
    try:
        return parts(bare)
    except DecodeError:
        return None, b"", b"", bare


def usual(number: int) -> bytes:
    properties = encode_list([encode(f"message-{number}"), encode(None), encode("to")])
    return b"\x00\x53\x73" + properties + b"\x00\x53\x75" + encode(b"body %d" % number)


@given(st.lists(st.tuples(st.binary(max_size=6), messages | broken() | st.binary(max_size=12))))
@example([(b"", usual(number)) for number in range(3)])
@example([(b"gap", b"\x00\x53\x73\xd0\xff\xff\xff\xff"), (b"", usual(1))])
@example([(b"", b"\x00\x53\x73\xc0\x05\x01\xa1\x02\xc3\x28\x00\x53\x75\xa0\x00"), (b"", usual(1))])
def test_S1_messages_together_are_what_each_of_them_is_alone(
    rows: list[tuple[bytes, bytes]],
) -> None:
    """Whatever was accepted: broken, odd, cut off, and among others."""
    from partibus.management.bulk.contents import Contents, Octets

    octets, begin, end = b"", [], []
    for gap, message in rows:
        octets += gap
        begin.append(len(octets))
        octets += message
        end.append(len(octets))
    found = Contents(Octets(octets), pa.array(begin, pa.int32()), pa.array(end, pa.int32()))
    alone = [one_by_one(message) for _, message in rows]
    together = [
        each.to_pylist()
        for each in (
            found.message_ids(),
            found.properties(),
            found.application(),
            found.bodies(),
        )
    ]
    assert list(zip(*together, strict=True)) == alone
