"""Refusals: what the rules say no to, each with its AMQP condition and status code.

A refusal is the client's business: it is answered on the link, session or request it belongs
to, and nothing of the refused operation happened. Failures of the world (a disk, a process) are
StoreError or FragmentUnavailable; broken AMQP is the engine's ProtocolError.
"""

from __future__ import annotations


class Refusal(Exception):
    """An operation the rules do not allow; the text tells what was wrong and what is allowed."""

    condition = "amqp:internal-error"
    status = 500


class InvalidOperation(Refusal):
    """The operation is not allowed here (the SDKs' InvalidOperationException)."""

    condition = "amqp:not-allowed"
    status = 400


class InvalidArgument(Refusal):
    """A value in the message or request is not one we take."""

    condition = "com.microsoft:argument-error"
    status = 400


class ArgumentOutOfRange(Refusal):
    """A value is longer, larger or smaller than allowed."""

    condition = "com.microsoft:argument-out-of-range"
    status = 400


class MessageUndecodable(Refusal):
    """The bytes of the message are not an AMQP message."""

    condition = "amqp:decode-error"
    status = 400


class MessageTooLarge(Refusal):
    """The message or batch is over the entity's limit."""

    condition = "amqp:link:message-size-exceeded"
    status = 403


class QuotaExceeded(Refusal):
    """The fragment or entity is full."""

    condition = "amqp:resource-limit-exceeded"
    status = 403


class Unauthorized(Refusal):
    """The token or key does not give this right."""

    condition = "amqp:unauthorized-access"
    status = 401


class EntityNotFound(Refusal):
    """There is no such queue, topic or subscription."""

    condition = "amqp:not-found"
    status = 404


class EntityDisabled(Refusal):
    """The entity's status forbids this operation."""

    condition = "com.microsoft:entity-disabled"
    status = 400


class EntityAlreadyExists(Refusal):
    """An entity or rule with this name exists."""

    condition = "com.microsoft:entity-already-exists"
    status = 409


class MessageLockLost(Refusal):
    """The lock has expired, was settled, or never was ours."""

    condition = "com.microsoft:message-lock-lost"
    status = 410


class MessageNotFound(Refusal):
    """No message with this sequence number can be had."""

    condition = "com.microsoft:message-not-found"
    status = 404


class TransactionUnknown(Refusal):
    """No open transaction has this id."""

    condition = "amqp:transaction:unknown-id"
    status = 400


class TransactionRolledBack(Refusal):
    """Part of the transaction was refused, so nothing of it happened."""

    condition = "amqp:transaction:rollback"
    status = 400


class TransactionInDoubt(Refusal):
    """The answer to a commit was lost: all of it happened, or nothing."""

    # No outcome says this: a rejected discharge would mean that nothing did. So its link ends, as
    # if the answer had been lost on the way to the client.
    condition = "amqp:link:detach-forced"
    status = 500


class SessionLockLost(Refusal):
    """The session's lock has expired, or is another's."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(Refusal):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 410


class SessionNotFound(Refusal):
    """There is no such session, or none at all; the status says "nothing", not "failed"."""

    condition = "com.microsoft:session-not-found"
    status = 204


class OperationTimedOut(Refusal):
    """What was waited for did not come in time."""

    condition = "com.microsoft:timeout"
    status = 408


class NotImplementedHere(Refusal):
    """An operation that exists elsewhere, but not here."""

    condition = "amqp:not-implemented"
    status = 501


class FragmentUnavailable(Refusal):
    """The fragment's store or broker does not answer; trying again later may help."""

    condition = "com.microsoft:server-busy"
    status = 503


_BY_CONDITION = {
    kind.condition: kind
    for kind in (
        InvalidOperation,
        InvalidArgument,
        ArgumentOutOfRange,
        MessageUndecodable,
        MessageTooLarge,
        QuotaExceeded,
        Unauthorized,
        EntityNotFound,
        EntityDisabled,
        EntityAlreadyExists,
        MessageLockLost,
        MessageNotFound,
        SessionLockLost,
        SessionCannotBeLocked,
        SessionNotFound,
        OperationTimedOut,
        TransactionUnknown,
        TransactionRolledBack,
        TransactionInDoubt,
        NotImplementedHere,
        FragmentUnavailable,
    )
}


def refusal(condition: str, text: str) -> Refusal:
    """The refusal that another node sent as condition and text."""
    return _BY_CONDITION.get(condition, Refusal)(text)
