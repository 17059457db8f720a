"""A node with its gateway in one thread: real rules, real store in memory, time in our hand.

Clients are our own engine in the client's role, joined to a gateway connection by an in-memory
transport. `settle` lets everything happen that does not wait for time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.engine.connection import Connection
from partibus.engine.events import (
    Closed,
    Deliveries,
    Event,
    LinkAttached,
    LinkDetached,
    SaslFinished,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.gateway.connection import GatewayConnection
from partibus.gateway.dialogue import Request, read_request
from partibus.gateway.listener import Listener
from partibus.gateway.settings import GatewaySettings
from partibus.runtime.node import Node, Placement
from partibus.store.catalog import ROOT_RULE, Catalog, NamespaceSettings
from partibus.store.memory import MemoryStore
from partibus.testing.clock import ManualClock
from partibus.wire.codec import encode
from partibus.wire.performatives import Attach, Open, Source, Target

KEY = "cm9vdCBrZXk="
STORES = 2
# Turns of the loop after which everything that can happen has happened.
TURNS = 30


class HeldDisk:
    """Runs a store's work at once, or when it is let go."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.held = False
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def call(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._waiting.append((work, done))
        if not self.held:
            self.let_go()

    def let_go(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for work, done in waiting:
            result: Any
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to the caller, as a disk does
                result = error
            self._loop.call_soon(done, result)

    def close(self) -> None:
        self.let_go()


class Pipe(asyncio.Transport):
    """The gateway's end of an in-memory socket."""

    def __init__(self, protocol: GatewayConnection) -> None:
        super().__init__()
        self.protocol = protocol
        self.to_client = bytearray()
        self.reading = True
        self.full = False
        self.closed = False
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.to_client += data
        if len(self.to_client) > self.high and not self.full:
            self.full = True
            self.protocol.pause_writing()

    def take(self) -> bytes:
        data = bytes(self.to_client)
        self.to_client.clear()
        if self.full:
            self.full = False
            self.protocol.resume_writing()
        return data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.to_client)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol._loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class World:
    """The node, its clock, its disks and its gateway."""

    def __init__(self, path: Path, settings: GatewaySettings, profile: str = "standard") -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.catalog = Catalog.make(path, NamespaceSettings("test", STORES, profile), lambda: KEY)
        self.disks = [HeldDisk(self.loop) for _ in range(STORES)]
        self.node = Node(
            Placement(0, (), STORES),
            self.catalog,
            lambda _: MemoryStore(),
            lambda store: self.disks[store],
            self.clock,
            self.loop,
        )
        self.loop.run_until_complete(self.node.start())
        self.listener = Listener(self.node, settings, self.loop)
        self.clients: list[Client] = []

    def create_queue(self, name: str, **settings: Any) -> None:
        self.catalog.create_queue(QueueDescription(name, **settings), 0)
        self.node.refresh()

    def create_topic(self, name: str, *subscriptions: str, **settings: Any) -> None:
        self.catalog.create_topic(TopicDescription(name, **settings), 0)
        for each in subscriptions:
            self.catalog.create_subscription(name, SubscriptionDescription(each), 0)
        self.node.refresh()

    def put_rule(self, name: str, key: str, rights: Right, entity: str | None = None) -> None:
        self.catalog.put_access_rule(AccessRule(name, key, "", rights), entity)
        self.node.refresh()

    def connect(self, mechanism: str | None = "ANONYMOUS", response: bytes = b"") -> Client:
        client = Client(self, mechanism, response)
        self.clients.append(client)
        self.settle()
        return client

    def authorised(self, *queues: str) -> Client:
        """A client that has put a good token for the whole namespace."""
        client = self.connect()
        assert client.put_token("sb://host/", client.token("sb://host/")) == 202
        return client

    def settle(self) -> None:
        self._turn()
        while self.node._tasks:
            # Changes of the catalog are made by another thread.
            self.loop.run_until_complete(asyncio.wait(self.node._tasks))
            self._turn()

    def _turn(self) -> None:
        for _ in range(TURNS):
            self.loop.run_until_complete(asyncio.sleep(0))
            for client in self.clients:
                client.exchange()

    def advance(self, ms: int) -> None:
        """Let time pass; clients that have promised nothing stay silent."""
        self.clock.advance(ms)
        self.settle()

    def hold_disks(self) -> None:
        for disk in self.disks:
            disk.held = True

    def release_disks(self) -> None:
        for disk in self.disks:
            disk.let_go()
        self.settle()

    def close(self) -> None:
        self.release_disks()
        for client in self.clients:
            client.pipe.close()
        self.settle()
        self.loop.run_until_complete(self.node.stop())
        self.catalog.close()
        self.loop.close()


class Client:
    """A client of the gateway: the engine, and a note of everything that happened."""

    def __init__(self, world: World, mechanism: str | None, response: bytes) -> None:
        self.world = world
        protocol = world.listener.protocol()
        assert isinstance(protocol, GatewayConnection)
        self.pipe = Pipe(protocol)
        self.engine = Connection.client(
            Open(container_id="client", hostname="host"),
            limits=Limits(incoming_window=100_000),
            now_ms=world.clock.now_ms(),
            mechanism=mechanism,
            response=response,
        )
        self.session = self.engine.begin()
        self.events: list[Event] = []
        self.requests: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
        self._asked = 0

    def exchange(self) -> None:
        data = self.engine.data_to_send()
        if data and not self.pipe.closed:
            self.pipe.protocol.data_received(data)
        data = self.pipe.take()
        if data:
            self.events += self.engine.receive_data(data, self.world.clock.now_ms())

    # Links ------------------------------------------------------------------------------------

    def sender(self, address: str, **fields: Any) -> Any:
        attach = Attach(
            name=fields.pop("name", f"s{len(self.events)}-{address}"),
            source=Source(address="client"),
            target=Target(address=address),
            **fields,
        )
        link = self.engine.attach_sender(fields.pop("session", self.session), attach)
        self.world.settle()
        return link

    def receiver(self, address: str, credit: int = 0, **fields: Any) -> Any:
        attach = Attach(
            name=fields.pop("name", f"r{len(self.events)}-{address}"),
            source=fields.pop("source", Source(address=address)),
            target=Target(address=fields.pop("target", "client")),
            **fields,
        )
        link = self.engine.attach_receiver(fields.pop("session", self.session), attach)
        if credit:
            link.grant(credit)
        self.world.settle()
        return link

    # What happened ----------------------------------------------------------------------------

    def all(self, kind: type, link: Any = None) -> list[Any]:
        return [
            event
            for event in self.events
            if type(event) is kind and (link is None or event.link is link)
        ]

    def error_of(self, link: Any) -> tuple[str, str]:
        """The condition and text with which a link was detached."""
        (event,) = self.all(LinkDetached, link)
        return event.error.condition, event.error.description

    def answer_of(self, link: Any) -> Attach:
        (event,) = self.all(LinkAttached, link)
        attach: Attach = event.attach
        return attach

    def deliveries(self, link: Any) -> list[Any]:
        return [each for event in self.all(Deliveries, link) for each in event.deliveries]

    def outcomes(self, link: Any) -> dict[int, Any]:
        """The outcome of every delivery that has one, by delivery-id."""
        return {
            number: event.state
            for event in self.all(Settlements, link)
            for number, _ in event.deliveries
        }

    @property
    def closed(self) -> list[Closed]:
        return self.all(Closed)

    @property
    def sasl_ok(self) -> bool:
        return bool(self.all(SaslFinished)[0].ok)

    # Requests ---------------------------------------------------------------------------------

    def token(self, uri: str, rule: str = ROOT_RULE, key: str = KEY, seconds: int = 3600) -> str:
        made: str = generate_sas_token(uri, rule, key, self.world.clock.now_ms() // 1000 + seconds)
        return made

    def put_token(self, name: str, token: object, **properties: object) -> int:
        """Put a token; the status code of the answer."""
        answer = self.ask("$cbs", {"operation": "put-token", "name": name, **properties}, token)
        status: int = answer.properties["status-code"]  # type: ignore[assignment]
        return status

    def ask(
        self,
        address: str,
        properties: dict[str, object],
        body: object,
        message_id: object = None,
    ) -> Request:
        """Send a request and wait for its response."""
        if address not in self.requests:
            self.responses[address] = self.receiver(address, credit=1000)
            self.requests[address] = self.sender(address)
        self._asked += 1
        fields: list[object] = [f"request-{self._asked}" if message_id is None else message_id]
        payload = (
            b"\x00\x53\x73" + encode(fields)
            + b"\x00\x53\x74" + encode(properties)
            + b"\x00\x53\x77" + encode(body)
        )  # fmt: skip
        before = len(self.deliveries(self.responses[address]))
        self.requests[address].send(self._asked.to_bytes(4, "big"), payload)
        self.world.settle()
        (answer,) = self.deliveries(self.responses[address])[before:]
        return read_response(answer.payload)


def read_response(payload: bytes) -> Request:
    """A response; its correlation-id stands where a request has its message-id."""
    from partibus.wire.codec import decode

    properties, _ = decode(payload, 0)
    response = read_request(payload)
    response.message_id = properties.value[5]
    return response


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "catalog.sqlite", GatewaySettings("test"))
    yield world
    world.close()


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[[str], World]]:
    """A world whose namespace has the profile that is named."""
    made: list[World] = []

    def make(profile: str) -> World:
        made.append(World(tmp_path / f"{profile}.sqlite", GatewaySettings("test"), profile))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def dev_world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "catalog.sqlite", GatewaySettings("test", dev=True))
    yield world
    world.close()


def message(body: bytes = b"x", **_: object) -> bytes:
    """A message with one data section."""
    return b"\x00\x53\x75" + encode(body)


@pytest.fixture
def make_message() -> Callable[..., bytes]:
    return message
