"""Bulk publications over crashes, in the simulated world: each message once, in its order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from partibus.broker.blocks import Block, arrange
from partibus.broker.descriptions import QueueDescription
from partibus.broker.message import Incoming
from partibus.runtime.peers import ask
from partibus.runtime.publishing import BLOCK_MIN
from partibus.runtime.receiving import ReceiveMode
from partibus.runtime.requests import Publish, Reply
from partibus.store.staging import StagedWriter
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

PARTITIONS = (1, 2, 3)
QUEUE = QueueDescription("p", enable_partitioning=True)
PLENTY = 10_000


def block(messages: list[Incoming]) -> Block:
    return Block(
        arrange([len(each.bare) for each in messages], [0] * len(messages)),
        b"".join(each.bare for each in messages),
    )


def staged(path: Path, prefix: str) -> dict[int, list[bytes]]:
    """Of each kind some, for some fragments; returns what each fragment gets."""
    writer = StagedWriter(path)
    bodies: dict[int, list[bytes]] = {}
    for partition in PARTITIONS:
        counts = (BLOCK_MIN, 5, BLOCK_MIN + 9, 3)
        for kind, count in enumerate(counts):
            found = bodies.setdefault(partition, [])
            new = [f"{prefix}-{partition}-{len(found) + n}".encode() for n in range(count)]
            found += new
            messages = [incoming(each, message_id=each.decode()) for each in new]
            if kind == 1:
                for message in messages:
                    writer.add(partition, message)
            else:
                writer.append(partition, block(messages))
    writer.finish()
    return bodies


class Writer:
    """A driver: publishes one batch after the other, and each until all of it is."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.files = [folder / "0", folder / "1"]
        self.bodies = [staged(path, f"b{batch}") for batch, path in enumerate(self.files)]
        self.batch = 0

    async def run(self) -> None:
        while self.batch < len(self.files):
            replies = await asyncio.gather(*(self._publish(each) for each in PARTITIONS))
            if all(reply.refusal is None for reply in replies):
                self.batch += 1
            else:
                await asyncio.sleep(0.002)

    async def _publish(self, partition: int) -> Reply:
        entity, store = self.world.entity("p"), self.world.store_of("p", partition)
        count = len(self.bodies[self.batch][partition])
        files = [(str(self.files[self.batch]), count)]
        request = Publish(store, entity.id, entity.incarnation, partition, "w", self.batch, files)
        return await ask(self.world.nodes[0].owner(store), request)

    def expected(self, partition: int) -> list[bytes]:
        return [body for each in self.bodies for body in each[partition]]


@pytest.mark.parametrize("seed", range(4))
def test_S3_no_crash_loses_or_repeats_a_message_of_a_bulk_writer(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)

    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = World(
            loop, folder, QUEUE, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 1, seed=seed
        )
        await world.start()
        writer = Writer(world, tmp_path)
        for turn in range(20):
            task = asyncio.ensure_future(writer.run())
            # Ordinary senders use the same fragments meanwhile.
            sending = Door(world.nodes[0], "p").sending(
                *[[incoming(f"s{turn}-{n}".encode(), key=f"k{n}")] for n in range(9)]
            )
            await asyncio.wait([task], timeout=chance.random() * 0.03)
            if task.done():
                task.result()
                break
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            world.cut_power()
            del sending
            for index in (0, 1):
                await world.start_node(index)
            await world.until(world.connected)
        await writer.run()
        await Door(world.nodes[0], "p").send(b"last", key="k")

        got = await Door(world.nodes[0], "p").receiver(ReceiveMode.RECEIVE_AND_DELETE).drain(PLENTY)
        for partition in PARTITIONS:
            of_fragment = [each for each in got if each.read.sequence >> 48 == partition]
            numbers = [each.read.sequence for each in of_fragment]
            assert len(numbers) == len(set(numbers))
            of_fragment.sort(key=lambda each: each.read.sequence)
            bulk = [each.body for each in of_fragment if each.body.startswith(b"b")]
            assert bulk == writer.expected(partition)
        assert b"last" in [each.body for each in got]
        await world.stop()

    run(tmp_path)


@simulated
async def test_S3_a_block_is_received_in_the_order_of_its_fragment(
    loop: VirtualLoop, folder: Path
) -> None:
    """By who waits for it, and with what was sent before and after."""
    world = await World(loop, folder, QueueDescription("c")).start()
    door, entity = Door(world.nodes[0], "c"), world.entity("c")
    await door.send(b"before")
    waiting = door.receiver(ReceiveMode.RECEIVE_AND_DELETE)
    assert [each.body for each in await waiting.take(1)] == [b"before"]
    bodies = [b"%d" % n for n in range(3 * BLOCK_MIN)]
    waiting.credit(len(bodies) + 1)
    writer = StagedWriter(folder / "file")
    writer.append(0, block([incoming(each) for each in bodies]))
    writer.finish()
    files = [(str(folder / "file"), len(bodies))]
    request = Publish(world.store_of("c", 0), entity.id, entity.incarnation, 0, "w", 0, files)
    for _ in range(2):
        reply = await ask(world.nodes[0].owner(request.store), request)
        assert reply.refusal is None
    await door.send(b"after")
    await world.until(lambda: len(waiting.got) == len(bodies) + 2)
    assert waiting.bodies == [b"before", *bodies, b"after"]
    await world.stop()
