"""The codec of the vendor's Python SDK and ours read each other."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from librt.strings import BytesWriter

from partibus.wire.codec import decode_all, encode
from partibus.wire.composites import compose, decode_composite
from partibus.wire.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
)
from partibus.wire.sections import delivery, scan
from partibus.wire.transfer import TransferFrame, TransferWriter, write_disposition
from partibus.wire.values import Long, Symbol, Timestamp, UInt

pytest.importorskip("azure.servicebus")
from azure.servicebus._pyamqp import _decode, _encode, performatives
from azure.servicebus._pyamqp.message import Header, Message, Properties


def read(data: bytes) -> tuple[int, list[Any]]:
    """What pyamqp reads of a frame's body."""
    code, fields = _decode.decode_frame(memoryview(data))
    return code, fields


def written(frame: Any) -> bytes:
    """What pyamqp writes for a performative, without its frame header."""
    _, body = _encode.encode_frame(frame)
    assert body is not None
    return bytes(body)


@pytest.mark.parametrize(
    ("performative", "count"),
    [
        (Open("c"), 10),
        (Begin(1, 2, 3, 4), 8),
        (Attach("n", 1, True, source=Source("s"), target=Target("t")), 14),
        (Flow(1, 2, 3, 4, 5, 6, 7), 11),
        (Disposition(False, 1, 2, True, ACCEPTED), 6),
        (Detach(1, True, Error("a", "b")), 3),
        (End(), 1),
        (Close(Error("a", "b")), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pyamqp_finds_every_field_where_it_looks(performative: object, count: int) -> None:
    code, fields = read(compose(performative))
    assert code == compose(performative)[2]
    assert len(fields) == count


def test_pyamqp_reads_the_three_fields_of_an_error() -> None:
    out = BytesWriter()
    write_disposition(out, 0, True, 1, 1, True, compose(Rejected(Error("com.x:y", "why"))))
    _, fields = read(out.getvalue()[8:])
    assert fields[4] == {"rejected": [[b"com.x:y", b"why", None]]}


def test_pyamqp_reads_our_deliveries() -> None:
    token = uuid.UUID(int=0x00112233445566778899AABBCCDDEEFF)
    bare = (
        b"".join((b"\x00\x53\x73", encode(["id"]), b"\x00\x53\x74", encode({"k": "v"})))
        + b"\x00\x53\x75"
        + encode(b"body")
    )
    payload = delivery(
        bare,
        encode(Symbol("x-opt-partition-key")) + encode("key"),
        1,
        delivery_count=2,
        ttl_ms=60_000,
        sequence_number=1 << 48,
        enqueued_time_ms=1_700_000_000_000,
        enqueue_sequence_number=9,
        locked_until_ms=1_700_000_060_000,
        lock_token=token.bytes_le,
    )
    out = BytesWriter()
    TransferWriter(1, 2).write(out, 3, token.bytes_le, payload, False)
    code, fields = read(out.getvalue()[8:])
    assert (code, fields[:3]) == (20, [2, 3, token.bytes_le])
    message: Any = _decode.decode_payload(fields[11])
    assert message.header.delivery_count == 2
    assert message.header.ttl == 60_000
    assert message.delivery_annotations == {b"x-opt-lock-token": token}
    assert message.message_annotations == {
        b"x-opt-sequence-number": 1 << 48,
        b"x-opt-enqueued-time": 1_700_000_000_000,
        b"x-opt-enqueue-sequence-number": 9,
        b"x-opt-locked-until": 1_700_000_060_000,
        b"x-opt-partition-key": b"key",
    }
    assert message.properties.message_id == b"id"
    assert message.application_properties == {b"k": b"v"}
    assert message.data == [b"body"]


def test_we_read_the_messages_of_pyamqp() -> None:
    message = Message(
        header=Header(ttl=5000),
        message_annotations={"x-opt-partition-key": "key"},
        properties=Properties(message_id="id", group_id="session", creation_time=1_000),
        application_properties={"k": 1},
        data=[b"one", b"two"],
    )
    found = scan(bytes(_encode.encode_payload(bytearray(), message)))
    assert (found.ttl_ms, found.message_id, found.group_id) == (5000, "id", "session")
    assert found.partition_key == "key"
    assert found.creation_time_ms == 1_000


def test_we_read_the_frames_of_pyamqp() -> None:
    frame = performatives.TransferFrame(
        handle=3,
        delivery_id=7,
        delivery_tag=b"tag",
        message_format=0,
        settled=False,
        more=False,
        rcv_settle_mode=None,
        state=None,
        resume=None,
        aborted=None,
        batchable=None,
        payload=b"message",
    )
    data = written(frame)
    ours = TransferFrame()
    ours.read(data, 3, len(data))
    assert (ours.handle, ours.delivery_id, ours.tag) == (3, 7, b"tag")
    assert data[ours.payload :] == b"message"
    open_frame = performatives.OpenFrame(
        container_id="c",
        hostname="h",
        max_frame_size=1 << 20,
        channel_max=65535,
        idle_timeout=None,
        outgoing_locales=None,
        incoming_locales=None,
        offered_capabilities=None,
        desired_capabilities=None,
        properties={"product": "x"},
    )
    data = written(open_frame)
    opened = decode_composite(data, 0, len(data))[0]
    assert (opened.container_id, opened.max_frame_size) == ("c", 1 << 20)


VALUES = [
    None,
    True,
    UInt(0),
    UInt(300),
    Long(-5),
    1 << 40,
    Timestamp(1_700_000_000_000),
    "text",
    "t" * 300,
    b"binary",
    uuid.UUID(int=5),
    1.5,
    [1, "a", None],
    {"a": 1, "b": [True]},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_pyamqp_reads_our_values(value: object) -> None:
    data = memoryview(encode(value))
    rest, found = _decode._DECODE_BY_CONSTRUCTOR[data[0]](data[1:])
    assert bytes(rest) == b""
    assert plain(found) == plain(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_we_read_the_values_of_pyamqp(value: object) -> None:
    if isinstance(value, int) and type(value) is not bool:
        value = {"TYPE": "LONG", "VALUE": int(value)}
        data = bytearray()
        _encode.encode_value(data, value)
        assert decode_all(bytes(data)) == value["VALUE"]
        return
    data = bytearray()
    _encode.encode_value(data, value)
    assert plain(decode_all(bytes(data))) == plain(value)


def plain(value: Any) -> Any:
    """The value with text as bytes, as pyamqp gives it."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value
