from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.client.encoding import decode_message, encode_batch, encode_message
from partibus.client.errors import MalformedMessage
from partibus.client.message import Message, MessageState
from partibus.wire.codec import decode, encode
from partibus.wire.errors import EncodeError
from partibus.wire.sections import delivery, scan, split_batch
from partibus.wire.values import Described, Int, Symbol, Timestamp, UInt

NOW_MS = 1_700_000_000_000
AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

texts = st.none() | st.text(max_size=20)
values = (
    st.none() | st.booleans() | st.text(max_size=20) | st.binary(max_size=20)
    | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.uuids()
)  # fmt: skip
messages = st.builds(
    Message,
    st.binary(max_size=300),
    message_id=st.text(max_size=20) | st.uuids(),
    session_id=texts,
    partition_key=texts,
    via_partition_key=texts,
    subject=texts,
    correlation_id=texts,
    to=texts,
    reply_to=texts,
    reply_to_session_id=texts,
    content_type=texts,
    time_to_live=st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=40)),
    properties=st.dictionaries(st.text(max_size=10), values, max_size=4),
)


@given(messages)
def test_what_is_sent_is_what_is_received(message: Message) -> None:
    received = decode_message(encode_message(message, NOW_MS))
    for name in Message.__slots__:
        ours = getattr(message, name)
        if isinstance(ours, timedelta):
            ours -= ours % timedelta(milliseconds=1)
        assert getattr(received, name) == ours, name


def sections(payload: bytes) -> dict[object, object]:
    found: dict[object, object] = {}
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        assert isinstance(section, Described)
        found[section.descriptor] = section.value
    return found


def test_keys_and_times_have_the_types_that_the_service_reads() -> None:
    message = Message(
        "body",
        message_id="id",
        session_id="s",
        partition_key="s",
        via_partition_key="v",
        content_type="text/plain",
        time_to_live=timedelta(days=60),
        scheduled_enqueue_time=AT,
        properties={"at": AT, "n": 7},
    )
    payload = encode_message(message, NOW_MS)
    found = sections(payload)
    assert found[0x70] == [None, None, UInt(0xFFFFFFFF)]
    annotations = found[0x72]
    assert isinstance(annotations, dict)
    assert all(type(key) is Symbol for key in annotations)
    assert annotations["x-opt-partition-key"] == "s"
    assert annotations["x-opt-via-partition-key"] == "v"
    assert type(annotations["x-opt-scheduled-enqueue-time"]) is Timestamp
    properties = found[0x73]
    assert isinstance(properties, list)
    assert type(properties[6]) is Symbol
    # A header cannot hold sixty days; these two can.
    assert properties[8] == Timestamp(NOW_MS + 60 * 86_400_000)
    assert properties[9] == Timestamp(NOW_MS)
    assert found[0x75] == b"body"
    assert scan(payload).scheduled_enqueue_time_ms == int(AT.timestamp() * 1000)


def test_a_body_that_is_neither_bytes_nor_text_is_an_amqp_value() -> None:
    payload = encode_message(Message({"a": [1, None]}), NOW_MS)
    assert sections(payload)[0x77] == {"a": [1, None]}
    assert decode_message(payload).body == {"a": [1, None]}


def test_a_batch_carries_whole_messages_and_the_keys_of_the_first() -> None:
    first = Message("a", message_id="1", session_id="s", partition_key="s")
    encoded = [encode_message(first, NOW_MS), encode_message(Message("b"), NOW_MS)]
    batch = encode_batch(encoded, first)
    assert split_batch(batch) == encoded
    envelope = scan(batch)
    assert (envelope.message_id, envelope.group_id, envelope.partition_key) == ("1", "s", "s")


def test_what_the_broker_says_of_a_message_is_read() -> None:
    token = UUID(int=7)
    payload = delivery(
        encode_message(Message("hi", message_id="m"), NOW_MS),
        b"",
        0,
        delivery_count=3,
        ttl_ms=60_000,
        sequence_number=(5 << 48) + 9,
        enqueued_time_ms=NOW_MS,
        enqueue_sequence_number=4,
        locked_until_ms=NOW_MS + 30_000,
        lock_token=token.bytes_le,
        partition_id=5,
        dead_letter_source="orders",
        message_state=1,
    )
    message = decode_message(payload)
    assert message.text == "hi"
    assert message.sequence_number == (5 << 48) + 9
    assert message.enqueued_sequence_number == 4
    assert message.delivery_count == 3
    assert message.time_to_live == timedelta(minutes=1)
    assert message.lock_token == token
    assert message.locked_until == datetime.fromtimestamp(NOW_MS / 1000 + 30, UTC)
    assert message.enqueued_time == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert message.partition_id == 5
    assert message.dead_letter_source == "orders"
    assert message.state is MessageState.DEFERRED


def test_bytes_where_text_was_are_read_as_text() -> None:
    annotations = encode({Symbol("x-opt-partition-key"): b"key"})
    payload = b"\x00\x53\x72" + annotations + b"\x00\x53\x73" + encode([b"id", None, b"to"])
    message = decode_message(payload)
    assert (message.partition_key, message.message_id, message.to) == ("key", b"id", "to")


def test_a_time_that_is_not_set_is_none() -> None:
    note = {Symbol("x-opt-locked-until"): Timestamp(-62135596800000)}
    assert decode_message(b"\x00\x53\x72" + encode(note)).locked_until is None


def test_several_data_sections_are_one_body() -> None:
    assert decode_message(b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b").body == b"ab"


@given(st.binary(max_size=60))
def test_nothing_that_comes_raises_anything_but_malformed(noise: bytes) -> None:
    for payload in (noise, b"\x00\x53\x72" + noise, b"\x00\x53\x73" + encode(list(noise))):
        with contextlib.suppress(MalformedMessage):
            decode_message(payload)


def test_an_unknown_state_is_malformed() -> None:
    note = {Symbol("x-opt-message-state"): Int(9)}
    with pytest.raises(MalformedMessage):
        decode_message(b"\x00\x53\x72" + encode(note))


@pytest.mark.parametrize(
    "message",
    [
        Message(scheduled_enqueue_time=datetime(2030, 1, 1)),  # noqa: DTZ001
        Message(time_to_live=timedelta(0)),
        Message(properties={"at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ],
)
def test_times_that_mean_nothing_are_refused(message: Message) -> None:
    with pytest.raises(ValueError, match="time"):
        encode_message(message, NOW_MS)


def test_values_without_an_amqp_form_are_refused() -> None:
    with pytest.raises(EncodeError):
        encode_message(Message(properties={"x": object()}), NOW_MS)
