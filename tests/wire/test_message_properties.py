"""Single properties are read and replaced; every other byte stays as it came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.codec import decode_all, encode
from partibus.wire.errors import DecodeError
from partibus.wire.message_properties import Head, read_annotations, replace_annotations
from partibus.wire.values import Int, Symbol, Timestamp

BODY = b"\x00\x53\x75\xa0\x04body"


def message(fields: list[object] | None, named: dict[str, object] | None) -> bytes:
    properties = b"" if fields is None else b"\x00\x53\x73" + encode(fields)
    return properties + (b"" if named is None else b"\x00\x53\x74" + encode(named)) + BODY


NAMES = st.text("abAB", min_size=1, max_size=2)
VALUES = st.one_of(st.integers(-5, 5), st.text(max_size=300), st.none(), st.booleans())
NAMED = st.dictionaries(NAMES, VALUES, max_size=6)


@given(NAMED, st.frozensets(st.text("ab", min_size=1, max_size=2), max_size=3))
def test_the_first_of_the_names_that_were_asked_for(
    named: dict[str, object], wanted: frozenset[str]
) -> None:
    first: dict[str, object] = {}
    for name, value in named.items():
        first.setdefault(name.lower(), value)
    head = Head(message(None, named))
    assert head.named(None) == first
    assert head.named(wanted) == {key: first[key] for key in wanted if key in first}
    assert head.bare[head.body_offset :] == BODY


@given(
    st.one_of(st.none(), st.lists(VALUES, max_size=13)),
    st.one_of(st.none(), NAMED),
    st.dictionaries(st.integers(0, 12), VALUES, max_size=3),
    NAMED,
    st.frozensets(NAMES, max_size=2),
)
def test_replacing_changes_what_is_named_and_nothing_else(
    fields: list[object] | None,
    named: dict[str, object] | None,
    new_fields: dict[int, object],
    new_named: dict[str, object],
    removed: frozenset[str],
) -> None:
    head = Head(message(fields, named))
    changed = Head(head.replaced(new_fields, new_named, removed) + BODY)
    expected = list(fields or [])
    for index, value in new_fields.items():
        expected += [None] * (index + 1 - len(expected))
        expected[index] = value
    assert [decode_all(each) for each in changed.fields()] == expected
    keys = {name.lower(): value for name, value in new_named.items()}
    first = head.named(None) | keys
    left = {key: value for key, value in first.items() if key not in map(str.lower, removed)}
    for key, value in keys.items():
        # Removed and given again: what is given is there.
        if key in map(str.lower, removed):
            left[key] = value
    assert changed.named(None) == left
    assert changed.bare[changed.body_offset :] == BODY


def test_a_property_keeps_the_spelling_and_the_bytes_of_its_name() -> None:
    head = Head(message(["id"], {"Color": "red", "n": Int(1)}))
    assert head.replaced({}, {"COLOR": "blue"}, ()) + BODY == message(
        ["id"], {"Color": "blue", "n": Int(1)}
    )
    assert head.replaced({}, {}, ("n", "color")) + BODY == message(["id"], None)


@pytest.mark.parametrize("cut", range(1, 17))
def test_what_is_cut_off_is_malformed(cut: int) -> None:
    whole = message(["id", None, "to"], {"a": 1, "b": "two"})[: -len(BODY)]
    with pytest.raises(DecodeError):
        Head(whole[:-cut]).named(None)


def test_annotations_are_read_and_replaced() -> None:
    pairs = b"".join(
        encode(Symbol(key)) + encode(value)
        for key, value in {"mine": Int(1), "x-opt-partition-key": "p"}.items()
    )
    assert read_annotations(pairs, 2) == {"mine": 1, "x-opt-partition-key": "p"}
    changes = {"x-opt-partition-key": None, "time": Timestamp(5)}
    changed, count = replace_annotations(pairs, 2, changes)
    assert read_annotations(changed, count) == {"mine": 1, "time": 5}
