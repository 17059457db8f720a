"""Sending: messages one by one, in batches, later, and in transactions."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Final
from uuid import UUID

from partibus.client import requests
from partibus.client.async_transaction import AsyncTransaction, transaction_of
from partibus.client.encoding import encode_batch, encode_message
from partibus.client.errors import MessagingError, gravest
from partibus.client.line import Line
from partibus.client.message import Message
from partibus.client.outbox import Outbox
from partibus.client.transport import Transport
from partibus.wire.message_scan import BATCH_FORMAT
from partibus.wire.values import Symbol

# Messages of one call that are under way at once.
SENDS_AT_ONCE_MAX: Final = 1_000
TRANSFER_DESTINATION: Final = "com.microsoft:transfer-destination-address"


class AsyncSender:
    """Sends to one entity, directly or via another."""

    def __init__(self, line: Line, entity: str, via: str | None) -> None:
        self._line = line
        self._entity = entity
        self._via = via
        self._attaching = asyncio.Lock()
        self._outbox: Outbox | None = None

    async def __aenter__(self) -> AsyncSender:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
        self,
        messages: Message | Sequence[Message],
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Send messages, each by itself; returns when all are accepted, which means durable.

        Where some are not, the error tells which by `unsent`.
        """
        named = [messages] if isinstance(messages, Message) else list(messages)
        unsent = [(message, _encoded(message)) for message in named]
        joined = transaction_of(self._line, transaction)

        async def attempt(transport: Transport) -> None:
            outbox = await self._attached(transport)
            state = None if joined is None else await joined.state(transport)
            await _send_each(transport, outbox, unsent, state)

        try:
            await self._line.perform(attempt)
        except MessagingError as error:
            error.unsent = tuple(message for message, _ in unsent)
            raise

    async def send_batch(
        self, messages: Sequence[Message], *, transaction: AsyncTransaction | None = None
    ) -> None:
        """Send messages as one: all are accepted or none, in one fragment and in this order."""
        batch = list(messages)
        if not batch:
            return
        encoded = [_encoded(message) for message in batch]
        payload = encode_batch(encoded, batch[0])
        joined = transaction_of(self._line, transaction)

        async def attempt(transport: Transport) -> None:
            outbox = await self._attached(transport)
            state = None if joined is None else await joined.state(transport)
            await transport.answer(outbox.send(payload, message_format=BATCH_FORMAT, state=state))

        try:
            await self._line.perform(attempt)
        except MessagingError as error:
            error.unsent = tuple(batch)
            raise

    async def schedule(
        self, message: Message, at: datetime, *, transaction: AsyncTransaction | None = None
    ) -> int:
        """Have a message enqueued later; returns the number by which it can be cancelled."""
        _name(message)
        later = dataclasses.replace(message, scheduled_enqueue_time=at)
        request = requests.schedule([(later, _encoded(later))])
        joined = transaction_of(self._line, transaction)

        async def attempt(transport: Transport) -> int:
            await self._authorise(transport)
            state = None if joined is None else await joined.state(transport)
            response = await self._line.ask(
                transport, self._address, request, link_name=self._link_name, state=state
            )
            (number,) = requests.scheduled(response)
            return number

        return await self._line.perform(attempt)

    async def cancel_scheduled(self, *sequence_numbers: int) -> None:
        """Take back messages that were scheduled."""

        async def attempt(transport: Transport) -> None:
            await self._authorise(transport)
            request = requests.cancel_scheduled(sequence_numbers)
            requests.check(
                await self._line.ask(transport, self._address, request, link_name=self._link_name)
            )

        await self._line.perform(attempt)

    async def close(self) -> None:
        """Detach the link; sending again would attach another."""
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            await self._line.detach(outbox)

    @property
    def _address(self) -> str:
        return self._via or self._entity

    @property
    def _link_name(self) -> str | None:
        outbox = self._outbox
        return outbox.name if outbox is not None and outbox.is_usable else None

    async def _authorise(self, transport: Transport) -> None:
        # Who sends via an entity shows tokens for both.
        for entity in {self._entity, self._address}:
            await self._line.authorise(transport, entity)

    async def _attached(self, transport: Transport) -> Outbox:
        async with self._attaching:
            if self._outbox is None or self._outbox.error is not None:
                await self._authorise(transport)
                properties: dict[object, object] = {}
                if self._via is not None:
                    properties[Symbol(TRANSFER_DESTINATION)] = self._entity
                self._outbox = transport.conversation.sender(self._address, properties)
            return await self._line.attach(transport, self._outbox)


def _name(message: Message) -> None:
    """Give a message an id before its first attempt, so that all its copies have the same."""
    if message.message_id is None:
        message.message_id = str(UUID(bytes=secrets.token_bytes(16), version=4))


def _encoded(message: Message) -> bytes:
    _name(message)
    return encode_message(message, int(time.time() * 1000))


async def _send_each(
    transport: Transport, outbox: Outbox, unsent: list[tuple[Message, bytes]], state: object
) -> None:
    """Send what is in the list; what was accepted is taken out of it."""
    while unsent:
        now = unsent[:SENDS_AT_ONCE_MAX]
        sent = [outbox.send(payload, state=state) for _, payload in now]
        try:
            failures = await transport.failures(sent)
        finally:
            # Also when the time is up: what has no outcome by then counts as not accepted.
            pairs = zip(now, sent, strict=True)
            unsent[: len(now)] = [each for each, outcome in pairs if not outcome.is_good]
        if failures:
            raise gravest(failures)
