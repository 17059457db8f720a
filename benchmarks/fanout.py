"""What the subscriptions of a topic cost per message: 1, 10 and 100 of them, beside a plain queue.

    python -m benchmarks.fanout [--messages 2000] [--size 1000] [--rounds 3]

One node with stores in files, without sockets: messages are sent in turns of 64, received by every
subscription and completed. Figures are microseconds of CPU of the process per message, for all its
copies together: the best of some rounds, each of which runs all cases once. On disk is how much the
store's file grew per message, with all copies still there. Ends with 1 where a copy among 100
costs more than half as much again as one among 10.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from partibus.app import COLLECT_AFTER
from partibus.broker.descriptions import QueueDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.runtime.clock import SystemClock, clock_base_ms
from partibus.runtime.disk import ThreadDisk
from partibus.runtime.node import Node, Placement
from partibus.runtime.receiving import ReceiveMode
from partibus.store.catalog import Catalog, NamespaceSettings
from partibus.store.sqlite import SqliteStore
from partibus.testing.door import Door
from partibus.testing.messages import incoming

COUNTS = (1, 10, 100)
TURN = 64
# A copy among 100 against one among 10: more than this is not "linear, but for noise".
MARGINAL_RATIO_MAX = 1.5
PLAIN = "queue"

Figures = dict[str, tuple[float, float, float]]


class Bench:
    """A node of one store, with a queue and topics of 1, 10 and 100 subscriptions."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.sqlite"
        self.catalog = Catalog.make(
            folder / "catalog.sqlite", NamespaceSettings("bench", 1, "unlimited"), lambda: "key"
        )
        self.catalog.create_queue(QueueDescription(PLAIN), 1)
        for count in COUNTS:
            self.catalog.create_topic(TopicDescription(f"topic-{count}"), 1)
            for number in range(count):
                described = SubscriptionDescription(f"s{number}")
                self.catalog.create_subscription(f"topic-{count}", described, 1)
        loop = asyncio.get_running_loop()
        self.node = Node(
            Placement(0, (), 1),
            self.catalog,
            lambda _: SqliteStore(self.path, "bench"),
            lambda _: ThreadDisk(loop, "bench"),
            SystemClock(loop, clock_base_ms()),
            loop,
        )

    def sources(self, count: int) -> list[str]:
        """Where the copies are received from."""
        return [f"topic-{count}/Subscriptions/s{n}" for n in range(count)] if count else [PLAIN]

    async def send(self, count: int, messages: int, body: bytes) -> None:
        door = Door(self.node, f"topic-{count}" if count else PLAIN)
        for _ in range(messages // TURN):
            sending = door.sending(*([incoming(body)] for _ in range(TURN)))
            assert not any(await sending.refusals())

    async def receive(self, count: int, messages: int) -> None:
        for source in self.sources(count):
            inbox = Door(self.node, source).receiver(ReceiveMode.PEEK_LOCK)
            for _ in range(messages // TURN):
                assert not await inbox.door.settle(await inbox.take(TURN))
            inbox.close()

    def bytes_used(self) -> int:
        """Pages in use; the file itself keeps free ones for later."""
        store = self.node.host.drivers[0]._files
        assert isinstance(store, SqliteStore)
        pages = store._connection.pragma("page_count") - store._connection.pragma("freelist_count")
        return int(pages) * 4096


async def cpu_of(work: Callable[[], Awaitable[None]], messages: int) -> float:
    """Microseconds of CPU per message."""
    before = time.process_time()
    await work()
    return (time.process_time() - before) / messages * 1e6


async def one_round(messages: int, size: int, best: Figures) -> None:
    """All cases once, in a new file; what is better than before is kept."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await bench.node.start()
        body = bytes(size)
        for count in (0, *COUNTS):
            # As many copies for all, and enough turns for the log to come round.
            sent = max(messages // max(count // 10, 1) // TURN, 4) * TURN
            before = bench.bytes_used()
            sending = await cpu_of(lambda c=count, n=sent: bench.send(c, n, body), sent)  # type: ignore[misc]
            grown = (bench.bytes_used() - before) / sent
            receiving = await cpu_of(lambda c=count, n=sent: bench.receive(c, n), sent)  # type: ignore[misc]
            name = f"{count} subscriptions" if count else PLAIN
            old = best.get(name, (1e9, 1e9, 1e9))
            best[name] = min(old[0], sending), min(old[1], receiving), min(old[2], grown)
        await bench.node.stop()
        bench.catalog.close()


def main() -> int:
    """Measure, print, and say whether copies stay as cheap as they were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # As a node does it: many entries live long, and looking through them again costs most.
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    best: Figures = {}
    for _ in range(options.rounds):
        asyncio.run(one_round(options.messages, options.size, best))
    print(f"{'':18} {'publish':>9} {'receive and complete':>22} {'bytes on disk':>14}")
    for name, (sending, receiving, grown) in best.items():
        print(f"{name:18} {sending:9.1f} {receiving:22.1f} {grown:14.0f}")
    one, ten, hundred = (best[f"{count} subscriptions"] for count in COUNTS)
    worst = 0.0
    for step in (0, 1):
        among_ten = (ten[step] - one[step]) / 9
        worst = max(worst, (hundred[step] - ten[step]) / 90 / among_ten)
    print(f"a copy among 100 costs {worst:.2f} times one among 10")
    return int(worst > MARGINAL_RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
