"""The client, for programs that block. Everything it does is done by `async_client` on a thread.

Only the waiting is here: each method hands its work to the loop and waits for the result.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

from partibus.client.async_client import AsyncClient, Mode, SubQueue
from partibus.client.async_receiver import AsyncReceiver, Messages
from partibus.client.async_rules import AsyncRules
from partibus.client.async_sender import AsyncSender
from partibus.client.async_session import AsyncSession
from partibus.client.async_transaction import AsyncTransaction
from partibus.client.line import OPERATION_TIMEOUT_S
from partibus.client.loop_thread import LoopThread
from partibus.client.message import Message, ReceivedMessage
from partibus.client.retrying import RetryPolicy
from partibus.client.rules import CorrelationFilter, Rule


class Transaction:
    """A transaction: commits at the end of its with-block, rolls back on an exception."""

    def __init__(self, thread: LoopThread, inner: AsyncTransaction) -> None:
        self._thread = thread
        self.inner = inner

    def __enter__(self) -> Transaction:
        self.inner.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inner.leave()
        self._thread.wait(self.inner.end(failed=error is not None))

    def commit(self) -> None:
        """Make everything happen. Raises where nothing did, or where nobody knows."""
        self._thread.wait(self.inner.commit())

    def rollback(self) -> None:
        """Make nothing happen; messages that were settled stay locked."""
        self._thread.wait(self.inner.rollback())


class Sender:
    """Sends to one entity, directly or via another."""

    def __init__(self, thread: LoopThread, inner: AsyncSender) -> None:
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detach the link; sending again would attach another."""
        self._thread.wait(self._inner.close())

    def send(
        self, messages: Message | Sequence[Message], *, transaction: Transaction | None = None
    ) -> None:
        """Send messages, each by itself; returns when all are accepted, which means durable.

        Where some are not, the error tells which by `unsent`.
        """
        self._thread.wait(self._inner.send(messages, transaction=_inner(transaction)))

    def send_batch(
        self, messages: Sequence[Message], *, transaction: Transaction | None = None
    ) -> None:
        """Send messages as one: all are accepted or none, in one fragment and in this order."""
        self._thread.wait(self._inner.send_batch(messages, transaction=_inner(transaction)))

    def schedule(
        self, message: Message, at: datetime, *, transaction: Transaction | None = None
    ) -> int:
        """Have a message enqueued later; returns the number by which it can be cancelled."""
        return self._thread.wait(self._inner.schedule(message, at, transaction=_inner(transaction)))

    def cancel_scheduled(self, *sequence_numbers: int) -> None:
        """Take back messages that were scheduled."""
        self._thread.wait(self._inner.cancel_scheduled(*sequence_numbers))


class Receiver:
    """Receives from one entity or sub-queue.

    Iteration yields messages until none comes for `max_wait` seconds (None: for ever), taking up
    to `prefetch` of them at a time.
    """

    def __init__(self, thread: LoopThread, inner: AsyncReceiver) -> None:
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Receiver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what nobody has seen, and detach the link."""
        self._thread.wait(self._inner.close())

    def receive(self, max_messages: int = 1, timeout: float | None = None) -> list[ReceivedMessage]:
        """What is there, up to so many messages; waits for the first until the time is up.

        Without a time-out it waits as long as any operation does. Nothing came: an empty list.
        """
        return self._thread.wait(self._inner.receive(max_messages, timeout))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._thread.iterate(aiter(self._inner))

    def receive_deferred(self, sequence_numbers: Sequence[int]) -> list[ReceivedMessage]:
        """Receive messages that were deferred, by their numbers (of one fragment)."""
        return self._thread.wait(self._inner.receive_deferred(sequence_numbers))

    def peek(
        self, count: int = 1, from_sequence_number: int = 0, *, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Look at messages from this number on, without locking them.

        It may be fewer than asked, on a partitioned entity those of one fragment only; to see all,
        go on behind the last one's number until nothing comes, as `browse` does.
        """
        return self._thread.wait(
            self._inner.peek(count, from_sequence_number, session_id=session_id)
        )

    def browse(self, *, page: int = 100) -> Iterator[ReceivedMessage]:
        """Look at every message, fragment by fragment."""
        return self._thread.iterate(self._inner.browse(page=page))

    def complete(self, messages: Messages, *, transaction: Transaction | None = None) -> None:
        """The messages are done with: they are deleted."""
        self._thread.wait(self._inner.complete(messages, transaction=_inner(transaction)))

    def abandon(
        self,
        messages: Messages,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Give the messages back, to be received again."""
        self._thread.wait(
            self._inner.abandon(messages, properties, transaction=_inner(transaction))
        )

    def defer(
        self,
        messages: Messages,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Set messages aside; keep their sequence numbers, by which alone they can be received."""
        self._thread.wait(self._inner.defer(messages, properties, transaction=_inner(transaction)))

    def dead_letter(
        self,
        messages: Messages,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Move the messages to the dead-letter queue."""
        self._thread.wait(
            self._inner.dead_letter(
                messages, reason, description, properties, transaction=_inner(transaction)
            )
        )

    def renew_lock(self, message: ReceivedMessage) -> datetime | None:
        """Keep the message locked for another while; returns, and notes on it, until when."""
        return self._thread.wait(self._inner.renew_lock(message))


class Session(Receiver):
    """A session that is ours until it is closed, or its lock ends."""

    def __init__(self, thread: LoopThread, inner: AsyncSession) -> None:
        super().__init__(thread, inner)
        self._session = inner

    def __enter__(self) -> Session:
        return self

    @property
    def session_id(self) -> str:
        """The session that was accepted."""
        return self._session.session_id

    @property
    def locked_until(self) -> datetime | None:
        """When the lock ends unless it is renewed."""
        return self._session.locked_until

    def state(self) -> bytes | None:
        """What was kept with the session; None where nothing was."""
        return self._thread.wait(self._session.state())

    def set_state(self, state: bytes | str | None) -> None:
        """Keep this with the session, also when it is empty; None clears it."""
        self._thread.wait(self._session.set_state(state))

    def renew(self) -> datetime | None:
        """Keep the session locked for another while; returns, and notes, until when."""
        return self._thread.wait(self._session.renew())


class Rules:
    """Which messages a subscription takes, and what becomes of them. Needs the right Manage."""

    def __init__(self, thread: LoopThread, inner: AsyncRules) -> None:
        self._thread = thread
        self._inner = inner

    def add(
        self,
        name: str,
        filter: str | CorrelationFilter = "1=1",
        *,
        action: str | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Add a rule: SQL, or values that properties must have, and perhaps an SQL action."""
        inner = _inner(transaction)
        self._thread.wait(self._inner.add(name, filter, action=action, transaction=inner))

    def remove(self, name: str, *, transaction: Transaction | None = None) -> None:
        """Remove a rule; a new subscription has one, `$Default`, that takes every message."""
        self._thread.wait(self._inner.remove(name, transaction=_inner(transaction)))

    def list(self) -> list[Rule]:
        """All rules, the oldest first."""
        return self._thread.wait(self._inner.list())


class Client:
    """A connection to a namespace, with a thread that keeps it. Use it as a context manager."""

    def __init__(self, thread: LoopThread, inner: AsyncClient) -> None:
        self._thread = thread
        self._inner = inner

    @classmethod
    def from_connection_string(
        cls,
        connection_string: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = OPERATION_TIMEOUT_S,
    ) -> Client:
        """A client of the namespace that the connection string names.

        It connects by TLS and verifies the certificate, by `ssl_context` where one is given; with
        UseDevelopmentEmulator=true it connects by plain TCP. An operation takes `timeout` seconds
        at most; leave it above 15, for a keyless message to find a fragment that is available.
        """
        inner = AsyncClient.from_connection_string(
            connection_string, ssl_context=ssl_context, retry=retry, timeout=timeout
        )
        return cls(LoopThread(), inner)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the receivers, then the connection, and end the thread."""
        if not self._thread.is_stopped:
            try:
                self._thread.wait(self._inner.close())
            finally:
                self._thread.stop()

    def sender(self, entity: str | None = None, *, via: str | None = None) -> Sender:
        """Send to a queue or topic; `via` puts messages there first, to be moved on commit."""
        return Sender(self._thread, self._inner.sender(entity, via=via))

    def receiver(
        self,
        entity: str | None = None,
        *,
        mode: Mode = "peek-lock",
        sub_queue: SubQueue | None = None,
        max_wait: float | None = None,
        prefetch: int = 0,
    ) -> Receiver:
        """Receive from a queue, a subscription (`topic/Subscriptions/name`) or its sub-queue."""
        inner = self._inner.receiver(
            entity, mode=mode, sub_queue=sub_queue, max_wait=max_wait, prefetch=prefetch
        )
        return Receiver(self._thread, inner)

    def accept_session(
        self,
        entity: str | None = None,
        session_id: str | None = None,
        *,
        mode: Mode = "peek-lock",
        timeout: float | None = None,
        max_wait: float | None = None,
        prefetch: int = 0,
    ) -> Session:
        """Lock a session and receive from it; without an id the next that has messages.

        Raises ServiceTimeout where there is none in time, SessionCannotBeLocked where somebody
        else has it.
        """
        inner = self._thread.wait(
            self._inner.accept_session(
                entity,
                session_id,
                mode=mode,
                timeout=timeout,
                max_wait=max_wait,
                prefetch=prefetch,
            )
        )
        return Session(self._thread, inner)

    def list_sessions(self, entity: str | None = None) -> list[str]:
        """The ids of the sessions that have messages or state."""
        return self._thread.wait(self._inner.list_sessions(entity))

    def rules(self, subscription: str | None = None) -> Rules:
        """The rules of a subscription (`topic/Subscriptions/name`)."""
        return Rules(self._thread, self._inner.rules(subscription))

    def transaction(self, *, ambient: bool = True) -> Transaction:
        """Sends and settlements that happen together or not at all: `with` it.

        What is done with this client inside the block belongs to it; with `ambient` False only
        what names it (`transaction=`).
        """
        return Transaction(self._thread, self._inner.transaction(ambient=ambient))


def _inner(transaction: Transaction | None) -> AsyncTransaction | None:
    return None if transaction is None else transaction.inner
