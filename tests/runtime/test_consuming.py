"""Reserved batches over crashes, in the simulated world: nothing is lost, and nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from partibus.broker.consuming import NOTE, read_consumer
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import Refusal
from partibus.broker.records import FragmentKey, SubQueue
from partibus.management.bulk.consuming import BulkConsuming
from partibus.management.side_process import SideProcess
from partibus.runtime.driver import Driver
from partibus.store import Store
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

QUEUE = QueueDescription("p", enable_partitioning=True)
MESSAGES = 60
BATCH = 7


class Spark:
    """A driver with its checkpoint and its sink, which outlive it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.start: dict[int, int] = {}
        self.end: dict[int, int] | None = None
        self.number = 0
        self.sink: dict[int, set[bytes]] = {}

    async def run(self) -> None:
        """Until nothing is left, or somebody pulls the plug."""
        consuming = BulkConsuming(self.world.nodes[0], cast(SideProcess, None))
        epoch = (await consuming.begin("p", "spark"))["epoch"]
        while True:
            if self.end is not None:
                found = await self._content()
                assert self.sink.setdefault(self.number, found) == found, "it is the same batch"
                # Between what the sink has and what the checkpoint says.
                await asyncio.sleep(0.002)
                self.start, self.end, self.number = self.end, None, self.number + 1
            told = await consuming.advance("p", "spark", epoch, self.start, BATCH)
            ends = {each["fragment"]: each["last"] for each in told["fragments"]}
            if all(self.start.get(each, 0) == last for each, last in ends.items()):
                return
            self.end = ends

    async def _content(self) -> set[bytes]:
        found: set[bytes] = set()
        assert self.end is not None
        entity = self.world.entity("p")
        for partition, upto in self.end.items():
            after = self.start.get(partition, 0)
            key = FragmentKey(entity.id, entity.incarnation, partition, SubQueue.ACTIVE)
            if upto > after:
                store = self.world.store_of("p", partition)
                found |= await _reserved(_driver(self.world, store), key, after, upto)
        return found


def _driver(world: World, store: int) -> Driver:
    (driver,) = [
        node.host.drivers[store] for node in world.nodes.values() if store in node.host.drivers
    ]
    return driver


async def _reserved(driver: Driver, key: FragmentKey, after: int, upto: int) -> set[bytes]:
    number = driver.fragments[key].number
    answered: asyncio.Future[set[bytes]] = asyncio.get_running_loop().create_future()

    def work(store: Store) -> set[bytes]:
        note = store.session_state(number, NOTE)
        assert note is not None
        (part,) = read_consumer(note).parts(after, upto)
        entries = store.find(number, part)
        assert len(entries) == upto - after
        return {entry.bare for entry in entries}

    def done(found: Any, refusal: Refusal | None) -> None:
        if not answered.done():
            answered.set_exception(refusal) if refusal else answered.set_result(found)

    driver.read(work, done)
    return await answered


@pytest.mark.parametrize("seed", range(6))
def test_S2_no_crash_of_reader_or_broker_loses_or_repeats_a_message(
    seed: int, tmp_path: Path
) -> None:
    chance = Random(seed)

    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = World(
            loop, folder, QUEUE, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 1, seed=seed
        )
        await world.start()
        bodies = [f"m{n}".encode() for n in range(MESSAGES)]
        batches = [[incoming(each, key=f"k{n % 9}")] for n, each in enumerate(bodies)]
        assert not any(await Door(world.nodes[0], "p").sending(*batches).refusals())
        spark = Spark(world)
        for _ in range(12):
            task = asyncio.ensure_future(spark.run())
            await asyncio.wait([task], timeout=chance.random() * 0.15)
            if task.done():
                task.result()
                break
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # Only the reader is killed, or the broker with it.
            if chance.random() < 0.7:
                world.cut_power()
                for index in (0, 1):
                    await world.start_node(index)
                await world.until(world.connected)
        await spark.run()

        read_bodies = [each for part in spark.sink.values() for each in part]
        assert len(read_bodies) == MESSAGES
        assert len(set(read_bodies)) == MESSAGES
        fragments = [
            fragment.counters
            for node in world.nodes.values()
            for driver in node.host.drivers.values()
            for fragment in driver.fragments.values()
        ]
        assert sum(each.completed for each in fragments) == MESSAGES
        assert sum(each.active for each in fragments) == sum(each.bytes for each in fragments) == 0
        await world.stop()

    run(tmp_path)


@simulated
async def test_S2_what_comes_back_from_a_reader_is_received_in_its_old_order(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, QueueDescription("c")).start()
    door = Door(world.nodes[0], "c")
    await door.send(*[f"{n}".encode() for n in range(9)])
    consuming = BulkConsuming(world.nodes[0], cast(SideProcess, None))
    epoch = (await consuming.begin("c", "r"))["epoch"]
    await consuming.advance("c", "r", epoch, {}, 5)
    await consuming.remove("c", "r")
    got = await door.receiver().drain(20)
    assert [int(each.body) for each in got] == list(range(9))
    await world.stop()
