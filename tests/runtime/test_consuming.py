"""Reserved batches over crashes, in the simulated world: nothing is lost, and nothing changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from partibus.broker.consuming import NOTE, read_consumer
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.records import FragmentKey, SubQueue
from partibus.broker.settlement import ABANDON
from partibus.management.bulk.consuming import BulkConsuming
from partibus.management.side_process import SideProcess
from partibus.runtime.driver import Driver
from partibus.store import Store
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

QUEUE = QueueDescription("p", enable_partitioning=True, max_delivery_count=1000)
MESSAGES = 60
BATCH = 7


class Spark:
    """A driver with its checkpoint and its sink, which outlive it."""

    def __init__(self, world: World, may_shrink: bool = False) -> None:
        self.world = world
        # Messages that were given in vain too often leave their batch.
        self.may_shrink = may_shrink
        self.start: dict[int, int] = {}
        self.end: dict[int, int] | None = None
        self.number = 0
        self.sink: dict[int, set[bytes]] = {}

    async def run(self) -> None:
        """Until nothing is left, or somebody pulls the plug."""
        consuming = BulkConsuming(self.world.nodes[0], cast(SideProcess, None))
        epoch = await _begin(consuming, "p", "spark")
        if self.end is not None:
            # As the format does before a batch runs again.
            await consuming.advance("p", "spark", epoch, self.start, 0)
        while True:
            if self.end is not None:
                found = await self._content()
                first = self.sink.setdefault(self.number, found)
                assert found == first or (self.may_shrink and found < first), "the same batch"
                # Between what the sink has and what the checkpoint says.
                await asyncio.sleep(0.002)
                self.start, self.end, self.number = self.end, None, self.number + 1
            told = await consuming.advance("p", "spark", epoch, self.start, BATCH)
            fragments = told["fragments"]
            ends = {each["fragment"]: each["last"] for each in fragments if "last" in each}
            if any(self.start.get(each, 0) < last for each, last in ends.items()):
                self.end = self.start | ends
            elif len(ends) == len(fragments):
                return
            else:
                await asyncio.sleep(0.001)

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


async def _begin(consuming: BulkConsuming, queue: str, reader: str) -> int:
    """As the format does: what an earlier start asked for may still be under way."""
    while True:
        try:
            return int((await consuming.begin(queue, reader))["epoch"])
        except FragmentUnavailable:
            await asyncio.sleep(0.001)


def _fragments(world: World, subqueue: SubQueue) -> list[Fragment]:
    return [
        fragment
        for node in world.nodes.values()
        for driver in node.host.drivers.values()
        for key, fragment in driver.fragments.items()
        if key.subqueue == subqueue
    ]


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
        part = [each for part in read_consumer(note).parts(after, upto) for each in part]
        entries = store.find(number, part)
        assert len(entries) == len(part)
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
    _crash(seed, tmp_path, QUEUE, may_shrink=False)


@pytest.mark.parametrize("seed", range(6))
def test_S2_over_all_crashes_each_message_is_done_or_set_aside(seed: int, tmp_path: Path) -> None:
    _crash(seed, tmp_path, replace(QUEUE, max_delivery_count=3), may_shrink=True)


def _crash(seed: int, tmp_path: Path, queue: QueueDescription, may_shrink: bool) -> None:
    """Consume a queue while the reader or the broker is killed again and again."""
    chance = Random(seed)

    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = World(
            loop, folder, queue, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 1, seed=seed
        )
        await world.start()
        bodies = [f"m{n}".encode() for n in range(MESSAGES)]
        batches = [[incoming(each, key=f"k{n % 9}")] for n, each in enumerate(bodies)]
        assert not any(await Door(world.nodes[0], "p").sending(*batches).refusals())
        spark = Spark(world, may_shrink)
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

        seen = [each for part in spark.sink.values() for each in part]
        assert len(seen) == len(set(seen)), "each message is in one batch"
        active = [each.counters for each in _fragments(world, SubQueue.ACTIVE)]
        dead = [each.counters for each in _fragments(world, SubQueue.DEAD_LETTER)]
        set_aside = sum(each.active for each in dead)
        assert len(seen) >= MESSAGES - set_aside
        assert sum(each.dead_lettered for each in active) == set_aside
        assert sum(each.completed for each in active) == MESSAGES - set_aside
        assert may_shrink or (len(seen) == MESSAGES and not set_aside)
        assert sum(each.active for each in active) == sum(each.bytes for each in active) == 0
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


@simulated
async def test_S2_what_a_reader_is_given_in_vain_too_often_is_set_aside(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, QueueDescription("c", max_delivery_count=4)).start()
    door = Door(world.nodes[0], "c")
    await door.send(*[f"{n}".encode() for n in range(5)])
    # The first two were delivered once in vain before.
    receiver = door.receiver()
    await door.settle(await receiver.take(2), ABANDON)
    receiver.close()
    consuming = BulkConsuming(world.nodes[0], cast(SideProcess, None))
    key = FragmentKey(world.entity("c").id, world.entity("c").incarnation, 0, SubQueue.ACTIVE)
    left = []
    for _ in range(5):
        epoch = (await consuming.begin("c", "r"))["epoch"]
        # To ask again in the same start is no other try.
        for _ in range(2):
            (told,) = (await consuming.advance("c", "r", epoch, {}, 5))["fragments"]
        assert (told["done"], told["last"], told["free"]) == (0, 5, 0)
        left.append(len(await _reserved(_driver(world, world.store_of("c", 0)), key, 0, 5)))
    assert left == [5, 5, 5, 3, 0]
    # The batch is over, though nothing is in it any more.
    (told,) = (await consuming.advance("c", "r", epoch, {0: 5}, 5))["fragments"]
    assert (told["done"], told["last"]) == (5, 5)
    dead = await door.receiver(subqueue=SubQueue.DEAD_LETTER).drain(10)
    assert {int(each.body) for each in dead} == set(range(5))
    assert {each.read.deliveries for each in dead} == {4}
    await world.stop()


@simulated
async def test_S2_what_comes_back_from_a_reader_was_delivered(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, QueueDescription("c", max_delivery_count=2)).start()
    door = Door(world.nodes[0], "c")
    await door.send(b"1")
    consuming = BulkConsuming(world.nodes[0], cast(SideProcess, None))
    for _ in range(2):
        epoch = (await consuming.begin("c", "r"))["epoch"]
        await consuming.advance("c", "r", epoch, {}, 5)
        await consuming.remove("c", "r")
    assert await door.receiver().drain(1) == []
    dead = await door.receiver(subqueue=SubQueue.DEAD_LETTER).drain(10)
    assert [each.body for each in dead] == [b"1"]
    await world.stop()
