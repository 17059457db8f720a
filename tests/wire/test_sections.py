"""Promises about message sections: read without decoding, patched without touching the rest."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.codec import decode, encode
from partibus.wire.errors import DecodeError
from partibus.wire.sections import (
    Sections,
    delivery,
    scan,
    split_batch,
    with_application_properties,
    with_message_id,
    with_properties,
)
from partibus.wire.values import Described, Int, Long, Short, Symbol, Timestamp, UInt, ULong

# Short ones mostly; the long one needs four bytes of size.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("é" * 200)
IDS = TEXT | st.uuids() | st.integers(0, 1 << 63).map(ULong) | st.binary(max_size=40)
TIMES = st.integers(0, 1 << 45).map(Timestamp)
PROPERTIES = st.tuples(
    st.none() | IDS,
    st.none() | st.binary(max_size=20),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | IDS,
    st.none() | TEXT.map(Symbol),
    st.none() | TEXT.map(Symbol),
    st.none() | TIMES,
    st.none() | TIMES,
    st.none() | TEXT,
    st.none() | st.integers(0, 99).map(UInt),
    st.none() | TEXT,
).flatmap(lambda fields: st.integers(0, 13).map(lambda count: list(fields[:count])))
APPLICATION = st.dictionaries(TEXT, st.none() | TEXT | st.booleans(), max_size=5)
BODIES = (
    st.lists(st.binary(max_size=600), min_size=1, max_size=3).map(
        lambda parts: [(0x75, part) for part in parts]
    )
    | st.just([(0x76, [1, 2]), (0x76, [])])
    | TEXT.map(lambda text: [(0x77, text)])
)


def message(*sections: tuple[int, object]) -> bytes:
    return b"".join(encode(Described(ULong(code), value)) for code, value in sections)


def parts(data: bytes) -> list[tuple[int, object]]:
    found = []
    pos = 0
    while pos < len(data):
        assert data[pos : pos + 2] == b"\x00\x53", "clients need smallulong descriptors"
        value, pos = decode(data, pos)
        found.append((int(value.descriptor), value.value))
    return found


def field(properties: list[object], index: int) -> object:
    return properties[index] if index < len(properties) else None


@given(PROPERTIES, APPLICATION, BODIES, st.none() | TEXT, st.none() | st.integers(0, 1 << 32 - 1))
def test_scan_finds_what_a_full_decode_would(
    properties: list[object],
    application: dict[str, object],
    body: list[tuple[int, object]],
    key: str | None,
    ttl: int | None,
) -> None:
    annotations: dict[object, object] = {Symbol("custom"): 1}
    if key is not None:
        annotations[Symbol("x-opt-partition-key")] = key
    head = message(
        (0x70, [True, None, None if ttl is None else UInt(ttl), None, UInt(3)]),
        (0x71, {Symbol("gone"): 1}),
        (0x72, annotations),
    )
    bare = message((0x73, properties), (0x74, application), *body, (0x78, {}))
    found = scan(head + bare)
    assert (found.ttl_ms, found.delivery_count) == (ttl, 3)
    assert found.partition_key == key
    assert found.group_id == field(properties, 10)
    assert found.absolute_expiry_time_ms == field(properties, 8)
    assert found.creation_time_ms == field(properties, 9)
    message_id = field(properties, 0)
    assert found.message_id_raw == (b"" if message_id is None else encode(message_id))
    if isinstance(message_id, (str, uuid.UUID, int)):
        assert found.message_id == str(message_id)
    assert found.bare == bare
    assert found.bare_offset == found.properties_offset == len(head)
    assert parts(found.payload[found.body_offset :])[0] == body[0]
    assert found.header_size == found.body_offset
    kept, _ = decode(
        b"\xd1"
        + (4 + len(found.kept_annotations)).to_bytes(4, "big")
        + int(found.kept_count * 2).to_bytes(4, "big")
        + found.kept_annotations
    )
    assert kept == annotations


def test_annotations_that_only_the_broker_sets_are_dropped() -> None:
    found = scan(
        message(
            (
                0x72,
                {
                    Symbol("x-opt-sequence-number"): 7,
                    Symbol("a"): "b",
                    Symbol("x-opt-locked-until"): Timestamp(1),
                    Symbol("x-opt-scheduled-enqueue-time"): Timestamp(99),
                    Symbol("x-opt-enqueued-time"): Timestamp(2),
                },
            ),
            (0x75, b""),
        )
    )
    assert found.kept_count == 2
    assert found.scheduled_enqueue_time_ms == 99
    assert b"x-opt-sequence-number" not in found.kept_annotations
    assert found.kept_annotations.startswith(encode(Symbol("a")) + encode("b"))


@pytest.mark.parametrize("value", ["key", Symbol("key"), b"key"])
def test_a_partition_key_is_text_whatever_type_it_came_as(value: object) -> None:
    found = scan(message((0x72, {Symbol("x-opt-partition-key"): value}), (0x75, b"")))
    assert found.partition_key == "key"
    assert found.kept_annotations == encode(Symbol("x-opt-partition-key")) + encode("key")


def test_a_time_of_the_year_one_means_not_set() -> None:
    unset = Timestamp(-62135596800000)
    found = scan(message((0x72, {Symbol("x-opt-scheduled-enqueue-time"): unset}), (0x75, b"")))
    assert found.scheduled_enqueue_time_ms is None


def test_symbolic_and_long_descriptors_are_understood() -> None:
    data = encode(Described(Symbol("amqp:properties:list"), ["id"]))
    data += b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75" + encode(b"body")
    found = scan(data)
    assert found.message_id == "id"
    assert found.body_offset > 0


@pytest.mark.parametrize(
    "data",
    [
        message((0x75, b""), (0x73, [])),
        message((0x73, []), (0x73, [])),
        message((0x79, [])),
        message((0x6F, [])),
        message((0x73, [None] * 10 + [5])),
        message((0x70, [None, None, "soon"])),
        message((0x72, {Symbol("x-opt-partition-key"): 5})),
        message((0x74, ["no map"])),
        b"plain text",
        b"\x00",
        message((0x75, b"abc"))[:-1],
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        scan(data)


@given(PROPERTIES, APPLICATION, BODIES, st.data())
def test_damaged_messages_are_read_or_refused(
    properties: list[object],
    application: dict[str, object],
    body: list[tuple[int, object]],
    draw: st.DataObject,
) -> None:
    damaged = bytearray(
        message(
            (0x70, [True, None, UInt(5)]),
            (0x72, {Symbol("x-opt-partition-key"): "k"}),
            (0x73, properties),
            (0x74, application),
            *body,
        )
    )
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    data = bytes(damaged[: draw.draw(st.integers(0, len(damaged)))])
    try:
        found = scan(data)
        with_message_id(found.bare, "id")
        with_application_properties(found.bare, {"a": 1})
        str(found.message_id)
    except DecodeError:
        pass
    with contextlib.suppress(DecodeError):
        split_batch(data)


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5))
def test_a_batch_is_split_into_the_messages_it_was_made_of(messages: list[bytes]) -> None:
    batch = message((0x73, ["id"]), *[(0x75, inner) for inner in messages])
    assert split_batch(batch) == messages


def test_a_batch_without_messages_is_refused() -> None:
    with pytest.raises(DecodeError):
        split_batch(message((0x73, ["id"])))


@given(PROPERTIES, APPLICATION, BODIES)
def test_a_missing_message_id_is_given_and_nothing_else_changes(
    properties: list[object], application: dict[str, object], body: list[tuple[int, object]]
) -> None:
    bare = message((0x73, properties), (0x74, application), *body)
    patched = with_message_id(bare, "new")
    if field(properties, 0) is not None:
        assert patched == bare
        return
    assert scan(patched).message_id == "new"
    expected = ["new", *properties[1:]]
    assert parts(patched) == [(0x73, expected), *parts(bare)[1:]]


def test_a_message_without_properties_gets_them_with_its_id() -> None:
    bare = message((0x77, "value"))
    assert with_message_id(bare, "new") == message((0x73, ["new"])) + bare
    assert with_message_id(b"", "new") == message((0x73, ["new"]))


@given(PROPERTIES, APPLICATION, BODIES, APPLICATION)
def test_application_properties_are_merged_and_nothing_else_changes(
    properties: list[object],
    application: dict[str, object],
    body: list[tuple[int, object]],
    changes: dict[str, object],
) -> None:
    bare = message((0x73, properties), (0x74, application), *body)
    patched = parts(with_application_properties(bare, changes))
    assert dict(patched[1][1]) == {**application, **changes}  # type: ignore[call-overload]
    assert [patched[0], *patched[2:]] == [(0x73, properties), *body]


def test_a_property_sent_under_a_symbol_is_replaced_by_its_string() -> None:
    bare = message((0x74, {Symbol("a"): 1}), (0x75, b"x"))
    assert with_application_properties(bare, {"a": "2"}) == message(
        (0x74, {"a": "2"}), (0x75, b"x")
    )


@given(PROPERTIES, BODIES, TIMES)
def test_the_expiry_time_is_set_and_nothing_else_changes(
    properties: list[object], body: list[tuple[int, object]], time_ms: int
) -> None:
    bare = message((0x73, properties), *body)
    patched = with_properties(bare, absolute_expiry_time_ms=time_ms)
    found = scan(patched)
    assert found.absolute_expiry_time_ms == time_ms
    expected = properties + [None] * (9 - len(properties))
    expected[8] = Timestamp(time_ms)
    assert parts(patched) == [(0x73, expected), *body]
    assert with_properties(bare) == bare


TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def delivered(found: Sections, **values: object) -> list[tuple[int, object]]:
    arguments: dict[str, object] = {
        "delivery_count": 0,
        "ttl_ms": None,
        "sequence_number": 5,
        "enqueued_time_ms": 1_700_000_000_000,
        "enqueue_sequence_number": 6,
        **values,
    }
    return parts(
        delivery(found.bare, found.kept_annotations, found.kept_count, **arguments)  # type: ignore[arg-type]
    )


def test_a_delivery_has_the_types_that_clients_expect() -> None:
    found = scan(message((0x72, {Symbol("a"): "b"}), (0x73, ["id"]), (0x75, b"body")))
    sections = delivered(
        found,
        delivery_count=300,
        ttl_ms=0xFFFFFFFF,
        locked_until_ms=1_700_000_060_000,
        lock_token=TOKEN.bytes_le,
        partition_id=-3,
        dead_letter_source="q",
        message_state=1,
    )
    assert [code for code, _ in sections] == [0x70, 0x71, 0x72, 0x73, 0x75]
    assert sections[0][1] == [None, None, 0xFFFFFFFF, None, 300]
    assert sections[1][1] == {"x-opt-lock-token": TOKEN}
    annotations = sections[2][1]
    assert isinstance(annotations, dict)
    assert annotations == {
        "x-opt-sequence-number": 5,
        "x-opt-enqueued-time": 1_700_000_000_000,
        "x-opt-enqueue-sequence-number": 6,
        "x-opt-locked-until": 1_700_000_060_000,
        "x-opt-partition-id": -3,
        "x-opt-deadletter-source": "q",
        "x-opt-message-state": 1,
        "a": "b",
    }
    assert [type(value) for value in annotations.values()] == [
        Long,
        Timestamp,
        Long,
        Timestamp,
        Short,
        str,
        Int,
        str,
    ]
    assert all(type(key) is Symbol for key in annotations)
    assert sections[3:] == [(0x73, ["id"]), (0x75, b"body")]


@pytest.mark.parametrize(
    ("ttl", "count", "header"),
    [
        (None, 0, [None, None, None, None, 0]),
        (None, 2, [None, None, None, None, 2]),
        (5000, 0, [None, None, 5000, None, 0]),
        (1 << 40, 1, [None, None, None, None, 1]),
    ],
)
def test_the_header_of_a_delivery(ttl: int | None, count: int, header: list[object]) -> None:
    found = scan(message((0x75, b"")))
    assert delivered(found, ttl_ms=ttl, delivery_count=count)[0] == (0x70, header)
