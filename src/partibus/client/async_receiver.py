"""Receiving: messages, their settlement, their locks; and looking without taking."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, TypeAlias
from uuid import UUID

from partibus.client import requests, settlement
from partibus.client.async_transaction import AsyncTransaction, transaction_of
from partibus.client.dialogue import Response
from partibus.client.encoding import decode_message
from partibus.client.errors import (
    ConnectionLost,
    InvalidOperation,
    LinkLost,
    MalformedMessage,
    gravest,
)
from partibus.client.inbox import Inbox
from partibus.client.line import Line
from partibus.client.message import ReceivedMessage
from partibus.client.pending import Pending
from partibus.client.settlement import Settlement
from partibus.client.transport import Transport
from partibus.engine.delivery import Delivery

# How long the service may take to answer a drain; what comes later is kept for the next receive.
DRAIN_S: Final = 5.0
_LOCK_TOKEN_BYTES: Final = 16

# One message, or several that are settled alike.
Messages: TypeAlias = ReceivedMessage | Sequence[ReceivedMessage]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a receiver receives: an entity or one of its sub-queues, with or without locks."""

    entity: str
    address: str
    is_locking: bool = True


@dataclass(frozen=True, slots=True)
class Origin:
    """The link a message came on, and its number there."""

    inbox: Inbox
    delivery_id: int


class AsyncReceiver:
    """Receives from one entity or sub-queue.

    `async for` yields messages until none comes for `max_wait` seconds (None: for ever), taking
    up to `prefetch` of them at a time.
    """

    def __init__(self, line: Line, place: Place, *, max_wait: float | None, prefetch: int) -> None:
        self._line = line
        self._place = place
        self._max_wait = max_wait
        self._prefetch = prefetch
        self._receiving = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._held: deque[ReceivedMessage] = deque()

    async def __aenter__(self) -> AsyncReceiver:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back what nobody has seen, and detach the link."""
        inbox, self._inbox = self._inbox, None
        held, self._held = self._held, deque()
        if inbox is not None:
            origins = [each.origin for each in held if each.lock_token is not None]
            inbox.release([each.delivery_id for each in origins if isinstance(each, Origin)])
            await self._line.detach(inbox)

    # Receiving --------------------------------------------------------------------------------

    async def receive(
        self,
        max_messages: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 - how long to wait for a message
    ) -> list[ReceivedMessage]:
        """What is there, up to so many messages; waits for the first until the time is up.

        Without a time-out it waits as long as any operation does. Nothing came: an empty list.
        """
        if max_messages < 1:
            raise ValueError("a receive asks for one message at least")
        wait_s = self._line.timeout_s if timeout is None else timeout
        async with self._receiving:
            if self._held:
                return [self._held.popleft() for _ in range(min(max_messages, len(self._held)))]
            until = asyncio.get_running_loop().time() + wait_s

            async def attempt(transport: Transport) -> list[ReceivedMessage]:
                return await self._receive(transport, max_messages, until)

            return await self._line.perform(attempt, wait_s + self._line.timeout_s)

    async def _receive(
        self, transport: Transport, count: int, until: float
    ) -> list[ReceivedMessage]:
        inbox = await self._attached(transport)
        try:
            async with asyncio.timeout_at(until):
                await transport.answer(inbox.want(count))
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            inbox.drain()
            transport.flush()
            raise
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await transport.answer(inbox.drain())
        return self._read(inbox, inbox.take(count))

    def _read(self, inbox: Inbox, deliveries: list[Delivery]) -> list[ReceivedMessage]:
        messages = []
        failures = []
        for delivery in deliveries:
            try:
                messages.append(_message(inbox, delivery))
            except MalformedMessage as error:
                failures.append(error)
        if failures:
            # Those that came with it are for the next receive.
            self._held.extend(messages)
            raise failures[0]
        return messages

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            messages = await self.receive(max(1, self._prefetch), self._max_wait)
            if messages:
                self._held.extendleft(reversed(messages[1:]))
                yield messages[0]
            elif self._max_wait is not None:
                return

    async def _attached(self, transport: Transport) -> Inbox:
        if self._inbox is None or self._inbox.error is not None:
            await self._line.authorise(transport, self._place.entity)
            self._inbox = transport.conversation.receiver(
                self._place.address, is_locking=self._place.is_locking
            )
        return await self._line.attach(transport, self._inbox)

    async def receive_deferred(self, sequence_numbers: Sequence[int]) -> list[ReceivedMessage]:
        """Receive messages that were deferred, by their numbers (of one fragment)."""
        request = requests.receive_deferred(
            sequence_numbers, is_locking=self._place.is_locking, session_id=self._session_id
        )
        return requests.deferred(await self._ask(request))

    async def peek(
        self, count: int = 1, from_sequence_number: int = 0, *, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Look at messages from this number on, without locking them.

        It may be fewer than asked, on a partitioned entity those of one fragment only; to see all,
        go on behind the last one's number until nothing comes, as `browse` does.
        """
        request = requests.peek(count, from_sequence_number, session_id or self._session_id)
        return requests.peeked(await self._ask(request))

    async def browse(self, *, page: int = 100) -> AsyncIterator[ReceivedMessage]:
        """Look at every message, fragment by fragment."""
        following = 0
        while messages := await self.peek(page, following):
            for message in messages:
                yield message
            following = (messages[-1].sequence_number or following) + 1

    # Settling ---------------------------------------------------------------------------------

    async def complete(
        self, messages: Messages, *, transaction: AsyncTransaction | None = None
    ) -> None:
        """The messages are done with: they are deleted."""
        await self._settle(messages, settlement.COMPLETE, transaction)

    async def abandon(
        self,
        messages: Messages,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Give the messages back, to be received again."""
        await self._settle(messages, settlement.abandon(properties), transaction)

    async def defer(
        self,
        messages: Messages,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Set messages aside; keep their sequence numbers, by which alone they can be received."""
        await self._settle(messages, settlement.defer(properties), transaction)

    async def dead_letter(
        self,
        messages: Messages,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Move the messages to the dead-letter queue."""
        how = settlement.dead_letter(reason, description, properties)
        await self._settle(messages, how, transaction)

    async def renew_lock(self, message: ReceivedMessage) -> datetime | None:
        """Keep the message locked for another while; returns, and notes on it, until when."""
        times = requests.renewed(await self._ask(requests.renew_lock([_token(message)])))
        message.locked_until = times[0] if times else None
        return message.locked_until

    async def _settle(
        self, messages: Messages, how: Settlement, given: AsyncTransaction | None
    ) -> None:
        unsettled = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        for message in unsettled:
            _token(message)
        joined = transaction_of(self._line, given)

        async def attempt(transport: Transport) -> None:
            await self._line.authorise(transport, self._place.entity)
            state = how.outcome if joined is None else await joined.state(transport, how.outcome)
            await _settle_on_links(transport, unsettled, state)
            if unsettled:
                self._check_link()
            while unsettled:
                # Their link is gone, or there never was one: the lock token still counts.
                asked_in = None if joined is None else await joined.state(transport)
                request = how.request(_token(unsettled[0]), self._session_id)
                requests.check(await self._ask_over(transport, request, state=asked_in))
                del unsettled[0]

        await self._line.perform(attempt)

    # Asking -----------------------------------------------------------------------------------

    _session_id: str | None = None

    def _check_link(self) -> None:
        """Where a receiver is nothing without its link, say so. This one can attach another."""
        return

    async def _ask(self, request: requests.Request) -> Response:
        async def attempt(transport: Transport) -> Response:
            self._check_link()
            await self._line.authorise(transport, self._place.entity)
            return await self._ask_over(transport, request)

        return await self._line.perform(attempt)

    async def _ask_over(
        self, transport: Transport, request: requests.Request, state: object = None
    ) -> Response:
        inbox = self._inbox
        link_name = inbox.name if inbox is not None and inbox.is_usable else None
        return await self._line.ask(
            transport, self._place.address, request, link_name=link_name, state=state
        )


def _message(inbox: Inbox, delivery: Delivery) -> ReceivedMessage:
    message = decode_message(delivery.payload)
    if delivery.settled:
        message.lock_token = None
    elif len(delivery.tag) == _LOCK_TOKEN_BYTES:
        message.lock_token = UUID(bytes_le=delivery.tag)
    message.origin = Origin(inbox, delivery.delivery_id)
    return message


async def _settle_on_links(
    transport: Transport, unsettled: list[ReceivedMessage], state: object
) -> None:
    """Settle what came on a link that is still there; what is settled leaves the list."""
    pairs: list[tuple[ReceivedMessage, Pending[None]]] = []
    for message in unsettled:
        origin = message.origin
        if isinstance(origin, Origin) and origin.inbox.is_usable:
            pairs.append((message, origin.inbox.settle(origin.delivery_id, state)))
    try:
        failures = await transport.failures([settling for _, settling in pairs])
    finally:
        done = {id(message) for message, settling in pairs if settling.is_good}
        for message, settling in pairs:
            if settling.is_done and not isinstance(settling.error, (LinkLost, ConnectionLost)):
                # Its number means nothing to the link any more; its token may, after a rollback.
                message.origin = None
        unsettled[:] = [message for message in unsettled if id(message) not in done]
    if failures:
        raise gravest(failures)


def _token(message: ReceivedMessage) -> UUID:
    if message.lock_token is None:
        raise InvalidOperation("the message has no lock: it was peeked, or deleted when received")
    return message.lock_token
