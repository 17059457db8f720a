"""`$management`: operations on an entity by request and response (SPEC 4).

A table says which operation needs which right and who carries it out; what is not in it is
answered as not implemented. An operation answers when it is done, which may be later. Attributes
are spelled as clients expect them here: statusCode, statusDescription, errorCondition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    InvalidArgument,
    InvalidOperation,
    NotImplementedHere,
    Refusal,
    Unauthorized,
)
from partibus.broker.records import SubQueue
from partibus.broker.settlement import COMPLETE, Outcome, Settlement
from partibus.gateway import browsing
from partibus.gateway.bindings import Carrier
from partibus.gateway.calls import Call
from partibus.gateway.dialogue import Request, RequestLink
from partibus.gateway.outcomes import as_optional_text, encode_changes
from partibus.gateway.rule_requests import ENUMERATE_RULES, RULE_OPERATIONS
from partibus.gateway.session_requests import SESSION_OPERATIONS
from partibus.runtime.settling import LOCK_LOST, SESSION_LOCK_LOST
from partibus.wire.values import Array, Timestamp

# The spelling is the protocol's.
_DISPOSITIONS = {
    "completed": Outcome.COMPLETE,
    "abandoned": Outcome.ABANDON,
    "defered": Outcome.DEFER,
    "suspended": Outcome.DEAD_LETTER,
}


def answer_management(
    carrier: Carrier, entity: Entity, subqueue: SubQueue, request: Request, origin: RequestLink
) -> None:
    """Answer one request on an entity's `$management`."""
    link_name = request.text("associated-link-name")
    if link_name is not None:
        carrier.refresh(link_name)
    call = Call(carrier, entity, subqueue, request, origin)
    name = request.text("operation")
    operation = OPERATIONS.get(name or "")
    spans = carrier.node.spans
    if spans is not None:
        # A name that is none of ours could be anything.
        known = "unknown" if operation is None or name is None else name
        call.span = spans.asked(known, entity.name, request.properties)
    try:
        if operation is None:
            raise NotImplementedHere(f"The operation '{name}' is not available here.")
        if not carrier.claims.allows(origin.path, operation.right, carrier.now_ms()):
            raise Unauthorized(f"The operation '{name}' needs a right that was not granted.")
        _check_kind(entity, name, operation.right)
        if request.txn_id is not None and not operation.in_transaction:
            raise InvalidOperation(f"The operation '{name}' cannot be part of a transaction.")
        operation.carry_out(call)
    except Refusal as refusal:
        call.refuse(refusal)


def _check_kind(entity: Entity, name: str | None, right: Right) -> None:
    """Messages are sent to topics and received from subscriptions; rules are subscriptions'."""
    if entity.kind == "topic" and right is not Right.SEND:
        raise InvalidOperation(f"The operation '{name}' is for subscriptions, not for a topic.")
    if entity.topic and right is Right.SEND:
        raise InvalidOperation(f"The operation '{name}' is for the topic, not for a subscription.")


def _renew_lock(call: Call) -> None:
    if call.has_sessions:
        raise InvalidOperation(
            f"Messages of '{call.entity.name}' have no locks of their own; renew the session's."
        )
    tokens = call.tokens()

    def done(refused: dict[bytes, Refusal], until_ms: int) -> None:
        if refused:
            call.refuse(next(iter(refused.values())))
            return
        ends: list[object] = [Timestamp(until_ms)] * len(tokens)
        call.answer({"expirations": Array(ends, Timestamp)})

    call.carrier.node.renew(call.entity, tokens, done)


def _update_disposition(call: Call) -> None:
    tokens = call.tokens()
    body = call.body
    outcome = _DISPOSITIONS.get(str(body.get("disposition-status")))
    if outcome is None:
        raise InvalidArgument(f"disposition-status is none of {', '.join(_DISPOSITIONS)}.")
    settlement = COMPLETE
    if outcome is not Outcome.COMPLETE:
        changes = body.get("properties-to-modify")
        settlement = Settlement(
            outcome,
            as_optional_text(body.get("deadletter-reason")),
            as_optional_text(body.get("deadletter-description")),
            encode_changes(changes) if isinstance(changes, dict) else b"",
        )

    if call.request.txn_id is not None:
        transactions = call.carrier.transactions
        transactions.settle(call.request.txn_id, call.entity, tokens, settlement)
        call.answer({})
        return

    def done(refused: dict[bytes, Refusal]) -> None:
        if refused:
            call.refuse(next(iter(refused.values())))
        else:
            call.answer({})

    lost = SESSION_LOCK_LOST if call.has_sessions else LOCK_LOST
    call.carrier.node.settle(call.entity, tokens, settlement, done, lost)


@dataclass(frozen=True, slots=True)
class Operation:
    """Who carries it out, and the right (one of them) that is needed."""

    right: Right
    carry_out: Callable[[Call], None]
    # Whether it may be part of a transaction; else it is refused there.
    in_transaction: bool = False


OPERATIONS = {
    "com.microsoft:renew-lock": Operation(Right.LISTEN, _renew_lock, in_transaction=True),
    "com.microsoft:update-disposition": Operation(
        Right.LISTEN, _update_disposition, in_transaction=True
    ),
    "com.microsoft:peek-message": Operation(Right.LISTEN, browsing.peek_message),
    "com.microsoft:receive-by-sequence-number": Operation(
        Right.LISTEN, browsing.receive_by_sequence_number
    ),
    "com.microsoft:schedule-message": Operation(
        Right.SEND, browsing.schedule_message, in_transaction=True
    ),
    "com.microsoft:cancel-scheduled-message": Operation(
        Right.SEND, browsing.cancel_scheduled_message
    ),
    "com.microsoft:batch-delete-messages": Operation(Right.LISTEN, browsing.batch_delete_messages),
    **{name: Operation(Right.LISTEN, each) for name, each in SESSION_OPERATIONS.items()},
    **{
        name: Operation(Right.MANAGE, each, in_transaction=name != ENUMERATE_RULES)
        for name, each in RULE_OPERATIONS.items()
    },
}
