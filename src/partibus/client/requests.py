"""What can be asked of an entity's `$management`: the requests, and what their answers mean.

Pure: a request is a value with its operation and body, spelled as SPEC 4.2 says, types included;
reading the answer is a function of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from partibus.client.dialogue import Response
from partibus.client.encoding import decode_message, to_time
from partibus.client.errors import MalformedMessage, MessageNotFound, error_of_status
from partibus.client.message import Message, ReceivedMessage
from partibus.wire.values import Array, Int, Long, Timestamp, UInt

# Every session with messages or state is asked for by this time (SPEC 4.3).
_ALL_SESSIONS_MS = 253_402_300_800_000
SESSIONS_PAGE = 100
_NO_CONTENT = 204


@dataclass(frozen=True, slots=True)
class Request:
    """An operation and what it is told."""

    operation: str
    body: dict[str, object]

    def properties(self, timeout_ms: int, link_name: str | None) -> dict[str, object]:
        """The application properties of the request.

        The name of a link keeps that link from idling out, and finds its fragment.
        """
        properties: dict[str, object] = {
            "operation": f"com.microsoft:{self.operation}",
            "com.microsoft:server-timeout": UInt(timeout_ms),
        }
        if link_name is not None:
            properties["associated-link-name"] = link_name
        return properties


def check(response: Response) -> Response:
    """The response, if it is a success. Raises the error it tells otherwise."""
    if 200 <= response.status < 300:
        return response
    raise error_of_status(response.status, response.condition, response.text)


def _longs(numbers: Sequence[int]) -> Array:
    return Array([Long(number) for number in numbers], Long)


def _with_session(body: dict[str, object], session_id: str | None) -> dict[str, object]:
    if session_id is not None:
        body["session-id"] = session_id
    return body


# Messages ---------------------------------------------------------------------------------------


def peek(count: int, from_sequence_number: int, session_id: str | None) -> Request:
    """Look at messages from this number on, without locking them."""
    body: dict[str, object] = {
        "from-sequence-number": Long(from_sequence_number),
        "message-count": Int(count),
    }
    return Request("peek-message", _with_session(body, session_id))


def peeked(response: Response) -> list[ReceivedMessage]:
    """The messages of a peek; none where there are no more."""
    if response.status == _NO_CONTENT:
        return []
    if response.status == 404 and response.condition in MessageNotFound.conditions:
        return []
    return _messages(check(response))


def schedule(messages: Sequence[tuple[Message, bytes]]) -> Request:
    """Have messages enqueued later; each comes with its encoded form."""
    return Request("schedule-message", {"messages": [_scheduled(*each) for each in messages]})


def _scheduled(message: Message, payload: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"message-id": str(message.message_id), "message": payload}
    for name, value in (
        ("session-id", message.session_id),
        ("partition-key", message.partition_key),
        ("via-partition-key", message.via_partition_key),
    ):
        if value is not None:
            entry[name] = value
    return entry


def scheduled(response: Response) -> list[int]:
    """The sequence numbers by which the scheduled messages can be cancelled."""
    return [int(number) for number in _items(check(response), "sequence-numbers", int)]


def cancel_scheduled(numbers: Sequence[int]) -> Request:
    """Take back messages that were scheduled."""
    return Request("cancel-scheduled-message", {"sequence-numbers": _longs(numbers)})


def receive_deferred(
    numbers: Sequence[int], *, is_locking: bool, session_id: str | None
) -> Request:
    """Receive messages that were deferred."""
    body: dict[str, object] = {
        "sequence-numbers": _longs(numbers),
        "receiver-settle-mode": UInt(1 if is_locking else 0),
    }
    return Request("receive-by-sequence-number", _with_session(body, session_id))


def deferred(response: Response) -> list[ReceivedMessage]:
    """The deferred messages, each with its lock."""
    return _messages(check(response))


def _messages(response: Response) -> list[ReceivedMessage]:
    messages = []
    for entry in _items(response, "messages", dict):
        payload, token = entry.get("message"), entry.get("lock-token")
        if not isinstance(payload, bytes):
            raise MalformedMessage("a response has a message that is no binary")
        messages.append(decode_message(payload, token if isinstance(token, UUID) else None))
    return messages


# Locks and settlements --------------------------------------------------------------------------


def renew_lock(tokens: Sequence[UUID]) -> Request:
    """Lock messages for another while."""
    return Request("renew-lock", {"lock-tokens": Array(list(tokens), UUID)})


def renewed(response: Response) -> list[datetime]:
    """Until when the messages are locked now."""
    times = [to_time(each) for each in _items(check(response), "expirations", int)]
    return [time for time in times if time is not None]


def settle(
    status: str,
    token: UUID,
    *,
    reason: str | None = None,
    description: str | None = None,
    properties: dict[str, object] | None = None,
    session_id: str | None = None,
) -> Request:
    """Settle a message whose link is gone, or which was deferred."""
    body: dict[str, object] = {
        "disposition-status": status,
        "lock-tokens": Array([token], UUID),
    }
    if reason is not None:
        body["deadletter-reason"] = reason
    if description is not None:
        body["deadletter-description"] = description
    if properties:
        body["properties-to-modify"] = properties
    return Request("update-disposition", _with_session(body, session_id))


# Sessions ---------------------------------------------------------------------------------------


def renew_session_lock(session_id: str) -> Request:
    """Lock a session for another while."""
    return Request("renew-session-lock", {"session-id": session_id})


def session_renewed(response: Response) -> datetime | None:
    """Until when the session is locked now."""
    return to_time(_body(check(response)).get("expiration"))


def set_session_state(session_id: str, state: bytes | None) -> Request:
    """Keep state with a session; None clears it."""
    return Request("set-session-state", {"session-id": session_id, "session-state": state})


def get_session_state(session_id: str) -> Request:
    """What was kept with a session."""
    return Request("get-session-state", {"session-id": session_id})


def session_state(response: Response) -> bytes | None:
    """The state; None where none was set."""
    state = _body(check(response)).get("session-state")
    return state if isinstance(state, bytes) else None


def list_sessions(skip: int) -> Request:
    """A page of the sessions that have messages or state."""
    body: dict[str, object] = {
        "last-updated-time": Timestamp(_ALL_SESSIONS_MS),
        "skip": Int(skip),
        "top": Int(SESSIONS_PAGE),
    }
    return Request("get-message-sessions", body)


def listed_sessions(response: Response) -> list[str]:
    """The ids of the sessions; none where there are no more."""
    if response.status == _NO_CONTENT:
        return []
    # The spelling is the protocol's.
    return _items(check(response), "sessions-ids", str)


# Reading ----------------------------------------------------------------------------------------

T = TypeVar("T")


def _body(response: Response) -> dict[object, object]:
    if not isinstance(response.body, dict):
        raise MalformedMessage("the body of a response is no map")
    return response.body


def _items(response: Response, name: str, kind: type[T]) -> list[T]:
    items = _body(response).get(name)
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise MalformedMessage(f"a response without {name}")
    return items
