"""The simulated namespace with sessions: receivers accept what is there, and lose it again.

Every message belongs to a session, every receiver takes the next available one on its node or
claims one by name. Whatever fails meanwhile: nothing is lost, nothing completed comes back, and
the messages of a session come in order to whoever holds it.
"""

from __future__ import annotations

import asyncio

from partibus.broker.descriptions import QueueDescription
from partibus.broker.settlement import COMPLETE
from partibus.testing.checker import Wrong
from partibus.testing.door import Door
from partibus.testing.session_door import SessionInbox
from partibus.testing.simulation import ANSWER_S, LOCK_MS, NODES, Simulation

SESSIONS = tuple("abcdefgh")


class SessionSimulation(Simulation):
    """One history of queues with sessions."""

    queues = (
        QueueDescription(
            "p",
            lock_ms=LOCK_MS,
            max_delivery_count=1000,
            enable_partitioning=True,
            requires_session=True,
        ),
        QueueDescription("c", lock_ms=LOCK_MS, max_delivery_count=1000, requires_session=True),
    )
    keys = SESSIONS
    key_is_session = True
    # A session is one receiver's, so its order holds however many receivers there are.
    forgiven: frozenset[Wrong] = frozenset()

    def begin(self) -> None:
        """Two receivers for each queue on each node."""
        self.lives = 0
        self.receivers = [(node, queue) for node in range(NODES) for queue in ("p", "p", "c", "c")]

    async def receive(self, index: int, queue: str) -> None:
        """Take a session, work on it for a while, and leave it in one way or another."""
        random = self.random
        while not self.is_over:
            self.lives += 1
            node = await self.node(index)
            name = random.choice((None, None, None, random.choice(SESSIONS)))
            seen = self.seen_by(f"{queue}@{index}.{self.lives}")
            inbox = SessionInbox(Door(node, queue), name, seen=seen)
            for _ in range(random.randint(3, 30)):
                if self.is_over or inbox.lost or self.world.nodes.get(index) is not node:
                    break
                inbox.credit(random.randint(1, 8))
                await asyncio.sleep(random.expovariate(4))
                await self.settle(queue, inbox)
            if self.world.nodes.get(index) is node:
                if random.random() < 0.2:
                    # It hangs, and loses its lock to time.
                    await asyncio.sleep(LOCK_MS / 1000)
                await self.settle(queue, inbox)
                inbox.close()
                for got in inbox.got:
                    self.record.let_go(self.deliveries[got.token])
                inbox.got = []

    async def drain(self, queue: str) -> None:
        """Take every session that is left, and complete it."""
        door = Door(self.world.nodes[0], queue)
        while True:
            inbox = SessionInbox(door, timeout_ms=3_000, seen=self.seen_by(f"{queue}@end"))
            await inbox.settled(ANSWER_S)
            if inbox.lost:
                inbox.close()
                return
            inbox.credit(1000)
            await asyncio.sleep(1)
            got, inbox.got = inbox.got, []
            assert got, f"'{inbox.session}' was offered and has nothing"
            assert await door.settle(got, COMPLETE) == {}
            for each in got:
                self.record.completed(self.deliveries[each.token])
            inbox.close()
            await asyncio.sleep(0.1)
