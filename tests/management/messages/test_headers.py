"""User properties keep their names, types and values over HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.errors import InvalidArgument
from partibus.management.messages.headers import (
    read_time,
    read_user_headers,
    write_time,
    write_user_headers,
)
from partibus.wire.values import Timestamp

names = st.text("abcXYZ -_äß%", min_size=1, max_size=12)
texts = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"), max_size=20)
numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
times = st.integers(0, 253_402_300_799).map(lambda second: Timestamp(second * 1000))


@given(st.dictionaries(names, texts | st.booleans() | numbers | times))
def test_A2_properties_come_back_as_they_went(properties: dict[str, object]) -> None:
    assert read_user_headers(write_user_headers(properties)) == properties


def test_what_http_needs_for_itself_is_no_property() -> None:
    sent = [(b"Host", b"x"), (b"User-Agent", b"curl"), (b"X-Forwarded-For", b"1.2.3.4")]
    assert read_user_headers(sent) == {}
    assert write_user_headers({"Content-Length": 7, "Location": "x", "none": None}) == []


def test_a_line_break_does_not_end_a_header() -> None:
    ((_, value),) = write_user_headers({"a": "one\r\nSet-Cookie: two"})
    assert value == b'"one  Set-Cookie: two"'


@pytest.mark.parametrize("text", ["red", "1,5", "1e9999", '"open', "NaN", "9" * 400])
def test_a_value_of_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="Colour"):
        read_user_headers([(b"Colour", text.encode())])


@pytest.mark.parametrize("text", ["yesterday", "Sun, 99 Nov 1994 08:49:37 GMT", ""])
def test_what_is_no_time_is_none(text: str) -> None:
    assert read_time(text) is None
    assert write_time(10**20).endswith("9999 23:59:59 GMT")
