from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partibus.wire.codec import encode
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import application_values
from partibus.wire.values import Symbol

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")

names = st.sampled_from(["a", "b", "région", "n" * 300]) | st.text(max_size=4)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.just("t" * 300),
    st.binary(max_size=5),
    st.just(Symbol("symbol")),
    st.lists(st.integers(0, 5), max_size=2),
)
maps = st.dictionaries(names, values, max_size=5).map(encode)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A map with an octet changed, or cut off somewhere."""
    encoded = bytearray(draw(maps))
    at = draw(st.integers(0, len(encoded) - 1))
    if draw(st.booleans()):
        encoded[at] = draw(st.integers(0, 255))
    else:
        del encoded[at:]
    return bytes(encoded)


def one_by_one(encoded: bytes) -> list[tuple[str, str | None]]:
    try:
        return list(application_values(encoded).items())
    except DecodeError:
        return []


TWINS = b"\xc1\x0d\x04" + b"\xa1\x01a\xa1\x01x" * 2
MANY = encode({f"name {number}": number for number in range(40)})


@given(st.lists(st.just(b"") | maps | broken() | st.binary(max_size=8)))
@example([b"", encode({"a": "1", "b": 7}), encode({"a": "2"}), TWINS, MANY])
@example([b"\xc1\x08\x02\xa1\x01a\xa1\x09x"])
@example([b"\xc1\x07\x02\xa1\x01\xff\xa1\x00", encode({"a": "1"})])
def test_S1_properties_together_are_what_those_of_each_message_are(encoded: list[bytes]) -> None:
    from partibus.management.bulk.application import text_maps

    found = text_maps(pa.array(encoded, pa.binary()))

    found.validate(full=True)
    assert found.to_pylist() == [one_by_one(each) for each in encoded]
