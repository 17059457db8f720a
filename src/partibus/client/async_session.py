"""Sessions: a receiver that has one session to itself, in order, with the state kept beside it.

A session is bound to its link. When that ends, the lock is lost and nothing is tried again: who
accepts the session next may be somebody else (SPEC 3.13, 6.6).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from partibus.client import requests
from partibus.client.async_receiver import AsyncReceiver, Place
from partibus.client.encoding import to_time
from partibus.client.errors import InvalidOperation, ServiceTimeout, SessionLockLost
from partibus.client.inbox import Inbox
from partibus.client.line import Line
from partibus.client.protocol import SESSION_FILTER
from partibus.client.transport import Transport
from partibus.wire.performatives import Source
from partibus.wire.values import Described, Symbol, UInt

TIMEOUT_PROPERTY: Final = "com.microsoft:timeout"
LOCKED_UNTIL_PROPERTY: Final = "com.microsoft:locked-until-utc"
# .NET counts 100 ns from the year 1.
_EPOCH_TICKS: Final = 621_355_968_000_000_000
_TICKS_PER_MS: Final = 10_000


class AsyncSession(AsyncReceiver):
    """A session that is ours until it is closed, or its lock ends."""

    def __init__(
        self, line: Line, place: Place, inbox: Inbox, *, max_wait: float | None, prefetch: int
    ) -> None:
        super().__init__(line, place, max_wait=max_wait, prefetch=prefetch)
        self._inbox = inbox
        self._link = inbox
        self.session_id = self._session_id = _session_id(inbox)
        self.locked_until: datetime | None = _locked_until(inbox)

    async def state(self) -> bytes | None:
        """What was kept with the session; None where nothing was."""
        request = requests.get_session_state(self.session_id)
        return requests.session_state(await self._ask(request))

    async def set_state(self, state: bytes | str | None) -> None:
        """Keep this with the session, also when it is empty; None clears it."""
        encoded = state.encode() if isinstance(state, str) else state
        request = requests.set_session_state(self.session_id, encoded)
        requests.check(await self._ask(request))

    async def renew(self) -> datetime | None:
        """Keep the session locked for another while; returns, and notes, until when."""
        request = requests.renew_session_lock(self.session_id)
        self.locked_until = requests.session_renewed(await self._ask(request))
        return self.locked_until

    async def _attached(self, transport: Transport) -> Inbox:
        self._check_link()
        return self._link

    def _check_link(self) -> None:
        error = self._link.error
        if error is not None:
            if isinstance(error, SessionLockLost):
                raise error
            raise SessionLockLost(f"the link to session {self.session_id!r} has ended: {error}")


async def accept_session(
    line: Line,
    place: Place,
    session_id: str | None,
    *,
    wait_s: float,
    max_wait: float | None,
    prefetch: int,
) -> AsyncSession:
    """Lock a session, or the next that has messages; waits for one until the time is up."""

    async def attempt(transport: Transport) -> Inbox | ServiceTimeout:
        await line.authorise(transport, place.entity)
        inbox = transport.conversation.receiver(
            place.address,
            is_locking=place.is_locking,
            filters={Symbol(SESSION_FILTER): session_id},
            properties={Symbol(TIMEOUT_PROPERTY): UInt(int(wait_s * 1000))},
        )
        try:
            return await line.attach(transport, inbox)
        except ServiceTimeout as error:
            # The service has waited as long as it was told to: that is an answer.
            return error

    accepted = await line.perform(attempt, wait_s + line.timeout_s)
    if isinstance(accepted, ServiceTimeout):
        raise accepted
    return AsyncSession(line, place, accepted, max_wait=max_wait, prefetch=prefetch)


def _session_id(inbox: Inbox) -> str:
    source = inbox.answer.source
    value = (source.filter or {}).get(SESSION_FILTER) if isinstance(source, Source) else None
    if isinstance(value, Described):
        value = value.value
    if not isinstance(value, str):
        raise InvalidOperation("the service attached a link without a session")
    return value


def _locked_until(inbox: Inbox) -> datetime | None:
    ticks = (inbox.answer.properties or {}).get(LOCKED_UNTIL_PROPERTY)
    return to_time((ticks - _EPOCH_TICKS) // _TICKS_PER_MS) if isinstance(ticks, int) else None
