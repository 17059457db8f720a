"""The rules of one subscription, to be listed, added and removed."""

from __future__ import annotations

from partibus.client import rules
from partibus.client.async_transaction import AsyncTransaction, transaction_of
from partibus.client.line import Line
from partibus.client.requests import Request, check
from partibus.client.rules import CorrelationFilter, Rule
from partibus.client.transport import Transport


class AsyncRules:
    """Which messages a subscription takes, and what becomes of them. Needs the right Manage."""

    def __init__(self, line: Line, subscription: str) -> None:
        self._line = line
        self._subscription = subscription

    async def add(
        self,
        name: str,
        filter: str | CorrelationFilter = "1=1",
        *,
        action: str | None = None,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Add a rule: SQL, or values that properties must have, and perhaps an SQL action."""
        await self._change(rules.add_rule(name, filter, action), transaction)

    async def remove(self, name: str, *, transaction: AsyncTransaction | None = None) -> None:
        """Remove a rule; a new subscription has one, `$Default`, that takes every message."""
        await self._change(rules.remove_rule(name), transaction)

    async def list(self) -> list[Rule]:
        """All rules, the oldest first."""
        found: list[Rule] = []

        async def attempt(transport: Transport) -> list[Rule]:
            await self._line.authorise(transport, self._subscription)
            request = rules.enumerate_rules(len(found))
            response = await self._line.ask(transport, self._subscription, request)
            return rules.enumerated(response)

        while page := await self._line.perform(attempt):
            found += page
        return found

    async def _change(self, request: Request, transaction: AsyncTransaction | None) -> None:
        joined = transaction_of(self._line, transaction)

        async def attempt(transport: Transport) -> None:
            await self._line.authorise(transport, self._subscription)
            state = None if joined is None else await joined.state(transport)
            check(await self._line.ask(transport, self._subscription, request, state=state))

        await self._line.perform(attempt)
