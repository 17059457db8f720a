"""Transactions: sends and settlements that happen together or not at all (SPEC 5).

A transaction is declared with its first operation, because only then an entity has been authorised
and its two minutes need to begin. It lives and dies with the connection it was declared on.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from partibus.client.errors import (
    ConnectionLost,
    LinkLost,
    MessagingError,
    OperationTimeout,
    TransactionInDoubt,
    TransactionRolledBack,
    TransactionUnknown,
)
from partibus.client.line import Line
from partibus.client.outbox import Outbox
from partibus.client.transport import Transport
from partibus.wire.composites import compose
from partibus.wire.message_scan import VALUE
from partibus.wire.performatives import Declare, Declared, Discharge, TransactionalState

_VALUE_SECTION: Final = bytes((0x00, 0x53, VALUE))


class AsyncTransaction:
    """A transaction; use it as a context manager, which commits, or rolls back on an exception."""

    def __init__(self, line: Line, *, ambient: bool) -> None:
        self._line = line
        self._is_ambient = ambient
        self._token: Token[AsyncTransaction | None] | None = None
        self._declaring = asyncio.Lock()
        self._transport: Transport | None = None
        self._coordinator: Outbox | None = None
        self._txn_id = b""
        self._is_over = False

    # Its life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncTransaction:
        self.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        await self.end(failed=error is not None)

    def enter(self) -> None:
        """From here on, what this context does with the client belongs to the transaction."""
        if self._is_ambient:
            self._token = _AMBIENT.set(self)

    def leave(self) -> None:
        """From here on it does not."""
        if self._token is not None:
            _AMBIENT.reset(self._token)
            self._token = None

    async def end(self, *, failed: bool) -> None:
        """What the end of a with-block does, unless it was done before."""
        if self._is_over:
            return
        if not failed:
            await self.commit()
            return
        # The exception on its way out says more than one about the rollback; and a transaction
        # that cannot be rolled back is not committed either.
        with contextlib.suppress(MessagingError):
            await self.rollback()

    async def commit(self) -> None:
        """Make everything happen. Raises where nothing did, or where nobody knows."""
        await self._discharge(fail=False)

    async def rollback(self) -> None:
        """Make nothing happen; messages that were settled stay locked."""
        await self._discharge(fail=True)

    async def _discharge(self, *, fail: bool) -> None:
        if self._is_over:
            raise TransactionUnknown("the transaction has ended already")
        self._is_over = True
        transport, coordinator = self._transport, self._coordinator
        if transport is None or coordinator is None:
            # Nothing was done in it: the service has never heard of it.
            return
        if coordinator.error is not None:
            raise TransactionRolledBack(f"the connection was lost before: {coordinator.error}")
        outcome = coordinator.send(_VALUE_SECTION + compose(Discharge(self._txn_id, fail)))
        try:
            async with asyncio.timeout(self._line.timeout_s):
                await transport.answer(outcome)
        except (ConnectionLost, LinkLost, OperationTimeout, TimeoutError) as error:
            if fail:
                raise TransactionRolledBack("the connection was lost") from error
            raise TransactionInDoubt(f"the answer to the commit was lost: {error}") from error

    # What is done in it -----------------------------------------------------------------------

    def belongs_to(self, line: Line) -> bool:
        """Whether it is a transaction of this client."""
        return self._line is line

    async def state(self, transport: Transport, outcome: object = None) -> TransactionalState:
        """The state that makes a delivery part of it; the first one declares the transaction."""
        async with self._declaring:
            if self._is_over:
                raise TransactionUnknown("the transaction has ended already")
            if self._transport is None:
                await self._declare(transport)
            elif self._transport is not transport or not transport.is_usable:
                raise TransactionRolledBack("the connection was lost, and the transaction with it")
        return TransactionalState(self._txn_id, outcome)

    async def _declare(self, transport: Transport) -> None:
        coordinator = await self._line.attach(transport, transport.conversation.coordinator())
        declared = await transport.answer(coordinator.send(_VALUE_SECTION + compose(Declare())))
        if not isinstance(declared, Declared):
            raise MessagingError(f"the service answered a declare with {declared}")
        self._txn_id = declared.txn_id
        self._coordinator = coordinator
        self._transport = transport


_AMBIENT: ContextVar[AsyncTransaction | None] = ContextVar("partibus transaction", default=None)


def transaction_of(line: Line, given: AsyncTransaction | None) -> AsyncTransaction | None:
    """The transaction that an operation belongs to: the one given, else that of the context."""
    if given is not None:
        if not given.belongs_to(line):
            raise ValueError("the transaction belongs to another client")
        return given
    ambient = _AMBIENT.get()
    return ambient if ambient is not None and ambient.belongs_to(line) else None
