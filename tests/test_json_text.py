"""JSON as people write it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.json_text import JsonTextError, parse_json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_plain_json_is_read_as_it_is(value: object) -> None:
    assert parse_json_text(json.dumps(value, ensure_ascii=False).encode()) == value


def test_comments_and_trailing_commas_are_passed_over() -> None:
    text = b"""\xef\xbb\xbf{
      // a namespace, with "quotes"
      "a": [1, 2, /* three, */ ],
      "b": "http://host/*not a comment*/,]", /* the end
      of it */
    }"""
    assert parse_json_text(text) == {"a": [1, 2], "b": "http://host/*not a comment*/,]"}


def test_an_error_names_the_line_and_column_in_the_file() -> None:
    with pytest.raises(JsonTextError, match="line 3, column 7"):
        parse_json_text(b'{ // one\n  /* two */ "a": 1,\n  "b" 2 }')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b"[NaN]", "NaN"),
        (b"\xff", "UTF-8"),
        (b"[1,,]", "line 1"),
        (b"/* never closed", "line 1"),
        (b"[" * 100_000, "too deeply"),
        (b"", "line 1"),
    ],
)
def test_what_is_not_json_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(JsonTextError, match=problem):
        parse_json_text(text)


@pytest.mark.parametrize("piece", [b"/* a ", b", /* a */ ", b'"\\', b",  ", b"// x"])
def test_no_text_takes_long_to_refuse(piece: bytes) -> None:
    with pytest.raises(JsonTextError):
        parse_json_text(b"[" + piece * 100_000)
