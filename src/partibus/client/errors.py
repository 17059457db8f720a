"""What can go wrong for who sends and receives: one exception for each thing one can do about it.

Every error tells the AMQP condition and the text of the service, and whether trying again may
help. Where the connection itself fails, or the time runs out, the condition is the one the service
would have used. Errors of the caller's own making (a naive datetime) are ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from partibus.wire.performatives import Error


class MessagingError(Exception):
    """Anything the service, or the way to it, did not do."""

    conditions: ClassVar[tuple[str, ...]] = ("amqp:internal-error",)
    # Whether the same operation may succeed when it is tried again.
    is_retryable: ClassVar[bool] = False

    def __init__(self, text: str, condition: str | None = None) -> None:
        super().__init__(text)
        self.condition = condition or self.conditions[0]
        self.text = text
        # The messages of a failed send that were not accepted.
        self.unsent: Sequence[object] = ()

    def __str__(self) -> str:
        return f"{self.condition}: {self.text}"


class InvalidOperation(MessagingError):
    """The operation is not allowed here: a key missing in a transaction, two keys that differ."""

    conditions = ("amqp:not-allowed",)


class EntityNotFound(MessagingError):
    """There is no such queue, topic or subscription."""

    conditions = ("amqp:not-found",)


class EntityDisabled(MessagingError):
    """The entity's status forbids this."""

    conditions = ("com.microsoft:entity-disabled",)


class EntityAlreadyExists(MessagingError):
    """An entity or rule with this name exists."""

    conditions = ("com.microsoft:entity-already-exists",)


class Unauthorized(MessagingError):
    """The key or token does not give this right."""

    conditions = (
        "amqp:unauthorized-access",
        "com.microsoft:auth-failed",
        "com.microsoft:publisher-revoked",
    )


class NotSupported(MessagingError):
    """The service does not have this operation."""

    conditions = ("amqp:not-implemented",)


class InvalidArgument(MessagingError):
    """A value is not one the service takes."""

    conditions = (
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "com.microsoft:precondition-failed",
        "amqp:invalid-field",
    )


class MalformedMessage(MessagingError):
    """What was sent, or came, is not an AMQP message."""

    conditions = ("amqp:decode-error",)


class QuotaExceeded(MessagingError):
    """The entity or its fragment is full, or a limit of the connection is reached."""

    conditions = ("amqp:resource-limit-exceeded",)


class MessageSizeExceeded(MessagingError):
    """The message or batch is larger than the link takes."""

    conditions = ("amqp:link:message-size-exceeded",)


class MessageLockLost(MessagingError):
    """The lock of the message has expired, or it was settled before."""

    conditions = ("com.microsoft:message-lock-lost",)


class MessageNotFound(MessagingError):
    """No message with this sequence number can be had."""

    conditions = ("com.microsoft:message-not-found",)


class SessionLockLost(MessagingError):
    """The session is not ours any more: its lock expired, or the connection was lost."""

    conditions = ("com.microsoft:session-lock-lost",)


class SessionCannotBeLocked(MessagingError):
    """Somebody else has the session."""

    conditions = ("com.microsoft:session-cannot-be-locked",)


class SessionNotFound(MessagingError):
    """There is no such session."""

    conditions = ("com.microsoft:session-not-found",)


class TransactionUnknown(MessagingError):
    """The transaction was not declared, or it has ended already."""

    conditions = ("amqp:transaction:unknown-id",)


class TransactionRolledBack(MessagingError):
    """Nothing of the transaction happened."""

    conditions = ("amqp:transaction:rollback", "amqp:transaction:timeout")


class TransactionInDoubt(MessagingError):
    """The connection was lost while committing: all of the transaction happened, or nothing."""

    conditions = ("amqp:transaction:in-doubt",)


class ServiceFailed(MessagingError):
    """Something unexpected happened in the service."""

    is_retryable = True


class ServerBusy(MessagingError):
    """The service is throttled, or the fragment of a key is unavailable."""

    conditions = ("com.microsoft:server-busy",)
    is_retryable = True


class ServiceTimeout(MessagingError):
    """The service had nothing in time: no session was free, or it gave an operation up."""

    conditions = ("com.microsoft:timeout",)
    is_retryable = True


class LinkLost(MessagingError):
    """The service ended the link: idle, taken over, or its entity moved."""

    conditions = (
        "amqp:link:detach-forced",
        "amqp:link:stolen",
        "amqp:link:transfer-limit-exceeded",
        "amqp:link:redirect",
    )
    is_retryable = True


class ConnectionLost(MessagingError):
    """The service cannot be reached, or the connection broke."""

    conditions = (
        "amqp:connection:forced",
        "amqp:connection:framing-error",
        "amqp:connection:redirect",
        "com.microsoft:container-close",
    )
    is_retryable = True


class OperationTimeout(MessagingError):
    """No answer came within the operation time-out."""

    conditions = ("com.microsoft:operation-cancelled",)


_KINDS: tuple[type[MessagingError], ...] = (
    InvalidOperation, EntityNotFound, EntityDisabled, EntityAlreadyExists, Unauthorized,
    NotSupported, InvalidArgument, MalformedMessage, QuotaExceeded, MessageSizeExceeded,
    MessageLockLost, MessageNotFound, SessionLockLost, SessionCannotBeLocked, SessionNotFound,
    TransactionUnknown, TransactionRolledBack, ServiceFailed, ServerBusy, ServiceTimeout,
    LinkLost, ConnectionLost,
)  # fmt: skip
_BY_CONDITION = {condition: kind for kind in _KINDS for condition in kind.conditions}
# Where a response has a status and no condition (SPEC 4.5, and 3.6 for tokens).
_BY_STATUS: dict[int, type[MessagingError]] = {
    400: InvalidArgument,
    401: Unauthorized,
    403: QuotaExceeded,
    404: EntityNotFound,
    408: ServiceTimeout,
    409: EntityAlreadyExists,
    410: MessageLockLost,
    500: ServiceFailed,
    501: NotSupported,
    503: ServerBusy,
}


def error_of(error: Error | None, otherwise: type[MessagingError]) -> MessagingError:
    """The exception for an AMQP error; of the kind given where the peer told none."""
    if error is None:
        return otherwise("the service gave no reason")
    kind = _BY_CONDITION.get(error.condition, MessagingError)
    return kind(error.description or "the service gave no text", error.condition)


def error_of_status(status: int, condition: str | None, text: str) -> MessagingError:
    """The exception for the status of a response, or for its condition where it has one."""
    if condition is not None:
        return error_of(Error(condition, text), MessagingError)
    return _BY_STATUS.get(status, MessagingError)(text)


def gravest(errors: Sequence[MessagingError]) -> MessagingError:
    """Of several errors the first that cannot be helped by trying again, else the first."""
    return min(errors, key=lambda error: error.is_retryable)
