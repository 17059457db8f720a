"""What is read from a message as it enters, and what is refused."""

from __future__ import annotations

import pytest

from partibus.broker.errors import (
    ArgumentOutOfRange,
    InvalidOperation,
    MessageTooLarge,
    MessageUndecodable,
)
from partibus.broker.message import HEADERS_BYTES_MAX, Incoming, read_batch, read_message
from partibus.testing.messages import BYTES_MAX, batch, payload
from partibus.wire.sections import scan


def take_in(encoded: bytes, bytes_max: int = BYTES_MAX) -> Incoming:
    return read_message(encoded, bytes_max, lambda: "assigned")


def test_keys_and_times_are_read_and_the_content_is_kept_as_it_came() -> None:
    sent = payload(
        b"body",
        message_id="m",
        session="s",
        key="s",
        ttl_ms=5000,
        annotations={"x-mine": "kept"},
        properties={"a": "b"},
    )
    message = take_in(sent)
    assert message.session == message.partition_key == "s"
    assert message.message_id == "m"
    assert message.ttl_ms == 5000
    assert sent.endswith(message.bare)
    assert message.kept_count == 2
    assert b"x-mine" in message.kept


def test_a_message_without_an_id_is_given_one() -> None:
    message = take_in(payload(b"body"))
    assert message.message_id == "assigned"
    assert scan(message.bare).message_id == "assigned"
    assert message.bare.endswith(payload(b"body"))


def test_a_senders_own_id_is_never_touched() -> None:
    sent = payload(b"body", message_id="mine")
    assert take_in(sent).bare == sent


@pytest.mark.parametrize("name", ["message_id", "session", "key"])
def test_keys_have_at_most_128_characters(name: str) -> None:
    # Characters, not bytes.
    take_in(payload(**{name: "ü" * 128}))  # type: ignore[arg-type]
    with pytest.raises(ArgumentOutOfRange, match="129"):
        take_in(payload(**{name: "x" * 129}))  # type: ignore[arg-type]


def test_K3_session_and_partition_key_that_differ_are_refused() -> None:
    with pytest.raises(InvalidOperation, match="identical") as refused:
        take_in(payload(session="a", key="b"))
    assert refused.value.condition == "amqp:not-allowed"


def test_a_message_over_the_limit_is_refused_by_its_encoded_size() -> None:
    sent = payload(b"x" * 1000, message_id="m")
    assert take_in(sent, len(sent)).message_id == "m"
    with pytest.raises(MessageTooLarge):
        take_in(sent, len(sent) - 1)


def test_headers_and_properties_have_a_limit_of_their_own() -> None:
    with pytest.raises(MessageTooLarge, match="properties"):
        take_in(payload(properties={"large": "x" * HEADERS_BYTES_MAX}))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(MessageUndecodable):
        take_in(b"\x00\x53\x75")


@pytest.mark.parametrize(
    ("created_ms", "expires_ms", "expected"),
    [(1000, 5000, 4000), (5000, 1000, 0), (None, 5000, 0), (None, None, 0)],
)
def test_without_a_ttl_the_span_between_creation_and_expiry_counts(
    created_ms: int | None, expires_ms: int | None, expected: int
) -> None:
    assert take_in(payload(created_ms=created_ms, expires_ms=expires_ms)).ttl_ms == expected


def test_a_batch_is_its_messages_in_order_each_with_its_id() -> None:
    ids = iter(["first", "second"])
    sent = batch(payload(b"1"), payload(b"2", message_id="own"), payload(b"3"))
    messages = read_batch(sent, BYTES_MAX, lambda: next(ids))
    assert [message.message_id for message in messages] == ["first", "own", "second"]


def test_a_batch_is_refused_whole() -> None:
    with pytest.raises(InvalidOperation):
        read_batch(batch(payload(), payload(session="a", key="b")), BYTES_MAX, lambda: "id")
    with pytest.raises(MessageTooLarge, match="batch"):
        read_batch(batch(payload(b"x" * 100)), 100, lambda: "id")


@pytest.mark.parametrize("sent", [b"", b"\x00", payload()[:3]])
def test_a_batch_of_nothing_is_refused(sent: bytes) -> None:
    with pytest.raises(MessageUndecodable):
        read_batch(sent, BYTES_MAX, lambda: "id")
