"""A session receiver in a test's hand: what a gateway does with callbacks is here to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from partibus.broker.errors import Refusal
from partibus.runtime.receiving import ReceiveMode
from partibus.runtime.requests import Delivered, Reply
from partibus.runtime.session_receiving import SessionReceiver
from partibus.testing.door import Door, Got
from partibus.testing.messages import read

TIMEOUT_MS = 5_000


@dataclass
class SessionInbox:
    """A receiver of one session (None: of the next available), and what it got."""

    door: Door
    session: str | None = None
    timeout_ms: int = TIMEOUT_MS
    seen: Callable[[Got], object] = lambda _: None
    # The end of the lock; 0 as long as there is none.
    until_ms: int = 0
    got: list[Got] = field(default_factory=list)
    lost: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        node = self.door.node
        self.receiver = node.adopt(
            lambda number: SessionReceiver(
                node,
                number,
                self.door.entity,
                self.session,
                self.timeout_ms,
                ReceiveMode.PEEK_LOCK,
                self._deliver,
                self.lost.append,
                self._accepted,
            )
        )
        self.receiver.start()

    def _accepted(self, session: str, until_ms: int) -> None:
        self.session, self.until_ms = session, until_ms

    def _deliver(self, messages: list[Delivered]) -> None:
        for message in messages:
            got = Got(message.token, read(message.payload))
            self.got.append(got)
            self.seen(got)

    @property
    def bodies(self) -> list[bytes]:
        """What came, in order."""
        return [got.body for got in self.got]

    async def settled(self, seconds: float = 8) -> SessionInbox:
        """Wait until the session is accepted or refused."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while not self.until_ms and not self.lost:
            assert loop.time() < end_s, "neither accepted nor refused"
            await asyncio.sleep(0.001)
        return self

    async def ask(self, question: Callable[[Callable[[Reply], None]], None]) -> Reply:
        """Ask something of the holder: renew, get_state, set_state."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        question(answer.set_result)
        return await answer

    def credit(self, count: int) -> None:
        """How many messages we take from now on."""
        self.receiver.set_credit(count)

    def close(self) -> None:
        """Give the session up."""
        self.receiver.close()
