"""The `$management` operations on sessions (SPEC 4.2): lock, state and lists.

Lock and state are the business of who holds the session: a link of the same connection. Lists
can be had by everyone who may receive.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import (
    ArgumentOutOfRange,
    InvalidArgument,
    InvalidOperation,
    MessageTooLarge,
    Refusal,
    SessionLockLost,
    SessionNotFound,
)
from partibus.gateway.calls import Call
from partibus.gateway.outcomes import as_optional_text
from partibus.gateway.session_consumer import SessionConsumer
from partibus.runtime.requests import Reply
from partibus.runtime.session_receiving import SessionReceiver
from partibus.wire.values import Array, Int, Timestamp

# A page of sessions has at most this many.
PAGE_MAX = 1000
# The time that stands for "all sessions": the end of the year 9999, as .NET says it.
ALL_SESSIONS_MS = 253_402_300_799_000


def session_holder(call: Call) -> SessionReceiver:
    """Who holds the session that the request names, on this connection."""
    session = as_optional_text(call.body.get("session-id"))
    if session is None:
        raise InvalidArgument("session-id is missing.")
    if not call.has_sessions:
        raise InvalidOperation(f"'{call.entity.name}' does not require sessions.")
    for binding in call.carrier.bindings_of(None):
        if (
            isinstance(binding, SessionConsumer)
            and binding.session_id == session
            and binding.receiver.entity.id == call.entity.id
        ):
            return binding.receiver
    raise SessionLockLost(f"The lock on the session '{session}' is not held by this client.")


def _answer(call: Call, answer: Callable[[Reply], None]) -> Callable[[Reply], None]:
    def replied(reply: Reply) -> None:
        refusal = reply.refusal
        if refusal is not None:
            call.refuse(refusal)
        else:
            answer(reply)

    return replied


def _renew_session_lock(call: Call) -> None:
    session_holder(call).renew(
        _answer(call, lambda reply: call.answer({"expiration": Timestamp(reply.number)}))
    )


def _get_session_state(call: Call) -> None:
    session_holder(call).get_state(
        _answer(call, lambda reply: call.answer({"session-state": reply.content}))
    )


def _set_session_state(call: Call) -> None:
    state = call.body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise InvalidArgument("session-state is neither binary nor null.")
    size_max = call.entity.description.max_message_bytes
    if state is not None and len(state) > size_max:
        raise MessageTooLarge(
            f"The session state of {len(state)} bytes is larger than the {size_max} allowed."
        )
    plain = bytes(state) if state is not None else None
    session_holder(call).set_state(plain, _answer(call, lambda _: call.answer({})))


def _get_message_sessions(call: Call) -> None:
    if not call.has_sessions:
        raise InvalidOperation(f"'{call.entity.name}' does not require sessions.")
    body = call.body
    since_ms = _whole(body.get("last-updated-time", ALL_SESSIONS_MS), "last-updated-time")
    skip = _whole(body.get("skip", 0), "skip")
    top = _whole(body.get("top", 100), "top")
    if skip < 0 or top <= 0:
        raise ArgumentOutOfRange("skip must not be negative, and top must be at least 1.")
    # The oldest times that clients know lie before 1970.
    since_ms = -1 if since_ms >= ALL_SESSIONS_MS else max(since_ms, 0)

    def done(names: list[str], refusal: Refusal | None) -> None:
        if refusal is None and not names:
            refusal = SessionNotFound(f"'{call.entity.name}' has no more such sessions.")
        if refusal is not None:
            call.refuse(refusal)
            return
        found = Array(list(names), str)
        call.answer({"skip": Int(skip + len(names)), "sessions-ids": found})

    lists = call.carrier.node.session_lists
    lists.page(call.entity, since_ms, skip, min(top, PAGE_MAX), done)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} is not a whole number.")
    return int(value)


SESSION_OPERATIONS: dict[str, Callable[[Call], None]] = {
    "com.microsoft:renew-session-lock": _renew_session_lock,
    "com.microsoft:get-session-state": _get_session_state,
    "com.microsoft:set-session-state": _set_session_state,
    "com.microsoft:get-message-sessions": _get_message_sessions,
}
