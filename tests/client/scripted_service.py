"""A service that does what a test has written down, over real sockets, and notes what it is told.

The engine in server role with a few lines of script: it has no queues, no locks and no rules. So
what the client sends can be held against the specification, also where our broker is not so far.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from partibus.client.loop_thread import LoopThread
from partibus.engine.connection import Connection
from partibus.engine.delivery import Delivery
from partibus.engine.events import (
    Deliveries,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    SaslInitiated,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.gateway.dialogue import Request, read_request, write_response
from partibus.wire.codec import decode
from partibus.wire.composites import composed
from partibus.wire.performatives import (
    ACCEPTED,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Error,
    Open,
    Rejected,
    TransactionalState,
)
from partibus.wire.values import Int, Symbol

TXN_ID = b"transaction-0001"
PATIENCE_S = 20.0


@dataclass
class Answer:
    """How a request is answered."""

    body: object = field(default_factory=dict)
    status: int = 200
    condition: str | None = None


@dataclass
class Asked:
    """A request, and the delivery it came in."""

    address: str
    request: Request
    delivery: Delivery

    @property
    def operation(self) -> str:
        return str(self.request.properties["operation"])


class ScriptedService:
    """What was written down for it, and what it has seen."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._thread = LoopThread()
        self._tls = tls
        self._peers: list[Peer] = []
        self._changed = threading.Condition()
        self.port = 0
        # Written down before, by address or operation.
        self.refusals: dict[str, deque[Error]] = {}
        self.attach_answers: dict[str, Callable[[Attach], dict[str, Any]]] = {}
        self.answers: dict[str, deque[Answer]] = {}
        self.outcomes: deque[object] = deque()
        self.silent: set[str] = set()
        self.waiting: dict[str, deque[tuple[bytes, bytes]]] = {}
        self.settlement_answer: object = None
        self.discharge_answer: object = ACCEPTED
        self.drops_on_discharge = False
        # Seen since.
        self.connections = 0
        self.attaches: list[Attach] = []
        self.detached: list[str] = []
        self.asked: list[Asked] = []
        self.tokens: list[Asked] = []
        self.transfers: list[Delivery] = []
        self.settled: list[object] = []
        self.coordinated: list[object] = []

    def __enter__(self) -> ScriptedService:
        self._thread.wait(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.wait(self._close())
        self._thread.stop()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._drop_all()
        await asyncio.sleep(0)

    @property
    def connection_string(self) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName=rule;"
            "SharedAccessKey=secret;UseDevelopmentEmulator=true"
        )

    # What a test does while it runs -----------------------------------------------------------

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait until something was seen."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(happened, PATIENCE_S)

        await asyncio.to_thread(wait)

    def drop(self) -> None:
        """Break every connection, as a network does."""

        async def drop() -> None:
            self._drop_all()

        self._thread.wait(drop())

    def _drop_all(self) -> None:
        for peer in self._peers:
            peer.transport.abort()

    def deliver(self, address: str, *messages: tuple[bytes, bytes]) -> None:
        """Have (tag, payload) delivered to whoever has credit at the address."""

        async def deliver() -> None:
            self.waiting.setdefault(address, deque()).extend(messages)
            for peer in self._peers:
                peer.serve_waiting()

        self._thread.wait(deliver())

    def detach(self, address: str, error: Error) -> None:
        """End the links to an address."""

        async def detach() -> None:
            for peer in self._peers:
                peer.detach(address, error)

        self._thread.wait(detach())

    def attached_to(self, address: str) -> list[Attach]:
        """The attaches to an address, in order."""
        return [each for each in self.attaches if address_of(each) == address]

    def requests(self, operation: str) -> list[Asked]:
        """The requests for an operation, in order."""
        return [each for each in self.asked if each.operation == f"com.microsoft:{operation}"]


def address_of(attach: Attach) -> str:
    if isinstance(attach.target, Coordinator):
        return "coordinator"
    terminus = attach.source if attach.role else attach.target
    return str(terminus.address)


class Peer(asyncio.Protocol):
    """One connection of the service."""

    transport: asyncio.Transport

    def __init__(self, service: ScriptedService) -> None:
        self.service = service
        self.engine = Connection.server(Open("service"), limits=Limits(), now_ms=0)
        self.replies: dict[str, SenderLink] = {}
        self.consumers: list[tuple[str, SenderLink]] = []
        self.links: list[tuple[str, SenderLink | ReceiverLink]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.service._peers.append(self)
        self.service.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.service._peers.remove(self)

    def data_received(self, data: bytes) -> None:
        self.handle(self.engine.receive_data(data, 0))
        self.flush()

    def flush(self) -> None:
        with self.service._changed:
            self.service._changed.notify_all()
        self.transport.write(self.engine.data_to_send())
        if self.engine.is_closed:
            self.transport.close()

    def handle(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, SaslInitiated):
                self.handle(self.engine.sasl_outcome(True))
            elif isinstance(event, LinkAttached):
                self.on_attached(event.link, event.attach)
            elif isinstance(event, Deliveries):
                for delivery in event.deliveries:
                    self.on_delivery(event.link, delivery)
            elif isinstance(event, Settlements):
                self.on_settled(event)
            elif isinstance(event, LinkFlowed):
                self.serve_waiting()
            elif isinstance(event, LinkDetached):
                self.service.detached.append(event.link.name)

    # Links ------------------------------------------------------------------------------------

    def on_attached(self, link: SenderLink | ReceiverLink, attach: Attach) -> None:
        service, address = self.service, address_of(attach)
        # The engine's attach is a live object: what we answer must not change what we noted.
        service.attaches.append(attach)
        refusals = service.refusals.get(address)
        if refusals:
            link.refuse(refusals.popleft())
            return
        if address in service.silent:
            return
        fields = service.attach_answers.get(address, lambda attach: {})(attach)
        link.accept(**{"max_message_size": 262_144, **fields})
        link.context = address
        self.links.append((address, link))
        if isinstance(link, ReceiverLink):
            link.grant(100)
        elif address == "$cbs" or address.endswith("/$management"):
            self.replies[address] = link
        else:
            self.consumers.append((address, link))

    def detach(self, address: str, error: Error) -> None:
        for where, link in self.links:
            if where == address and link.is_attached:
                link.detach(error)
        self.flush()

    def serve_waiting(self) -> None:
        for address, link in self.consumers:
            waiting = self.service.waiting.get(address, deque())
            settled = link.peer_attach is not None and link.peer_attach.snd_settle_mode == 1
            while waiting and link.is_attached and link.sendable > 0:
                tag, payload = waiting.popleft()
                link.send(tag, payload, settled=settled)
            if link.drain:
                link.drained()
        self.flush()

    # What comes -------------------------------------------------------------------------------

    def on_delivery(self, link: ReceiverLink, delivery: Delivery) -> None:
        address = str(link.context)
        link.grant(100)
        if address == "coordinator":
            self.on_coordination(link, delivery)
        elif address == "$cbs" or address.endswith("/$management"):
            link.settle([delivery.delivery_id], _in(delivery.state, ACCEPTED))
            self.on_request(address, Asked(address, read_request(delivery.payload), delivery))
        else:
            self.service.transfers.append(delivery)
            outcome = self.service.outcomes.popleft() if self.service.outcomes else ACCEPTED
            if outcome is not None:
                link.settle([delivery.delivery_id], _in(delivery.state, outcome))

    def on_request(self, address: str, asked: Asked) -> None:
        service = self.service
        (service.tokens if address == "$cbs" else service.asked).append(asked)
        script = service.answers.get(asked.operation.removeprefix("com.microsoft:"))
        answer = script.popleft() if script else Answer(status=202 if address == "$cbs" else 200)
        dashed = address == "$cbs"
        properties: dict[str, object] = {
            "status-code" if dashed else "statusCode": Int(answer.status),
            "status-description" if dashed else "statusDescription": "as the script says",
        }
        if answer.condition is not None:
            properties["errorCondition"] = Symbol(answer.condition)
        reply = self.replies[address]
        payload = write_response(asked.request.message_id, properties, answer.body)
        reply.send(b"tag", payload, settled=True)

    def on_coordination(self, link: ReceiverLink, delivery: Delivery) -> None:
        section, _ = decode(delivery.payload)
        told = composed(section.value)
        self.service.coordinated.append(told)
        assert not delivery.settled, "SPEC 5.1: a settled declare is a protocol error"
        if isinstance(told, Declare):
            link.settle([delivery.delivery_id], Declared(TXN_ID))
        elif self.service.drops_on_discharge:
            self.transport.abort()
        else:
            link.settle([delivery.delivery_id], self.service.discharge_answer)

    def on_settled(self, event: Settlements) -> None:
        for _ in event.deliveries:
            self.service.settled.append(event.state)
        if not event.settled:
            echo = self.service.settlement_answer or _echo(event.state)
            event.link.settle([number for number, _ in event.deliveries], echo)


def _in(state: object, outcome: object) -> object:
    if isinstance(state, TransactionalState) and not isinstance(outcome, Rejected):
        return TransactionalState(state.txn_id, outcome)
    return outcome


def _echo(state: object) -> object:
    """SPEC 3.12: the same outcome; a rejection without its error, for that would be a failure."""
    if isinstance(state, TransactionalState):
        return TransactionalState(state.txn_id, _echo(state.outcome))
    return Rejected() if isinstance(state, Rejected) else state
