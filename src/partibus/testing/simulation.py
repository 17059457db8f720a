"""A whole namespace from a seed: clients at work while disks, hops and nodes fail under them.

Two real nodes on simulated disks and hops. Clients write down what they saw, in a Record that
knows nothing of brokers; when everything has calmed down and the queues are drained, the record
tells whether something was lost, came back, or came in the wrong order, and the counters of
every fragment must add up. The same seed gives the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random

from partibus.broker.descriptions import QueueDescription
from partibus.broker.message import Incoming
from partibus.broker.records import Counters
from partibus.broker.settlement import ABANDON, COMPLETE, RELEASE
from partibus.runtime.driver import Driver
from partibus.runtime.node import Node
from partibus.testing.checker import Delivery, Record, Wrong
from partibus.testing.disk import SimulatedDisk
from partibus.testing.door import Door, Got, Inbox
from partibus.testing.loop import VirtualLoop
from partibus.testing.messages import incoming
from partibus.testing.session_door import SessionInbox
from partibus.testing.world import World

NODES = 2
STORES = 4
LOCK_MS = 15_000
SECONDS = 40.0
# Longer than a stall, a restart and a change of way together.
ANSWER_S = 20.0
KEYS = (None, None, None, "a", "b", "c", "d")
# Many deliveries are allowed: what is counted here is messages, not dead letters.
QUEUES = (
    QueueDescription("p", lock_ms=LOCK_MS, max_delivery_count=1000, enable_partitioning=True),
    QueueDescription("c", lock_ms=LOCK_MS, max_delivery_count=1000),
)


def disk_ms(random: Random) -> float:
    """A commit takes a few milliseconds, and now and then a second and more."""
    return random.expovariate(1 / 3) if random.random() > 0.01 else random.uniform(0, 6000)


class Simulation:
    """One history."""

    queues: tuple[QueueDescription, ...] = QUEUES
    # What messages are kept together by, and whether that is a session.
    keys: tuple[str | None, ...] = KEYS
    key_is_session = False
    # What one receiver's cache held and gave back comes late to another.
    forgiven: frozenset[Wrong] = frozenset({Wrong.OUT_OF_ORDER})

    def __init__(self, loop: VirtualLoop, folder: Path, seed: int) -> None:
        self.loop = loop
        # Chance from a seed is the purpose here; nothing secret comes of it.
        self.random = Random(seed)  # noqa: S311
        self.record = Record()
        self.deliveries: dict[bytes, Delivery] = {}
        self.is_over = False
        self.world = World(
            loop,
            folder,
            *self.queues,
            nodes=NODES,
            stores=STORES,
            seed=seed,
            disk_ms=lambda random: 1 if self.is_over else disk_ms(random),
            hop_ms=lambda random: random.expovariate(1 / 2),
        )
        self.sent = 0
        # Either several receivers for each queue, or one for each, whose order is looked at.
        self.competing = seed % 2 == 0
        everywhere = [(node, queue) for node in range(NODES) for queue in ("p", "c")]
        self.receivers = everywhere if self.competing else [(0, "p"), (1, "c")]
        self.begin()

    def begin(self) -> None:
        """What another kind of history changes before it begins."""

    async def run(self) -> list[str]:
        """Live through it; returns what was wrong."""
        await self.world.start()
        clients = [self.send(0), self.send(1), self.send(1)]
        clients += [self.receive(node, queue) for node, queue in self.receivers]
        working = [self.loop.create_task(client) for client in clients]
        await self.disturb()
        self.is_over = True
        await asyncio.gather(*working)
        # Locks that nobody settled come back.
        await asyncio.sleep(LOCK_MS / 1000 + ANSWER_S)
        for queue in ("p", "c"):
            await self.drain(queue)
        faults = self.record.faults()
        if self.competing:
            faults = [fault for fault in faults if fault.wrong not in self.forgiven]
        wrong = [str(fault) for fault in faults]
        wrong += self.audit()
        await self.world.stop()
        return wrong

    # Clients ------------------------------------------------------------------------------------

    async def node(self, index: int) -> Node:
        """The node as it is now; waits where it is being restarted."""
        await self.world.until(lambda: index in self.world.nodes)
        return self.world.nodes[index]

    async def send(self, index: int) -> None:
        """Send messages and batches, with and without keys, each once."""
        random = self.random
        while not self.is_over:
            await asyncio.sleep(random.expovariate(5))
            queue = random.choice("pc")
            key = random.choice(self.keys)
            door = self.entrance(await self.node(index), queue)
            sizes = [random.choice((1, 1, 1, 5)) for _ in range(random.randint(1, 6))]
            batches = [[self.new_id(queue, key) for _ in range(size)] for size in sizes]
            sending = door.sending(*([self.message(each, key) for each in ids] for ids in batches))
            await asyncio.wait(sending.answers.values(), timeout=ANSWER_S)
            for ids, answer in zip(batches, sending.answers.values(), strict=True):
                if answer.done() and answer.result() is None:
                    for each in ids:
                        self.record.accepted(each)

    def entrance(self, node: Node, queue: str) -> Door:
        """Where messages are sent that are to be received from a queue."""
        return Door(node, queue)

    def message(self, message_id: str, key: str | None) -> Incoming:
        if self.key_is_session:
            return incoming(b"", message_id=message_id, session=key)
        return incoming(b"", message_id=message_id, key=key)

    def new_id(self, queue: str, key: str | None) -> str:
        self.sent += 1
        message_id = f"{queue}{self.sent}"
        self.record.sending(message_id, None if key is None else f"{queue}/{key}")
        return message_id

    async def receive(self, index: int, queue: str) -> None:
        """Receive in portions; complete most, abandon some, forget a few."""
        random = self.random
        lives = 0
        while not self.is_over:
            lives += 1
            node = await self.node(index)
            inbox = Door(node, queue).receiver(seen=self.seen_by(f"{queue}@{index}.{lives}"))
            for _ in range(random.randint(3, 30)):
                if self.is_over or self.world.nodes.get(index) is not node:
                    break
                inbox.credit(random.randint(1, 20))
                await asyncio.sleep(random.expovariate(4))
                await self.settle(queue, inbox)
            if self.world.nodes.get(index) is node:
                inbox.credit(0)
                inbox.close()
                await self.settle(queue, inbox)
                # What was cached goes back before another receiver asks.
                await asyncio.sleep(1)

    def seen_by(self, receiver: str) -> Callable[[Got], None]:
        def seen(got: Got) -> None:
            read = got.read
            self.deliveries[got.token] = self.record.received(
                receiver, read.message_id, read.sequence, read.deliveries
            )

        return seen

    async def settle(self, queue: str, inbox: Inbox | SessionInbox) -> None:
        got, inbox.got = inbox.got, []
        settlement = self.random.choice((COMPLETE, COMPLETE, COMPLETE, ABANDON, RELEASE, None))
        if settlement is not COMPLETE:
            for each in got:
                self.record.let_go(self.deliveries[each.token])
        if not got or settlement is None:
            return
        # A token names its fragment: any node settles.
        door = Door(await self.node(self.random.randrange(NODES)), queue)
        settling = asyncio.ensure_future(door.settle(got, settlement))
        done, _ = await asyncio.wait([settling], timeout=ANSWER_S)
        refused: Collection[bytes] = settling.result() if done else [each.token for each in got]
        # A node that crashed answers nothing, for ever.
        settling.cancel()
        for each in got:
            if each.token in refused:
                self.record.let_go(self.deliveries[each.token])
            elif settlement is COMPLETE:
                self.record.completed(self.deliveries[each.token])

    async def drain(self, queue: str) -> None:
        """Take everything that is left, and complete it."""
        inbox = Door(self.world.nodes[0], queue).receiver(seen=self.seen_by(f"{queue}@end"))
        while await inbox.drain(500):
            got, inbox.got = inbox.got, []
            assert await inbox.door.settle(got) == {}
            for each in got:
                self.record.completed(self.deliveries[each.token])
        inbox.close()

    # Disturbances -------------------------------------------------------------------------------

    async def disturb(self) -> None:
        """One thing after another goes wrong, and right again."""
        kinds = [self.failed_commit, self.crash_in_commit, self.cut, self.crash, self.stall]
        end_s = self.loop.time() + SECONDS
        while self.loop.time() < end_s:
            await asyncio.sleep(self.random.uniform(0.5, 4))
            await self.random.choice(kinds)()

    async def stall(self) -> None:
        """A disk takes its time. No excuse for anything."""
        lane = self.world.lanes[self.random.randrange(STORES)]
        lane.hold()
        await asyncio.sleep(self.random.uniform(0, 6))
        lane.release()

    async def failed_commit(self) -> None:
        with self.record.disturbance():
            disk = self.world.disks[self.random.randrange(STORES)]
            disk.fail()
            await self.next_commit(disk)
            await self.calm()

    async def crash_in_commit(self) -> None:
        with self.record.disturbance():
            disk = self.world.disks[self.random.randrange(STORES)]
            disk.crash_in_commit(keeps=self.random.random() < 0.5)
            await self.next_commit(disk)
            await self.calm()

    async def cut(self) -> None:
        assert self.world.network is not None
        with self.record.disturbance():
            self.world.network.cut()
            await self.calm()

    async def crash(self) -> None:
        index = self.random.randrange(NODES)
        with self.record.disturbance():
            self.world.crash(index)
            await asyncio.sleep(self.random.uniform(0, 5))
            await self.world.start_node(index)
            await self.calm()

    async def next_commit(self, disk: SimulatedDisk) -> None:
        commits = disk.commits
        await self.world.until(lambda: disk.commits > commits)

    async def calm(self) -> None:
        """Wait until everything is up again, and what was under way is answered."""
        await asyncio.sleep(self.random.uniform(1, 3))
        await self.world.until(self.world.connected)
        await self.world.until(lambda: all(node_is_up(node) for node in self.world.nodes.values()))
        await asyncio.sleep(1)

    # The books ----------------------------------------------------------------------------------

    def audit(self) -> list[str]:
        """Every fragment's counters must add up, and nothing may be left."""
        wrong = []
        for store, driver in self.drivers():
            for fragment in driver.fragments.values():
                counters = fragment.counters
                if not adds_up(counters) or counters.active or counters.bytes:
                    wrong.append(f"store {store} {fragment.key}: {counters}")
        return wrong

    def drivers(self) -> list[tuple[int, Driver]]:
        return [each for node in self.world.nodes.values() for each in node.host.drivers.items()]


def node_is_up(node: Node) -> bool:
    """Whether all of a node's stores are open."""
    return all(driver.up for driver in node.host.drivers.values())


def adds_up(counters: Counters) -> bool:
    """Whether everything that was accepted is accounted for."""
    left = counters.completed + counters.dead_lettered + counters.expired
    left += counters.forwarded + counters.discarded
    present = counters.active + counters.deferred + counters.scheduled
    return counters.accepted == left + present
