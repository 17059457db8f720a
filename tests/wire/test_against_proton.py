"""Apache Qpid Proton and we read each other's values and messages."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from partibus.wire.codec import decode_all, encode
from partibus.wire.sections import delivery, scan
from partibus.wire.values import (
    Array,
    Byte,
    Char,
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

proton = pytest.importorskip("proton")

VALUES = [
    None,
    True,
    UByte(200),
    UShort(60_000),
    UInt(0),
    UInt(70_000),
    ULong(5),
    ULong(1 << 60),
    Byte(-5),
    Short(-300),
    Int(-70_000),
    Long(5),
    Long(-(1 << 60)),
    Float(1.5),
    2.5,
    Char("é"),
    Timestamp(1_700_000_000_000),
    uuid.UUID(int=77),
    b"bytes" * 100,
    "text" * 100,
    Symbol("symbol"),
    [1, "a", [None]],
    {"a": {"b": 1}},
    Described(Symbol("d"), "x"),
    Array([UInt(1), UInt(2)], UInt),
    Array([Symbol("a"), Symbol("b")], Symbol),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_through_proton_keeps_its_amqp_type(value: object) -> None:
    data = proton.Data()
    encoded = encode(value)
    assert data.decode(encoded) == len(encoded)
    back = decode_all(bytes(data.encode()))
    assert back == value
    assert type(back) is type(value)


def test_proton_reads_our_deliveries_and_we_its_messages() -> None:
    sent: Any = proton.Message(
        id="id",
        body=b"body",
        ttl=5,
        group_id="session",
        annotations={proton.symbol("x-opt-partition-key"): "session"},
        properties={"k": "v"},
    )
    found = scan(bytes(sent.encode()))
    assert (found.message_id, found.group_id) == ("id", "session")
    assert (found.partition_key, found.ttl_ms) == ("session", 5000)
    got: Any = proton.Message()
    got.decode(
        delivery(
            found.bare,
            found.kept_annotations,
            found.kept_count,
            delivery_count=1,
            ttl_ms=found.ttl_ms,
            sequence_number=4,
            enqueued_time_ms=5,
            enqueue_sequence_number=4,
            partition_id=3,
        )
    )
    assert (got.id, got.body, got.properties) == ("id", b"body", {"k": "v"})
    assert got.delivery_count == 1
    assert got.annotations["x-opt-sequence-number"] == 4
    assert got.annotations["x-opt-partition-key"] == "session"
