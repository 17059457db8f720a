"""Requests are held against SPEC 4.2 down to the AMQP types: clients and services are strict."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from partibus.client import requests
from partibus.client.dialogue import Response
from partibus.client.encoding import encode_message
from partibus.client.errors import (
    MalformedMessage,
    MessageLockLost,
    MessageNotFound,
    NotSupported,
    SessionLockLost,
)
from partibus.client.message import Message
from partibus.wire.codec import decode_all, encode
from partibus.wire.values import Array, Int, Long, Timestamp, UInt

TOKEN = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def ok(**body: object) -> Response:
    return Response(200, "OK", None, {name.replace("_", "-"): each for name, each in body.items()})


def refused(status: int, condition: str) -> Response:
    return Response(status, "no", condition, {})


def typed(value: object) -> object:
    """A value with its types beside it, after a trip over the wire."""
    value = decode_all(encode(value))
    if isinstance(value, dict):
        return {key: typed_plain(each) for key, each in value.items()}
    return typed_plain(value)


def typed_plain(value: object) -> object:
    if isinstance(value, Array):
        return ("array", value.element_type, list(value))
    return (type(value), value)


def test_a_request_names_operation_time_and_link() -> None:
    request = requests.renew_session_lock("s")
    assert request.properties(60_000, "link") == {
        "operation": "com.microsoft:renew-session-lock",
        "com.microsoft:server-timeout": UInt(60_000),
        "associated-link-name": "link",
    }
    assert "associated-link-name" not in request.properties(60_000, None)


def test_peek() -> None:
    assert typed(requests.peek(10, 5, None).body) == {
        "from-sequence-number": (Long, 5),
        "message-count": (Int, 10),
    }
    assert requests.peek(1, 0, "s").body["session-id"] == "s"


def test_a_peek_ends_with_no_content_or_with_no_message() -> None:
    assert requests.peeked(Response(204, "none", None, {})) == []
    assert requests.peeked(refused(404, "com.microsoft:message-not-found")) == []
    with pytest.raises(NotSupported):
        requests.peeked(refused(501, "amqp:not-implemented"))


def test_schedule() -> None:
    message = Message("x", message_id="m", session_id="s", partition_key="s")
    request = requests.schedule([(message, b"encoded")])
    assert request.operation == "schedule-message"
    assert request.body == {
        "messages": [
            {"message-id": "m", "message": b"encoded", "session-id": "s", "partition-key": "s"}
        ]
    }
    answer = ok(sequence_numbers=Array([Long(7), Long(8)], Long))
    assert requests.scheduled(answer) == [7, 8]


def test_cancel_scheduled() -> None:
    assert typed(requests.cancel_scheduled([7, 1 << 48]).body) == {
        "sequence-numbers": ("array", Long, [7, 1 << 48])
    }


def test_receive_deferred() -> None:
    request = requests.receive_deferred([9], is_locking=True, session_id="s")
    assert request.operation == "receive-by-sequence-number"
    assert typed(request.body) == {
        "sequence-numbers": ("array", Long, [9]),
        "receiver-settle-mode": (UInt, 1),
        "session-id": (str, "s"),
    }
    deleting = requests.receive_deferred([9], is_locking=False, session_id=None)
    assert deleting.body["receiver-settle-mode"] == UInt(0)
    payload = encode_message(Message("late", message_id="m"), 0)
    (message,) = requests.deferred(ok(messages=[{"lock-token": TOKEN, "message": payload}]))
    assert (message.text, message.lock_token) == ("late", TOKEN)


def test_renew_lock() -> None:
    assert typed(requests.renew_lock([TOKEN]).body) == {"lock-tokens": ("array", UUID, [TOKEN])}
    until = requests.renewed(ok(expirations=Array([Timestamp(60_000)], Timestamp)))
    assert until == [datetime(1970, 1, 1, 0, 1, tzinfo=UTC)]
    with pytest.raises(MessageLockLost):
        requests.renewed(refused(410, "com.microsoft:message-lock-lost"))


def test_settle() -> None:
    request = requests.settle(
        "suspended", TOKEN, reason="r", description="d", properties={"a": 1}, session_id="s"
    )
    assert request.operation == "update-disposition"
    assert request.body == {
        "disposition-status": "suspended",
        "lock-tokens": Array([TOKEN], UUID),
        "deadletter-reason": "r",
        "deadletter-description": "d",
        "properties-to-modify": {"a": 1},
        "session-id": "s",
    }


def test_session_state() -> None:
    assert requests.set_session_state("s", None).body == {"session-id": "s", "session-state": None}
    assert requests.get_session_state("s").body == {"session-id": "s"}
    assert requests.session_state(ok(session_state=b"")) == b""
    assert requests.session_state(ok(session_state=None)) is None
    with pytest.raises(SessionLockLost):
        requests.session_state(refused(410, "com.microsoft:session-lock-lost"))


def test_renew_session_lock() -> None:
    assert requests.session_renewed(ok(expiration=Timestamp(0))) == datetime(1970, 1, 1, tzinfo=UTC)


def test_list_sessions() -> None:
    request = requests.list_sessions(200)
    assert request.operation == "get-message-sessions"
    assert typed(request.body) == {
        "last-updated-time": (Timestamp, 253_402_300_800_000),
        "skip": (Int, 200),
        "top": (Int, 100),
    }
    assert requests.listed_sessions(ok(sessions_ids=Array(["a", "b"], str))) == ["a", "b"]
    assert requests.listed_sessions(refused(204, "com.microsoft:session-not-found")) == []


@pytest.mark.parametrize("body", [None, {}, {"messages": [1]}, {"messages": [{"message": "x"}]}])
def test_an_answer_that_is_none_is_malformed(body: object) -> None:
    with pytest.raises(MalformedMessage):
        requests.deferred(Response(200, "OK", None, body))


def test_a_missing_message_is_told() -> None:
    with pytest.raises(MessageNotFound):
        requests.deferred(refused(404, "com.microsoft:message-not-found"))
