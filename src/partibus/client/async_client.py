"""The client, for programs that run on asyncio. `sync_client` is the same for those that do not.

A client is one connection, shared by its senders and receivers, made when it is first needed and
again when it is lost.
"""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Final, Literal, TypeAlias
from weakref import WeakSet

from partibus.client import requests
from partibus.client.async_receiver import AsyncReceiver, Place
from partibus.client.async_rules import AsyncRules
from partibus.client.async_sender import AsyncSender
from partibus.client.async_session import AsyncSession, accept_session
from partibus.client.async_transaction import AsyncTransaction
from partibus.client.connection_string import Destination, read_connection_string
from partibus.client.line import OPERATION_TIMEOUT_S, Line
from partibus.client.retrying import RetryPolicy
from partibus.client.transport import Transport

Mode: TypeAlias = Literal["peek-lock", "receive-and-delete"]
SubQueue: TypeAlias = Literal["dead-letter", "transfer-dead-letter"]

_SUB_QUEUES: Final = {
    None: "",
    "dead-letter": "/$DeadLetterQueue",
    "transfer-dead-letter": "/$Transfer/$DeadLetterQueue",
}
_MODES: Final = {"peek-lock": True, "receive-and-delete": False}


class AsyncClient:
    """A connection to a namespace."""

    def __init__(
        self,
        destination: Destination,
        *,
        ssl_context: ssl.SSLContext | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = OPERATION_TIMEOUT_S,
    ) -> None:
        self._entity = destination.entity
        self._line = Line(
            destination,
            ssl_context=ssl_context,
            retry=RetryPolicy() if retry is None else retry,
            timeout_s=timeout,
        )
        self._receivers: WeakSet[AsyncReceiver] = WeakSet()

    @classmethod
    def from_connection_string(
        cls,
        connection_string: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = OPERATION_TIMEOUT_S,
    ) -> AsyncClient:
        """A client of the namespace that the connection string names.

        It connects by TLS and verifies the certificate, by `ssl_context` where one is given; with
        UseDevelopmentEmulator=true it connects by plain TCP. An operation takes `timeout` seconds
        at most; leave it above 15, for a keyless message to find a fragment that is available.
        """
        destination = read_connection_string(connection_string)
        return cls(destination, ssl_context=ssl_context, retry=retry, timeout=timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the receivers, then the connection."""
        for receiver in list(self._receivers):
            await receiver.close()
        await self._line.close()

    def sender(self, entity: str | None = None, *, via: str | None = None) -> AsyncSender:
        """Send to a queue or topic; `via` puts messages there first, to be moved on commit."""
        return AsyncSender(self._line, self._named(entity), via)

    def receiver(
        self,
        entity: str | None = None,
        *,
        mode: Mode = "peek-lock",
        sub_queue: SubQueue | None = None,
        max_wait: float | None = None,
        prefetch: int = 0,
    ) -> AsyncReceiver:
        """Receive from a queue, a subscription (`topic/Subscriptions/name`) or its sub-queue."""
        place = self._place(entity, mode, sub_queue, prefetch)
        receiver = AsyncReceiver(self._line, place, max_wait=max_wait, prefetch=prefetch)
        self._receivers.add(receiver)
        return receiver

    async def accept_session(
        self,
        entity: str | None = None,
        session_id: str | None = None,
        *,
        mode: Mode = "peek-lock",
        timeout: float | None = None,  # noqa: ASYNC109 - how long the service is to wait
        max_wait: float | None = None,
        prefetch: int = 0,
    ) -> AsyncSession:
        """Lock a session and receive from it; without an id the next that has messages.

        Raises ServiceTimeout where there is none in time, SessionCannotBeLocked where somebody
        else has it.
        """
        session = await accept_session(
            self._line,
            self._place(entity, mode, None, prefetch),
            session_id,
            wait_s=self._line.timeout_s if timeout is None else timeout,
            max_wait=max_wait,
            prefetch=prefetch,
        )
        self._receivers.add(session)
        return session

    async def list_sessions(self, entity: str | None = None) -> list[str]:
        """The ids of the sessions that have messages or state."""
        named = self._named(entity)
        found: list[str] = []

        async def attempt(transport: Transport) -> list[str]:
            await self._line.authorise(transport, named)
            request = requests.list_sessions(len(found))
            return requests.listed_sessions(await self._line.ask(transport, named, request))

        while page := await self._line.perform(attempt):
            found += page
        return found

    def rules(self, subscription: str | None = None) -> AsyncRules:
        """The rules of a subscription (`topic/Subscriptions/name`)."""
        return AsyncRules(self._line, self._named(subscription))

    def transaction(self, *, ambient: bool = True) -> AsyncTransaction:
        """Sends and settlements that happen together or not at all: `async with` it.

        What is done with this client inside the block belongs to it; with `ambient` False only
        what names it (`transaction=`).
        """
        return AsyncTransaction(self._line, ambient=ambient)

    def _named(self, entity: str | None) -> str:
        named = entity or self._entity
        if not named:
            raise ValueError("neither the call nor the connection string names an entity")
        return named

    def _place(
        self, entity: str | None, mode: Mode, sub_queue: SubQueue | None, prefetch: int
    ) -> Place:
        named = self._named(entity)
        if mode not in _MODES or sub_queue not in _SUB_QUEUES:
            raise ValueError(f"mode is one of {list(_MODES)}, sub_queue of {list(_SUB_QUEUES)}")
        if prefetch < 0 or (prefetch and not _MODES[mode]):
            # What was deleted and not looked at would be lost when the receiver is closed.
            raise ValueError("prefetch is not negative, and 0 for receive-and-delete")
        return Place(named, named + _SUB_QUEUES[sub_queue], _MODES[mode])
