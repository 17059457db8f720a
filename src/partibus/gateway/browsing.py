"""`$management` operations on messages by sequence number, and on messages to come (SPEC 4.2).

Peek, receive by number, schedule, cancel, delete in batches. Requests become questions to the
node, answers become maps in the spelling of the protocol. No rule is decided here but what a
request may hold.
"""

from __future__ import annotations

from uuid import UUID

from partibus.broker.errors import (
    EntityDisabled,
    InvalidArgument,
    InvalidOperation,
    NotImplementedHere,
    Refusal,
)
from partibus.broker.message import Incoming, read_message
from partibus.broker.records import SubQueue
from partibus.gateway.calls import Call
from partibus.gateway.session_requests import session_holder
from partibus.runtime import numbered
from partibus.runtime.requests import Delivered
from partibus.wire.values import Array, Int, Long

PEEK_MESSAGES_MAX = 250
SCHEDULE_MESSAGES_MAX = 5_000
# receiver-settle-mode of a receiver that does not settle.
_SETTLED_FIRST = 0


def peek_message(call: Call) -> None:
    """Show messages from a sequence number on; nothing happens to them."""
    view = numbered.View(
        sequence=max(call.whole("from-sequence-number"), 0),
        count=min(call.whole("message-count", least=1), PEEK_MESSAGES_MAX),
        session=call.text("session-id"),
        omit_body=call.body.get("omit-message-body") is True,
    )

    def done(messages: list[Delivered], refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
        elif messages:
            call.answer({"messages": [{"message": each.payload} for each in messages]})
        else:
            call.answer({}, 204, "There are no more messages.")

    numbered.peek(call.carrier.node, call.entity, call.subqueue, view, done)


def receive_by_sequence_number(call: Call) -> None:
    """Hand out deferred messages, under lock or deleted."""
    sequences = call.sequences()
    mode = call.whole("receiver-settle-mode", least=0)
    entity = call.carrier.node.entity_now(call.entity)
    if not entity.description.allows_receive:
        raise EntityDisabled(f"The messaging entity '{entity.name}' is disabled for receiving.")

    holder = session_holder(call) if call.has_sessions else None

    def done(messages: list[Delivered], refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
        else:
            call.answer({"messages": [_received(each) for each in messages]})

    numbered.receive_deferred(
        call.carrier.node,
        entity,
        call.subqueue,
        sequences,
        done,
        delete=mode == _SETTLED_FIRST,
        holder=holder,
    )


def _received(message: Delivered) -> dict[str, object]:
    # Some clients read a lock token in any case; one that locks nothing is all zeros.
    token = UUID(bytes_le=message.token) if message.token else UUID(int=0)
    return {"lock-token": token, "message": message.payload}


def schedule_message(call: Call) -> None:
    """Take messages in that become active later; all in one fragment, all or none.

    In a transaction they come with its discharge, and only their numbers are known before.
    """
    if call.subqueue is not SubQueue.ACTIVE:
        raise InvalidOperation("Messages cannot be scheduled into a sub-queue.")
    messages = _read_messages(call)
    numbers: list[int] = []

    def placed(found: list[int], refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
            return
        call.answer({"sequence-numbers": Array([Long(number) for number in found], Long)})

    txn_id = call.request.txn_id
    if txn_id is not None:
        entity = call.carrier.node.entity_now(call.entity)
        call.carrier.transactions.schedule(txn_id, entity, messages, placed)
        return

    def sent(_: list[int], refusal: Refusal | None) -> None:
        placed(numbers, refusal)

    call.carrier.node.sender(call.entity).place(messages, numbers.extend, sent)


def _read_messages(call: Call) -> list[Incoming]:
    named = call.body.get("messages")
    if not isinstance(named, list) or not 0 < len(named) <= SCHEDULE_MESSAGES_MAX:
        raise InvalidArgument(f"messages is not a list of 1 to {SCHEDULE_MESSAGES_MAX} messages.")
    node = call.carrier.node
    description = node.entity_now(call.entity).description
    messages = []
    for each in named:
        payload = each.get("message") if isinstance(each, dict) else None
        if not isinstance(payload, bytes):
            raise InvalidArgument("messages holds something without a message in binary.")
        message = read_message(payload, description.max_message_bytes, node.entropy.message_id)
        if description.requires_session and message.session is None:
            raise InvalidOperation("A message to an entity with sessions needs a SessionId.")
        messages.append(message)
    return messages


def cancel_scheduled_message(call: Call) -> None:
    """Remove scheduled messages before their time."""
    if call.subqueue is not SubQueue.ACTIVE:
        raise InvalidOperation("A sub-queue has no scheduled messages.")

    def done(refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
        else:
            call.answer({})

    numbered.cancel_scheduled(call.carrier.node, call.entity, call.sequences(), done)


def batch_delete_messages(call: Call) -> None:
    """Remove messages that nobody holds and that are not newer than a time."""
    if call.has_sessions:
        raise NotImplementedHere("Messages of sessions cannot be deleted in batches.")
    # Who asks for more gets as many, and asks again: that is how an entity is emptied.
    most = call.carrier.node.snapshot.settings.profile.delete_messages_max
    count = min(call.whole("message-count", least=1), most)
    until_ms = call.whole("enqueued-time-utc")

    def done(deleted: int, refusal: Refusal | None) -> None:
        if refusal is not None:
            call.refuse(refusal)
        elif deleted:
            call.answer({"message-count": Int(deleted)})
        else:
            call.answer({"message-count": Int(0)}, 204, "There was no message to delete.")

    numbered.delete_messages(call.carrier.node, call.entity, call.subqueue, count, until_ms, done)
