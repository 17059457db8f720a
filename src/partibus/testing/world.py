"""A namespace of several nodes in one process, with time, disks and hops in a test's hand.

The nodes are the real ones. Their stores lie on simulated disks that outlive them, their commits
take as long as they are told, their hops can be delayed and cut, and a node can crash and come
back. With the same seed everything happens the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from partibus.broker.descriptions import Entity, QueueDescription
from partibus.runtime.entropy import Entropy
from partibus.runtime.hop import RemotePeer
from partibus.runtime.node import Node, Placement
from partibus.runtime.receiving import ReceiveCache
from partibus.store import Store
from partibus.store.catalog import Catalog, NamespaceSettings
from partibus.testing.disk import Chances, SimulatedDisk
from partibus.testing.hops import SimulatedNetwork
from partibus.testing.loop import LoopClock, VirtualLoop

Done = Callable[[Any], None]


class Lane:
    """A runtime.disk.Disk in virtual time: runs a store's calls in order, each in its own time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_ms: Callable[[], float] = lambda: 0
    ) -> None:
        self._loop = loop
        self._delay_ms = delay_ms
        self._asked: deque[tuple[Callable[[], Any], Done]] = deque()
        self._busy = False
        self._held = False
        self._dead = False

    @property
    def waiting(self) -> int:
        """Calls that were not carried out yet."""
        return len(self._asked)

    def call(self, work: Callable[[], Any], done: Done) -> None:
        """Run the work when its turn has come, then call back."""
        self._asked.append((work, done))
        self._begin()

    def hold(self) -> None:
        """Stall: nothing is carried out until release()."""
        self._held = True

    def release(self) -> None:
        """Go on."""
        self._held = False
        self._begin()

    def die(self) -> None:
        """The process is gone: nothing is carried out, and nobody is called, any more."""
        self._dead = True

    def close(self) -> None:
        """Finish what was asked for, then stop."""
        while self._asked and not self._dead:
            work, _ = self._asked.popleft()
            work()
        self._dead = True

    def _begin(self) -> None:
        if self._asked and not (self._busy or self._held or self._dead):
            self._busy = True
            self._loop.call_later(self._delay_ms() / 1000, self._finish)

    def _finish(self) -> None:
        self._busy = False
        if self._dead or self._held or not self._asked:
            return
        work, done = self._asked.popleft()
        result: Any
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who decides
            result = error
        self._loop.call_soon(self._answer, done, result)
        self._begin()

    def _answer(self, done: Done, result: Any) -> None:
        if not self._dead:
            done(result)


class World:
    """Nodes, stores and hops. Everything that a crash leaves lies here."""

    def __init__(
        self,
        loop: VirtualLoop,
        folder: Path,
        *queues: QueueDescription,
        nodes: int = 1,
        stores: int = 4,
        seed: int = 0,
        chances: Chances | None = None,
        disk_ms: Callable[[Random], float] = lambda _: 0,
        hop_ms: Callable[[Random], float] | None = None,
        receive_cache: ReceiveCache = ReceiveCache.LEAN,
        disks: Sequence[SimulatedDisk] = (),
    ) -> None:
        self.loop = loop
        self._receive_cache = receive_cache
        # Chance from a seed is the purpose here; nothing secret comes of it.
        self.random = Random(seed)  # noqa: S311
        self._folder = folder
        self._disk_ms = disk_ms
        self.network = None
        if hop_ms is not None:
            self.network = SimulatedNetwork(loop, lambda: hop_ms(self.random))
            loop.network = self.network
        settings = NamespaceSettings("world", stores, "standard", namespace_id="world")
        self.catalog = Catalog.make(folder / "catalog.sqlite", settings, lambda: "key")
        for queue in queues:
            self.catalog.create_queue(queue, 0)
        self.disks = disks or [SimulatedDisk(seed + each, chances) for each in range(stores)]
        self._stores = stores
        hops = [f"unix:{folder / f'hop-{index}'}" for index in range(nodes)]
        self.addresses = tuple(hops) if nodes > 1 else ()
        self.lanes: dict[int, Lane] = {}
        self._clocks: dict[int, LoopClock] = {}
        self._catalogs: dict[int, Catalog] = {}
        self.nodes: dict[int, Node] = {}

    async def start(self) -> World:
        """Start all nodes, and let them find each other."""
        for index in range(max(len(self.addresses), 1)):
            await self.start_node(index)
        await self.until(self.connected)
        return self

    def connected(self) -> bool:
        """Whether every node reaches every other."""
        return all(
            node.peer(other).up for node in self.nodes.values() for other in range(len(self.nodes))
        )

    async def start_node(
        self, index: int, open_store: Callable[[int], Store] | None = None
    ) -> None:
        """Start a node, or start it again after a crash."""
        self._clocks[index] = LoopClock(self.loop)
        self._catalogs[index] = Catalog.open(self._folder / "catalog.sqlite")
        node = Node(
            Placement(index, self.addresses, self._stores),
            self._catalogs[index],
            open_store or (lambda store: self.disks[store].open()),
            self._lane,
            self._clocks[index],
            self.loop,
            Entropy(self.random.randbytes),
            receive_cache=self._receive_cache,
        )
        await node.start()
        self.nodes[index] = node

    def _lane(self, store: int) -> Lane:
        self.lanes[store] = Lane(self.loop, lambda: self._disk_ms(self.random))
        return self.lanes[store]

    def crash(self, index: int) -> None:
        """A node is gone from one moment to the next; its disks keep what was committed."""
        node = self.nodes.pop(index)
        self._clocks[index].stop()
        self._catalogs[index].close()
        for store in node.host.drivers:
            self.lanes[store].die()
            self.disks[store].crash()
        assert self.network is not None, "only simulated hops can be taken from a node"
        self.network.forget(self.addresses[index].removeprefix("unix:"))
        for other in range(len(self.addresses)):
            peer = node.peer(other)
            if isinstance(peer, RemotePeer):
                peer.close()

    def cut_power(self) -> None:
        """All nodes are gone, from one moment to the next."""
        for index in list(self.nodes):
            self.crash(index)

    async def stop(self) -> None:
        """Stop all nodes in good order."""
        for index, node in self.nodes.items():
            await node.stop()
            self._clocks[index].stop()
            self._catalogs[index].close()
        self.nodes.clear()
        self.catalog.close()

    async def until(self, true: Callable[[], bool], seconds: float = 60) -> None:
        """Let simulated time pass until something is so."""
        end_s = self.loop.time() + seconds
        while not true():
            assert self.loop.time() < end_s, "it never came true"
            await asyncio.sleep(0.001)

    async def settle(self) -> None:
        """Let everything happen that needs no more than a few moments."""
        await asyncio.sleep(0.05)

    def entity(self, name: str) -> Entity:
        """The queue of this name."""
        found = self.catalog.load().find(name)
        assert found is not None
        return found

    def store_of(self, name: str, partition: int) -> int:
        """Where a fragment of a queue lies."""
        return self.entity(name).store_of(partition, self._stores)
