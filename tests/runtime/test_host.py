"""The broker side of a node: fragments down and up, receivers gone, entities gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import EntityNotFound, FragmentUnavailable
from partibus.broker.partitioning import index_of
from partibus.runtime.requests import Credit, Discard, Drain, Reply, Send, Unsubscribe
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

PARTITIONED = QueueDescription("p", enable_partitioning=True, lock_ms=5_000)


async def one_node(loop: VirtualLoop, folder: Path) -> World:
    return await World(loop, folder, PARTITIONED, stores=4).start()


@simulated
async def test_M3_K4_a_fragment_that_is_down_refuses_only_its_own_keys(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_node(loop, folder)
    node, door = world.nodes[0], Door(world.nodes[0], "p")
    await door.send(b"kept", key="k")
    partition = index_of("k", 16) + 1
    node.host.set_down(door.entity.id, partition, down=True)
    refused = (await door.sending([incoming(key="k")]).refusals())[0]
    assert isinstance(refused, FragmentUnavailable)
    assert await door.sending(*([incoming()] for _ in range(256))).refusals() == [None] * 256
    inbox = door.receiver()
    assert b"kept" not in {each.body for each in await inbox.drain(1000)}
    node.host.set_down(door.entity.id, partition, down=False)
    assert [each.body for each in await inbox.take(1)] == [b"kept"]
    await world.stop()


@simulated
async def test_a_message_for_a_former_life_of_a_queue_is_refused(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_node(loop, folder)
    entity = Door(world.nodes[0], "p").entity
    replies: list[Reply] = []
    peer = world.nodes[0].peer(0)
    store = world.store_of("p", 1)
    peer.call(Send(store, entity.id, entity.incarnation + 1, 1, [incoming()]), replies.append)
    peer.call(Send(store, 999, 1, 1, [incoming()]), replies.append)
    peer.call(Discard(store, 999, 1, 1, [1]), replies.append)
    peer.call(Send(77, entity.id, entity.incarnation, 1, [incoming()]), replies.append)
    assert [type(reply.refusal) for reply in replies] == [EntityNotFound] * 3 + [
        FragmentUnavailable
    ]
    await world.stop()


@simulated
async def test_a_receiver_nobody_knows_is_answered(loop: VirtualLoop, folder: Path) -> None:
    world = await one_node(loop, folder)
    replies: list[Reply] = []
    peer = world.nodes[0].peer(0)
    peer.tell(Credit(77, 10))
    peer.call(Drain(77), replies.append)
    peer.call(Unsubscribe(77), replies.append)
    assert [reply.refusal for reply in replies] == [None, None]
    await world.stop()


@simulated
async def test_what_a_lost_gateway_held_comes_back_when_its_locks_end(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, PARTITIONED, nodes=2, stores=4, hop_ms=lambda _: 0).start()
    door = Door(world.nodes[0], "p")
    await door.send(*[b"x"] * 64)
    gone = Door(world.nodes[1], "p").receiver()
    await gone.take(64)
    world.crash(1)
    inbox = door.receiver()
    began_s = loop.time()
    await world.start_node(1)
    inbox.credit(64)
    await world.until(lambda: len(inbox.got) == 64)
    assert loop.time() - began_s < 6
    await asyncio.sleep(1)
    await world.stop()


@simulated
async def test_an_entity_made_again_under_its_name_starts_empty(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_node(loop, folder)
    await Door(world.nodes[0], "p").send(*[b"old"] * 64)
    with world.catalog.together():
        world.catalog.delete_queue("p", 1)
        world.catalog.create_queue(PARTITIONED, 1)
    await asyncio.sleep(1.1)
    door = Door(world.nodes[0], "p")
    await door.send(b"new")
    assert [each.body for each in await door.receiver().drain(100)] == [b"new"]
    await world.stop()
