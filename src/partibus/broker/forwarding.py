"""The rules of forwarding: what leaves a queue, what cannot, and why (SPEC 6.11, 5.3).

Messages of a queue with ForwardTo, dead letters where ForwardDeadLetteredMessagesTo is set, and
messages that are sent via an entity go to another entity, at most four times. What cannot is set
aside in the transfer dead-letter queue, with the reason. Which fragment they go to, and how they
get there, is not known here.
"""

from __future__ import annotations

from partibus.broker.descriptions import Description, Entity
from partibus.broker.errors import (
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    OperationTimedOut,
    QuotaExceeded,
    Refusal,
)
from partibus.broker.message import HEADERS_BYTES_MAX, Incoming
from partibus.broker.records import SubQueue

# How often a message may be forwarded.
HOPS_MAX = 4

# Why it was set aside: the reason that programs read, and a text for people.
Reason = tuple[str, str]

_HOPS = (
    "MaxTransferHopCountExceeded",
    f"The message was forwarded {HOPS_MAX} times, which is the maximum of allowed hops.",
)
_NO_SESSION = (
    "Session id is null.",
    "The destination requires sessions: it takes no message without a session identifier.",
)
_REASONS: dict[type[Refusal], str] = {
    EntityNotFound: "MessagingEntityNotFound",
    EntityDisabled: "MessagingEntityDisabled",
    QuotaExceeded: "QuotaExceeded",
    MessageTooLarge: "MessageSizeExceeded",
}


def target_of(description: Description, subqueue: int) -> str:
    """The entity that messages of a sub-queue are forwarded to; empty: none."""
    if subqueue == SubQueue.ACTIVE:
        return description.forward_to
    return description.forward_dead_letters_to if subqueue == SubQueue.DEAD_LETTER else ""


def check_receivable(entity: Entity, subqueue: int) -> None:
    """Refuse to receive what is forwarded."""
    target = target_of(entity.description, subqueue)
    if target:
        raise InvalidOperation(
            f"Messages cannot be received from '{entity.name}': auto-forwarding is enabled for it. "
            f"Receive from '{target}', or disable the forwarding."
        )


def obstacle(message: Incoming, destination: Entity | None, name: str) -> Reason | None:
    """Why a message cannot be forwarded to the entity of this name; None where it can."""
    assert message.passage is not None
    if message.passage.hops > HOPS_MAX:
        return _HOPS
    if destination is None or destination.topic:
        return _REASONS[EntityNotFound], f"The messaging entity '{name}' could not be found."
    if destination.description.requires_session and message.session is None:
        return _NO_SESSION
    size = len(message.bare) + len(message.kept)
    # What was written into its properties on the way does not count.
    if size > destination.description.max_message_bytes + HEADERS_BYTES_MAX:
        return (
            _REASONS[MessageTooLarge],
            f"The message of {size} bytes is larger than '{name}' takes: "
            f"{destination.description.max_message_bytes}.",
        )
    return None


def is_final(refusal: Refusal) -> bool:
    """Whether the destination has said no for certain; else it may help to try again."""
    return 400 <= refusal.status < 500 and not isinstance(refusal, OperationTimedOut)


def reason_of(refusal: Refusal) -> Reason:
    """What is said of a message that its destination has refused."""
    return _REASONS.get(type(refusal), refusal.condition), str(refusal)
