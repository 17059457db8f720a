"""A namespace in this process, for the tests of applications that talk to Service Bus.

One node with its own event loop in a thread of its own, and doors for AMQP and HTTP on free
loopback ports: the broker that `partibus serve` runs, without the processes around it. So the
official clients work against it unmodified, and a test can put its clock forward and take its
fragments down.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from partibus.broker.descriptions import Entity
from partibus.gateway.listener import Listener
from partibus.gateway.settings import GatewaySettings
from partibus.gateway.websocket import WebSocket
from partibus.management.server import HttpDoor
from partibus.management.settings import HttpSettings
from partibus.runtime.disk import ThreadDisk
from partibus.runtime.node import Node, Placement
from partibus.runtime.port import Doors, Port
from partibus.store import Store
from partibus.store.catalog import Catalog, NamespaceSettings
from partibus.store.memory import MemoryStore
from partibus.store.sqlite import SqliteStore
from partibus.store.staging import STAGING_NAME
from partibus.testing.declarations import (
    Filtering,
    connection_string,
    filter_rules_of,
    new_key,
    public_properties,
    queue_of,
    rule_of,
    subscription_of,
    topic_of,
)
from partibus.testing.movable_clock import MovableClock

STORES = 16
# Starting and stopping take milliseconds; a test that waits longer should fail, not hang.
PATIENCE_S = 30.0

T = TypeVar("T")


class Namespace:
    """A namespace of one's own. Use it as a context manager, or call start() and stop().

    With a directory its messages are on disk (SQLite) and survive restart(); without one they are
    in memory and do not.
    """

    def __init__(self, directory: Path | None = None, *, profile: str = "standard") -> None:
        self._scratch = None if directory else tempfile.TemporaryDirectory(prefix="partibus-")
        self._directory = directory or Path(self._scratch.name if self._scratch else "")
        self._durable = directory is not None
        self._settings = NamespaceSettings("test", STORES, profile, namespace_id="test")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="partibus namespace", daemon=True
        )
        self._thread.start()
        self.clock = MovableClock(self._loop)
        self._catalog: Catalog | None = None
        self._node: Node | None = None
        self._listener: Listener | None = None
        self._door: HttpDoor | None = None
        self._doorway: Port | None = None
        # For AMQP and for HTTP.
        self.port = 0

    # Life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Serve. The port stays the same over restarts, so connection strings stay valid."""
        self._run(self._start())

    def stop(self) -> None:
        """Stop serving, as a broker does that is shut down: what was accepted is on disk."""
        if self._node is not None:
            self._run(self._stop())

    def restart(self) -> None:
        """Stop and serve again. Locks end; messages are kept where there is a directory."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop for good, and leave nothing behind."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Namespace:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What a test uses -------------------------------------------------------------------------

    @property
    def http_port(self) -> int:
        """Where HTTP is spoken: on the same port as AMQP."""
        return self.port

    @property
    def connection_string(self) -> str:
        """For ServiceBusClient.from_connection_string: everything is allowed with it."""
        rule = self._on_loop(lambda: self._running().snapshot.rules_of()[0])
        return connection_string(self.port, rule)

    def create_access_rule(self, name: str, *rights: str, queue: str | None = None) -> str:
        """A rule with these rights ("Send", "Listen", "Manage"); returns its connection string."""
        rule = rule_of(name, rights)
        self._change(lambda catalog: catalog.put_access_rule(rule, queue))
        return connection_string(self.port, rule, queue)

    def create_queue(self, name: str, **properties: object) -> str:
        """Make a queue; returns its name.

        Properties have the names of the administration client (`lock_duration`,
        `max_delivery_count`, `enable_partitioning`); durations are timedeltas or ISO 8601.
        """
        description = queue_of(name, properties, self._settings.profile)
        self._change(lambda catalog: catalog.create_queue(description, self.clock.now_ms()))
        return name

    def update_queue(self, name: str, **properties: object) -> None:
        """Change properties of a queue, named as in create_queue (`status="SendDisabled"`)."""
        public = public_properties(properties)
        self._change(lambda catalog: catalog.update_queue(name, public, self.clock.now_ms()))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages."""
        self._change(lambda catalog: catalog.delete_queue(name, self.clock.now_ms()))

    def create_topic(self, name: str, **properties: object) -> str:
        """Make a topic, with properties named as in create_queue; returns its name."""
        description = topic_of(name, properties, self._settings.profile)
        self._change(lambda catalog: catalog.create_topic(description, self.clock.now_ms()))
        return name

    def update_topic(self, name: str, **properties: object) -> None:
        """Change properties of a topic."""
        public = public_properties(properties)
        self._change(lambda catalog: catalog.update_topic(name, public, self.clock.now_ms()))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its subscriptions and their messages."""
        self._change(lambda catalog: catalog.delete_topic(name, self.clock.now_ms()))

    def create_subscription(
        self,
        topic: str,
        name: str,
        rules: Mapping[str, Filtering] | None = None,
        **properties: object,
    ) -> str:
        """Make a subscription; returns its name.

        Rules by their names: an SQL expression, or what the configuration file says of a rule.
        Without any said, it takes every message.
        """
        description = subscription_of(topic, name, properties, self._settings.profile)
        made = filter_rules_of(rules)
        self._change(
            lambda catalog: catalog.create_subscription(
                topic, description, self.clock.now_ms(), made
            )
        )
        return name

    def update_subscription(self, topic: str, name: str, **properties: object) -> None:
        """Change properties of a subscription (`status="ReceiveDisabled"`)."""
        public, now_ms = public_properties(properties), self.clock.now_ms()
        self._change(lambda catalog: catalog.update_subscription(topic, name, public, now_ms))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription with its messages."""
        now_ms = self.clock.now_ms()
        self._change(lambda catalog: catalog.delete_subscription(topic, name, now_ms))

    def fragment(self, queue: str, partition: int) -> FragmentSwitch:
        """A fragment of a queue by its partition id: 1 to 16, or 0 for a conventional queue."""
        entity = self._on_loop(lambda: self._running().resolve(queue)[0])
        if partition not in entity.partitions:
            raise ValueError(f"'{queue}' has the partitions {list(entity.partitions)}")
        return FragmentSwitch(self, entity, partition)

    def set_fragment(self, entity: Entity, partition: int, *, down: bool) -> None:
        """Take a fragment out of service or put it back; `fragment` says it shorter."""
        self._on_loop(lambda: self._running().host.set_down(entity.id, partition, down))

    # On the loop ------------------------------------------------------------------------------

    async def _start(self) -> None:
        assert self._node is None, "the namespace is running"
        self._catalog = Catalog.make(self._directory / "catalog.sqlite", self._settings, new_key)
        self._node = Node(
            Placement(0, (), STORES),
            self._catalog,
            self._open_store,
            lambda store: ThreadDisk(self._loop, f"partibus store {store}"),
            self.clock,
            self._loop,
        )
        await self._node.start()
        self._listener = Listener(
            self._node, GatewaySettings(self._settings.name), self._loop, self.clock.system
        )
        self._door = HttpDoor(
            self._node,
            HttpSettings(self._settings.name),
            self._loop,
            self.clock.system,
            store_paths=[self._store_path(each) for each in range(STORES)] if self._durable else (),
            staging=self._directory / STAGING_NAME if self._durable else None,
        )
        websocket = partial(WebSocket, self._listener.protocol, self._loop)
        doors = Doors(self._listener.protocol, self._door.protocol, websocket)
        self._doorway = Port(doors, self._loop)
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._doorway.listen(listening)

    def _open_store(self, number: int) -> Store:
        if not self._durable:
            return MemoryStore()
        return SqliteStore(self._store_path(number), f"test/{number}")

    def _store_path(self, number: int) -> Path:
        return self._directory / f"store-{number:02}.sqlite"

    async def _stop(self) -> None:
        node, catalog, listener, door = self._running(), self._catalog, self._listener, self._door
        doorway, self._doorway = self._doorway, None
        self._node = self._catalog = self._listener = self._door = None
        assert listener is not None
        assert catalog is not None
        assert door is not None
        assert doorway is not None
        await doorway.close()
        # Nobody waits for the goodbyes of clients that a test has left open.
        for connection in list(listener.connections):
            connection.abort()
        for other in list(door.connections):
            other.abort()
        await listener.close()
        await door.close()
        await node.stop()
        catalog.close()

    def _running(self) -> Node:
        assert self._node is not None, "the namespace is not running"
        return self._node

    def _change(self, change: Callable[[Catalog], object]) -> None:
        def on_loop() -> None:
            node = self._running()
            assert self._catalog is not None
            change(self._catalog)
            node.refresh()

        self._on_loop(on_loop)

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._run(run())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)


class FragmentSwitch:
    """One fragment of a queue, to be taken down and put up again."""

    def __init__(self, namespace: Namespace, entity: Entity, partition: int) -> None:
        self._namespace = namespace
        self._entity = entity
        self._partition = partition

    def down(self) -> None:
        """As if its store were unavailable: pinned sends are refused, its messages wait."""
        self._namespace.set_fragment(self._entity, self._partition, down=True)

    def up(self) -> None:
        """Available again, with all it had."""
        self._namespace.set_fragment(self._entity, self._partition, down=False)
