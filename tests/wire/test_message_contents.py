from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.codec import encode, encode_list
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import (
    annotation_values,
    application_values,
    parts,
    property_values,
)
from partibus.wire.values import Symbol


def bare(
    message_id: object, fields: list[object], application: dict[str, object], *bodies: bytes
) -> bytes:
    properties = encode_list([encode(each) for each in (message_id, *fields)])
    sections = [b"\x00\x53\x73" + properties]
    if application:
        sections.append(b"\x00\x53\x74" + encode(application))
    return b"".join([*sections, *bodies])


def data(octets: bytes) -> bytes:
    return b"\x00\x53\x75" + encode(octets)


@given(
    st.text(max_size=300),
    st.lists(st.none() | st.text(max_size=40), max_size=12),
    st.dictionaries(st.text(max_size=20), st.text(max_size=300), max_size=5),
    st.binary(max_size=600),
)
def test_S1_a_message_of_any_length_is_read_as_it_was_written(
    message_id: str, fields: list[str | None], application: dict[str, str], body: bytes
) -> None:
    found = parts(bare(message_id, list(fields), dict(application), data(body)))

    assert found[0] == message_id
    assert property_values(found[1])[: len(fields)] == fields
    assert application_values(found[2]) == application
    assert found[3] == body


def test_S1_several_data_sections_are_one_body() -> None:
    assert parts(bare("a", [], {}, data(b"one "), data(b"two")))[3] == b"one two"


def test_S1_a_body_that_is_a_value_is_text_or_json() -> None:
    def body(value: object) -> bytes:
        return parts(bare("a", [], {}, b"\x00\x53\x77" + encode(value)))[3]

    assert body("grüezi") == "grüezi".encode()
    assert body(b"\x00\x01") == b"\x00\x01"
    assert body({"a": [1, True, None]}) == b'{"a": [1, true, null]}'


def test_S1_a_message_may_have_neither_properties_nor_body() -> None:
    assert parts(b"") == (None, b"", b"", b"")
    assert parts(bare(None, [], {}))[0] is None


def test_S1_values_of_all_types_are_shown_as_text() -> None:
    application = encode({"flag": True, "count": 7, "octets": b"\xff", "none": None})
    assert application_values(application) == {
        "flag": "true", "count": "7", "octets": "\\xff", "none": None,
    }  # fmt: skip


def test_S1_annotations_are_read_as_pairs() -> None:
    kept = encode(Symbol("x-opt-partition-key")) + encode("k")
    assert annotation_values(kept) == {"x-opt-partition-key": "k"}


@given(st.binary(max_size=60))
def test_S1_what_is_no_message_is_refused_and_nothing_worse(octets: bytes) -> None:
    try:
        found = parts(octets)
    except DecodeError:
        return
    assert len(found) == 4


def test_S1_a_cut_off_message_is_refused() -> None:
    with pytest.raises(DecodeError):
        parts(bare("abc", [], {}, data(b"body"))[:-1])
