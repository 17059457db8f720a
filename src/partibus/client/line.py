"""The line to the service: a connection that is made when it is needed, and again when it is lost.

Everything that is done goes through `perform`, which bounds it in time and tries it again where
that may help. What is done is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from partibus.client.connection_string import Destination
from partibus.client.dialogue import Response
from partibus.client.errors import (
    ConnectionLost,
    MessagingError,
    OperationTimeout,
)
from partibus.client.link_end import LinkEnd
from partibus.client.protocol import Conversation
from partibus.client.requests import Request
from partibus.client.retrying import RetryPolicy
from partibus.client.transport import CLOSE_S, Transport, connect

log = logging.getLogger(__name__)

# The page: more than 15 s, so that a keyless message can find another fragment; better 60.
OPERATION_TIMEOUT_S = 60.0
_CONTAINER_ID_BYTES = 8
# Pauses differ by up to a quarter, so that clients who lost one service do not return as one.
_JITTER_STEPS = 256

T = TypeVar("T")
EndT = TypeVar("EndT", bound=LinkEnd)


class Line:
    """The way to one namespace."""

    def __init__(
        self,
        destination: Destination,
        *,
        ssl_context: ssl.SSLContext | None,
        retry: RetryPolicy,
        timeout_s: float,
    ) -> None:
        self._destination = destination
        self._ssl_context = ssl_context
        self._retry = retry
        self.timeout_s = timeout_s
        self._transport: Transport | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def perform(
        self, work: Callable[[Transport], Awaitable[T]], timeout_s: float | None = None
    ) -> T:
        """Do something over the connection, trying again as the retry policy says."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        failures: list[MessagingError] = []
        try:
            async with asyncio.timeout(limit_s):
                return await self._attempts(work, failures)
        except TimeoutError:
            text = f"no answer within {limit_s:g} s"
            if not failures:
                raise OperationTimeout(text) from None
            raise OperationTimeout(f"{text}; at last: {failures[-1]}") from failures[-1]

    async def _attempts(
        self, work: Callable[[Transport], Awaitable[T]], failures: list[MessagingError]
    ) -> T:
        for attempt in range(self._retry.attempts):
            try:
                return await work(await self.transport())
            except MessagingError as error:
                pause_s = None if self._is_closed else self._retry.pause_s(error, attempt)
                if pause_s is None:
                    raise
                log.info("trying again attempt=%d pause_s=%.1f error=%s", attempt, pause_s, error)
                failures.append(error)
            await asyncio.sleep(pause_s * (1 + secrets.randbelow(_JITTER_STEPS) / 1024))
        raise AssertionError("the retry policy gives up in time")

    async def transport(self) -> Transport:
        """The connection, made now if there is none."""
        async with self._connecting:
            if self._is_closed:
                raise ConnectionLost("the client was closed")
            if self._transport is None or not self._transport.is_usable:
                self._transport = await self._connect()
            return self._transport

    async def _connect(self) -> Transport:
        destination = self._destination
        container_id = secrets.token_hex(_CONTAINER_ID_BYTES)
        return await connect(
            destination.host,
            destination.port,
            self._tls(),
            lambda now_ms: Conversation(
                destination.host, destination.credentials, now_ms, container_id
            ),
        )

    def _tls(self) -> ssl.SSLContext | None:
        if self._destination.is_plain:
            return None
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context

    async def close(self) -> None:
        """End the connection; nothing can be done after."""
        self._is_closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    # Steps of what is done --------------------------------------------------------------------

    async def authorise(self, transport: Transport, entity: str) -> None:
        """Have a token for the entity put before it is used."""
        await transport.answer(transport.conversation.authorise(entity, transport.now_ms()))

    async def attach(self, transport: Transport, end: EndT) -> EndT:
        """Wait until a link is attached; one that nobody waits for any more is detached."""
        try:
            await transport.answer(end.attached)
        except asyncio.CancelledError:
            end.close()
            transport.flush()
            raise
        return end

    async def detach(self, end: LinkEnd) -> None:
        """End a link, and wait a little for the answer."""
        transport = self._transport
        if transport is not None and end.is_usable:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await transport.answer(end.close())

    async def ask(
        self,
        transport: Transport,
        address: str,
        request: Request,
        *,
        link_name: str | None = None,
        state: object = None,
    ) -> Response:
        """Ask the `$management` of an entity (which must be authorised)."""
        dialogue = transport.conversation.dialogue(f"{address}/$management")
        properties = request.properties(int(self.timeout_s * 1000), link_name)
        return await transport.answer(dialogue.ask(properties, request.body, state=state))
