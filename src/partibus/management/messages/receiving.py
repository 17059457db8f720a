"""Receives over HTTP: one message a request, and a receiver that lives as long as its connection.

The receiver keeps what other nodes answered beyond the one message (R3), so a kept-alive
connection finds its next message at once. What it keeps is nobody else's until it is given back:
after an idle second, or when the connection ends.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityDisabled, InvalidOperation, Refusal
from partibus.broker.forwarding import check_receivable
from partibus.broker.records import SubQueue
from partibus.broker.settlement import RELEASE
from partibus.management.connection import HttpConnection
from partibus.runtime.node import Node
from partibus.runtime.receiving import ReceiveMode, Receiver
from partibus.runtime.requests import Delivered

# Who asks more entities than this on one connection loses what was cached for the first.
RECEIVERS_MAX = 15

_Key = tuple[int, int, SubQueue, ReceiveMode]


class Reception:
    """One receiver of a connection, and the request that waits for it."""

    def __init__(self, node: Node, entity: Entity, subqueue: SubQueue, mode: ReceiveMode) -> None:
        self._node = node
        self._entity = entity
        self._mode = mode
        self._waiting: asyncio.Future[Delivered | None] | None = None
        # Deleted already, and for who asks next: at most one, since no more is asked for.
        self._kept: list[Delivered] = []
        self.is_lost = False
        self._receiver: Receiver = node.receiver(entity, subqueue, mode, self._deliver, self._lost)

    async def next(self, span_s: float) -> Delivered | None:
        """The next message; None where none came in time."""
        if self._kept:
            return self._kept.pop()
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Delivered | None] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_later(span_s, self._give_up)
        self._receiver.set_credit(1)
        try:
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None

    def close(self) -> None:
        """The connection is gone, or another entity needs the place."""
        self._receiver.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ClientDisconnect())

    def _give_up(self) -> None:
        """What is on its way still comes before the answer that nothing did."""
        self._receiver.drain(self._drained)

    def _drained(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _deliver(self, messages: list[Delivered]) -> None:
        for message in messages:
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(message)
            elif self._mode is ReceiveMode.PEEK_LOCK:
                self._node.settle(self._entity, [message.token], RELEASE, lambda _: None)
            else:
                self._kept.append(message)

    def _lost(self, refusal: Refusal) -> None:
        self.is_lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(refusal)


class Receptions:
    """The receivers of one connection, the one used last at the end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: dict[_Key, Reception] = {}

    def reception(self, entity: Entity, subqueue: SubQueue, mode: ReceiveMode) -> Reception:
        """The receiver for this; made where the connection has none."""
        if not entity.description.allows_receive:
            raise EntityDisabled(f"'{entity.name}' is {entity.description.status}.")
        check_receivable(entity, subqueue)
        if entity.description.requires_session and subqueue is SubQueue.ACTIVE:
            raise InvalidOperation(
                f"'{entity.name}' requires sessions: its messages are received over AMQP only."
            )
        key = (entity.id, entity.incarnation, subqueue, mode)
        found = self._open.pop(key, None)
        if found is not None and found.is_lost:
            found.close()
            found = None
        if found is None:
            if len(self._open) >= RECEIVERS_MAX:
                self._open.pop(next(iter(self._open))).close()
            found = Reception(self._node, entity, subqueue, mode)
        self._open[key] = found
        return found

    def close(self) -> None:
        """The connection is gone."""
        for each in self._open.values():
            each.close()
        self._open.clear()


def receptions_of(connection: HttpConnection, node: Node) -> Receptions:
    """The receivers of a connection, which end with it."""
    found = connection.belongings.get(Receptions)
    if not isinstance(found, Receptions):
        found = Receptions(node)
        connection.belongings[Receptions] = found
    return found
