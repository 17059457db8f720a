"""AutoDeleteOnIdle: an entity goes when nobody has used it for so long, and not before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partibus.broker.descriptions import QueueDescription
from partibus.broker.records import SubQueue
from partibus.runtime import numbered
from partibus.runtime.numbered import View
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

IDLE_MS = 5 * 60_000
QUEUE = QueueDescription("q", auto_delete_on_idle_ms=IDLE_MS, enable_partitioning=True)
KEPT = QueueDescription("kept")


async def two_nodes(loop: VirtualLoop, folder: Path) -> World:
    return await World(loop, folder, QUEUE, KEPT, nodes=2, stores=4, hop_ms=lambda _: 1).start()


def exists(world: World) -> bool:
    return world.catalog.load().find("q") is not None


@simulated
async def test_an_idle_queue_is_deleted_with_its_messages_a_used_one_is_not(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[1], "q")
    for at in range(4):
        await asyncio.sleep(IDLE_MS / 1000 - 10)
        assert exists(world)
        if at % 2:
            await door.send(b"x")
        else:
            numbered.peek(door.node, door.entity, SubQueue.ACTIVE, View(0, 1), lambda *_: None)
    await asyncio.sleep(IDLE_MS / 1000 + 60)
    assert not exists(world)
    assert world.catalog.load().find("kept") is not None
    assert all(not driver.fragments for node in world.nodes.values()
               for driver in node.host.drivers.values())  # fmt: skip
    await world.stop()


@simulated
async def test_a_receiver_or_a_scheduled_message_keeps_a_queue(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "q")
    message = incoming(b"later")
    message.due_ms = door.node.clock.now_ms() + 3 * IDLE_MS
    assert await door.sending([message]).refusals() == [None]
    await asyncio.sleep(2.5 * IDLE_MS / 1000)
    assert exists(world)
    inbox = door.receiver()
    await inbox.take(1, seconds=IDLE_MS)
    await asyncio.sleep(2 * IDLE_MS / 1000)
    assert exists(world)
    inbox.close()
    await asyncio.sleep(IDLE_MS / 1000 + 60)
    assert not exists(world)
    await world.stop()


@simulated
async def test_nothing_is_deleted_while_a_node_cannot_say_whether_it_is_used(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    first = world.store_of("q", 1) % 2
    world.crash(1 - first)
    await asyncio.sleep(2 * IDLE_MS / 1000)
    assert exists(world)
    await world.start_node(1 - first)
    await asyncio.sleep(IDLE_MS / 1000 + 60)
    assert not exists(world)
    await world.stop()
