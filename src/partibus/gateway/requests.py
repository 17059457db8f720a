"""`$management`: operations on an entity by request and response (SPEC 4).

A table says which operation needs which right and who carries it out; what is not in it is
answered as not implemented. An operation answers when it is done, which may be later. Attributes
are spelled as clients expect them here: statusCode, statusDescription, errorCondition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

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
from partibus.gateway.bindings import Carrier
from partibus.gateway.dialogue import Request, RequestLink
from partibus.gateway.outcomes import as_optional_text, encode_changes
from partibus.wire.values import Array, Int, Symbol, Timestamp

TRACKING_ID = "com.microsoft:tracking-id"
# One request cannot name more messages than this.
TOKENS_MAX = 5_000
# The spelling is the protocol's.
_DISPOSITIONS = {
    "completed": Outcome.COMPLETE,
    "abandoned": Outcome.ABANDON,
    "defered": Outcome.DEFER,
    "suspended": Outcome.DEAD_LETTER,
}


@dataclass(slots=True)
class Call:
    """One request being carried out, and the way to answer it."""

    carrier: Carrier
    entity: Entity
    subqueue: SubQueue
    request: Request
    origin: RequestLink

    def answer(self, body: dict[str, object], status: int = 200, text: str = "OK") -> None:
        """Answer that it was done."""
        self._respond({"statusCode": Int(status), "statusDescription": text}, body)

    def refuse(self, refusal: Refusal) -> None:
        """Answer that it was not done, and why."""
        properties: dict[str, object] = {
            "statusCode": Int(refusal.status),
            "statusDescription": self.carrier.tracking.text(str(refusal), self.entity.name),
            "errorCondition": Symbol(refusal.condition),
        }
        self._respond(properties, {})

    def _respond(self, properties: dict[str, object], body: dict[str, object]) -> None:
        tracking = self.request.text(TRACKING_ID)
        if tracking is not None:
            properties[TRACKING_ID] = tracking
        self.origin.respond(self.request, properties, body)

    @property
    def body(self) -> dict[object, object]:
        """The map that the request carries."""
        if not isinstance(self.request.body, dict):
            raise InvalidArgument("The body of the request is not a map.")
        return self.request.body

    def tokens(self) -> list[bytes]:
        """The lock tokens named, as delivery tags are spelled."""
        named = self.body.get("lock-tokens")
        if not isinstance(named, list) or not 0 < len(named) <= TOKENS_MAX:
            raise InvalidArgument(f"lock-tokens is not a list of 1 to {TOKENS_MAX} lock tokens.")
        if not all(isinstance(token, UUID) for token in named):
            raise InvalidArgument("lock-tokens holds something that is not a uuid.")
        return [token.bytes_le for token in named]


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
    try:
        if operation is None:
            raise NotImplementedHere(f"The operation '{name}' is not available here.")
        if not carrier.claims.allows(origin.path, operation.right, carrier.now_ms()):
            raise Unauthorized(f"The operation '{name}' needs a right that was not granted.")
        if request.txn_id is not None and not operation.in_transaction:
            raise InvalidOperation(f"The operation '{name}' cannot be part of a transaction.")
        operation.carry_out(call)
    except Refusal as refusal:
        call.refuse(refusal)


def _renew_lock(call: Call) -> None:
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

    call.carrier.node.settle(call.entity, tokens, settlement, done)


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
}
