"""A broker in this process, on a thread with a loop of its own, for clients that block."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.gateway.listener import Listener
from partibus.gateway.settings import GatewaySettings
from partibus.runtime.clock import SystemClock, clock_base_ms
from partibus.runtime.disk import ThreadDisk
from partibus.runtime.node import Node, Placement
from partibus.store.catalog import ROOT_RULE, Catalog, NamespaceSettings
from partibus.store.memory import MemoryStore

STORES = 4
KEY = "a2V5IGZvciB0ZXN0cyBvbmx5"


@dataclass(frozen=True)
class Namespace:
    """Where a namespace is reached, and a way to make queues in it."""

    catalog: Catalog
    port: int

    def connection_string(self, rule: str = ROOT_RULE, key: str = KEY) -> str:
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={rule};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )

    def create_queue(self, name: str, **settings: object) -> str:
        self.catalog.create_queue(QueueDescription(name, **settings), 0)  # type: ignore[arg-type]
        return name

    def put_rule(self, name: str, key: str, rights: Right, entity: str | None = None) -> None:
        self.catalog.put_access_rule(AccessRule(name, key, "", rights), entity)


class Broker:
    """A node with a gateway, started and stopped from another thread."""

    def __init__(self, path: Path, *, dev: bool = False) -> None:
        self.path = path
        self.dev = dev
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _start(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.node = Node(
            Placement(0, (), STORES),
            Catalog.open(self.path),
            lambda _: MemoryStore(),
            lambda store: ThreadDisk(self.loop, f"store {store}"),
            SystemClock(self.loop, clock_base_ms()),
            self.loop,
        )
        await self.node.start()
        self.listener = Listener(self.node, GatewaySettings("test", dev=self.dev), self.loop)
        await self.listener.listen(listening)

    async def _stop(self) -> None:
        await self.listener.close()
        await self.node.stop()


@pytest.fixture(scope="session")
def live_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    path = tmp_path_factory.mktemp("namespace") / "catalog.sqlite"
    catalog = Catalog.make(path, NamespaceSettings("test", STORES, "standard"), lambda: KEY)
    broker = Broker(path)
    broker.start()
    yield Namespace(catalog, broker.port)
    broker.stop()
    catalog.close()


_numbers = itertools.count()


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, live_namespace: Namespace) -> str:
    """A new queue of either kind."""
    name = f"queue-{next(_numbers)}"
    return live_namespace.create_queue(name, enable_partitioning=request.param)
