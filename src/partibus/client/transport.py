"""A socket under a conversation: bytes both ways, the time, and answers that can be awaited.

One of these lives as long as one connection does. It decides nothing: that is the protocol's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from partibus.client.errors import ConnectionLost, MessagingError, Unauthorized
from partibus.client.pending import Pending
from partibus.client.protocol import Conversation

# How long the service may take to answer our goodbye.
CLOSE_S = 5.0

T = TypeVar("T")


class Transport(asyncio.Protocol):
    """The asyncio side of one conversation."""

    def __init__(
        self, make: Callable[[int], Conversation], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        # Wall time, which tokens need, at the pace of the loop's clock, which never jumps.
        self._epoch_s = time.time() - loop.time()
        self.conversation = make(self.now_ms())
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] = loop.create_future()

    def now_ms(self) -> int:
        """The time of day."""
        return int((self._epoch_s + self._loop.time()) * 1000)

    @property
    def is_usable(self) -> bool:
        """Whether the connection has not ended."""
        return self.conversation.error is None

    async def answer(self, pending: Pending[T]) -> T:
        """Send what there is to send, and wait for an answer."""
        self.flush()
        await self._wait(pending)
        return pending.result()

    async def failures(self, pendings: Sequence[Pending[T]]) -> list[MessagingError]:
        """Wait for several answers; returns the errors that came instead."""
        self.flush()
        try:
            for pending in pendings:
                await self._wait(pending)
        except asyncio.CancelledError:
            for pending in pendings:
                pending.forget()
            raise
        return [pending.error for pending in pendings if pending.error is not None]

    async def _wait(self, pending: Pending[T]) -> None:
        if pending.is_done:
            return
        done: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        pending.then(wake)
        try:
            await done
        except asyncio.CancelledError:
            pending.leave(wake)
            raise

    async def close(self) -> None:
        """Say goodbye, and wait a little for the answer."""
        self.conversation.close()
        self.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._gone)
        self.abort()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Write what the conversation has to say, and be called when it next has."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            # While the socket is full the conversation keeps what it has, which is bounded.
            while not self._is_full and (data := self.conversation.data_to_send()):
                transport.write(data)
            if self.conversation.is_closed:
                transport.close()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.conversation.next_deadline_ms()
        if deadline_ms is not None and not self._gone.done():
            when = deadline_ms / 1000 - self._epoch_s
            self._timer = self._loop.call_at(max(when, self._loop.time()), self._on_timer)

    def _on_timer(self) -> None:
        self.conversation.advance(self.now_ms())
        self.flush()

    # What asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.conversation.receive_data(data, self.now_ms())
        self.flush()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self._is_full = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self.conversation.receive_eof()
        if not self._gone.done():
            self._gone.set_result(None)
        self._set_timer()


async def connect(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    make: Callable[[int], Conversation],
) -> Transport:
    """Connect, and wait until the service has opened the conversation. Raises MessagingError."""
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.create_connection(
            lambda: Transport(make, loop), host, port, ssl=tls
        )
    except ssl.SSLCertVerificationError as error:
        raise Unauthorized(f"the certificate of {host} is not to be trusted: {error}") from error
    except OSError as error:
        raise ConnectionLost(f"{host}:{port} cannot be reached: {error}") from error
    try:
        await transport.answer(transport.conversation.opened)
    except BaseException:
        transport.abort()
        raise
    return transport
