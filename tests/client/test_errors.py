from __future__ import annotations

import re
from pathlib import Path

import pytest

import partibus.broker.errors as refusals
import partibus.client as client
from partibus.client.errors import MessagingError, error_of, error_of_status, gravest
from partibus.wire.performatives import Error

# SPEC 8: condition, and whether a client tries again.
CATALOGUE = {
    "amqp:not-found": (client.EntityNotFound, False),
    "amqp:not-allowed": (client.InvalidOperation, False),
    "amqp:unauthorized-access": (client.Unauthorized, False),
    "com.microsoft:auth-failed": (client.Unauthorized, False),
    "amqp:not-implemented": (client.NotSupported, False),
    "amqp:decode-error": (client.MalformedMessage, False),
    "amqp:invalid-field": (client.InvalidArgument, False),
    "amqp:internal-error": (client.ServiceFailed, True),
    "amqp:resource-limit-exceeded": (client.QuotaExceeded, False),
    "amqp:link:message-size-exceeded": (client.MessageSizeExceeded, False),
    "amqp:link:detach-forced": (client.LinkLost, True),
    "amqp:link:stolen": (client.LinkLost, True),
    "amqp:link:transfer-limit-exceeded": (client.LinkLost, True),
    "amqp:connection:forced": (client.ConnectionLost, True),
    "com.microsoft:timeout": (client.ServiceTimeout, True),
    "com.microsoft:server-busy": (client.ServerBusy, True),
    "com.microsoft:message-lock-lost": (client.MessageLockLost, False),
    "com.microsoft:session-lock-lost": (client.SessionLockLost, False),
    "com.microsoft:session-cannot-be-locked": (client.SessionCannotBeLocked, False),
    "com.microsoft:message-not-found": (client.MessageNotFound, False),
    "com.microsoft:session-not-found": (client.SessionNotFound, False),
    "com.microsoft:entity-disabled": (client.EntityDisabled, False),
    "com.microsoft:entity-already-exists": (client.EntityAlreadyExists, False),
    "com.microsoft:argument-error": (client.InvalidArgument, False),
    "com.microsoft:argument-out-of-range": (client.InvalidArgument, False),
    "amqp:transaction:unknown-id": (client.TransactionUnknown, False),
    "amqp:transaction:rollback": (client.TransactionRolledBack, False),
    "amqp:transaction:timeout": (client.TransactionRolledBack, False),
}


@pytest.mark.parametrize("condition", CATALOGUE)
def test_every_condition_has_its_exception(condition: str) -> None:
    kind, is_retryable = CATALOGUE[condition]
    error = error_of(Error(condition, "what the service says"), MessagingError)
    assert type(error) is kind
    assert error.is_retryable is is_retryable
    assert error.condition == condition
    assert str(error) == f"{condition}: what the service says"


def test_every_refusal_of_our_broker_has_a_named_exception() -> None:
    kinds = [each for each in vars(refusals).values() if isinstance(each, type)]
    for kind in kinds:
        if issubclass(kind, refusals.Refusal):
            error = error_of(Error(kind.condition, ""), MessagingError)
            assert type(error) is not MessagingError, kind


def test_an_unknown_condition_is_told_all_the_same() -> None:
    error = error_of(Error("com.example:new", "text"), MessagingError)
    assert (type(error), error.condition, error.text) == (MessagingError, "com.example:new", "text")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, client.Unauthorized), (404, client.EntityNotFound), (503, client.ServerBusy)],
)
def test_a_status_alone_tells_what_is_wrong(status: int, kind: type[MessagingError]) -> None:
    assert type(error_of_status(status, None, "")) is kind
    by_condition = error_of_status(status, "com.microsoft:session-lock-lost", "")
    assert type(by_condition) is client.SessionLockLost


def test_of_several_errors_the_one_that_cannot_be_helped_is_told() -> None:
    busy, lost = client.ServerBusy("busy"), client.MessageLockLost("lost")
    assert gravest([busy, lost]) is lost
    assert gravest([busy, client.ServerBusy("too")]) is busy


def test_the_client_knows_nothing_of_the_broker() -> None:
    room = Path(client.__file__).parent
    for module in room.glob("*.py"):
        imported = re.findall(r"partibus\.(\w+)", module.read_text())
        assert set(imported) <= {"client", "engine", "wire"}, module.name
