"""A small client for Azure Service Bus and partibus: sync, async, with transactions.

On our own engine in client role; a client of the service like any other, so it knows nothing of
the broker behind it. See docs/CLIENT.md.
"""

from partibus.client.async_client import AsyncClient
from partibus.client.async_receiver import AsyncReceiver
from partibus.client.async_rules import AsyncRules
from partibus.client.async_sender import AsyncSender
from partibus.client.async_session import AsyncSession
from partibus.client.async_transaction import AsyncTransaction
from partibus.client.errors import (
    ConnectionLost,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    LinkLost,
    MalformedMessage,
    MessageLockLost,
    MessageNotFound,
    MessageSizeExceeded,
    MessagingError,
    NotSupported,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    ServiceFailed,
    ServiceTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
    SessionNotFound,
    TransactionInDoubt,
    TransactionRolledBack,
    TransactionUnknown,
    Unauthorized,
)
from partibus.client.message import Message, MessageState, ReceivedMessage
from partibus.client.retrying import RetryPolicy
from partibus.client.rules import CorrelationFilter, Rule
from partibus.client.sync_client import Client, Receiver, Rules, Sender, Session, Transaction

__all__ = [
    "AsyncClient",
    "AsyncReceiver",
    "AsyncRules",
    "AsyncSender",
    "AsyncSession",
    "AsyncTransaction",
    "Client",
    "ConnectionLost",
    "CorrelationFilter",
    "EntityAlreadyExists",
    "EntityDisabled",
    "EntityNotFound",
    "InvalidArgument",
    "InvalidOperation",
    "LinkLost",
    "MalformedMessage",
    "Message",
    "MessageLockLost",
    "MessageNotFound",
    "MessageSizeExceeded",
    "MessageState",
    "MessagingError",
    "NotSupported",
    "OperationTimeout",
    "QuotaExceeded",
    "ReceivedMessage",
    "Receiver",
    "RetryPolicy",
    "Rule",
    "Rules",
    "Sender",
    "ServerBusy",
    "ServiceFailed",
    "ServiceTimeout",
    "Session",
    "SessionCannotBeLocked",
    "SessionLockLost",
    "SessionNotFound",
    "Transaction",
    "TransactionInDoubt",
    "TransactionRolledBack",
    "TransactionUnknown",
    "Unauthorized",
]
