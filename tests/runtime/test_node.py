"""Nodes together: any of them sends, receives and settles for all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import EntityNotFound, FragmentUnavailable
from partibus.broker.records import SubQueue
from partibus.broker.settlement import ABANDON
from partibus.store import Store, StoreDamaged
from partibus.store.sqlite import SqliteStore
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, run, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

PARTITIONED = QueueDescription("p", enable_partitioning=True, lock_ms=5_000)
CONVENTIONAL = QueueDescription("c", lock_ms=5_000)


@simulated
async def test_R2_one_node_sends_another_receives_the_third_settles(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, PARTITIONED, CONVENTIONAL, nodes=3, stores=6).start()
    for queue in ("p", "c"):
        first, second, third = (Door(node, queue) for node in world.nodes.values())
        await first.send(*(b"%d" % number for number in range(50)))
        inbox = second.receiver()
        got = await inbox.take(50)
        assert {each.body for each in got} == {b"%d" % number for number in range(50)}
        lost, until_ms = await third.renew(got[:25])
        assert lost == {}
        assert until_ms == world.nodes[0].clock.now_ms() + 5_000
        assert await third.settle(got[:25]) == {}
        assert await first.settle(got[25:], ABANDON) == {}
        again = await third.receiver().take(25)
        assert {each.read.deliveries for each in again} == {1}
        assert await first.settle(again) == {}
        assert await second.receiver().drain(10) == []
    await world.stop()


@simulated
async def test_P1_the_fragments_of_a_partitioned_queue_lie_in_all_stores(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, PARTITIONED, CONVENTIONAL, nodes=2, stores=16).start()
    for queue in ("p", "c"):
        await Door(world.nodes[0], queue).send(*[b"x"] * 256)
    drivers = {
        store: driver
        for node in world.nodes.values()
        for store, driver in node.host.drivers.items()
    }
    names = {world.entity(name).id: name for name in ("p", "c")}
    held = [[names[key.entity] for key in drivers[store].fragments] for store in range(16)]
    assert sum("p" in each for each in held) == 16
    assert sum("c" in each for each in held) == 1
    await world.stop()


def test_K2_everything_is_there_after_a_restart_on_files(tmp_path: Path) -> None:
    async def before(loop: VirtualLoop) -> None:
        world = World(loop, tmp_path, PARTITIONED, stores=4)
        await world.start_node(0, lambda store: SqliteStore(tmp_path / f"{store}.sqlite"))
        door = Door(world.nodes[0], "p")
        await door.send(*(b"%d" % number for number in range(40)), key="k")
        inbox = door.receiver()
        got = await inbox.take(20)
        assert await door.settle(got[:10]) == {}
        assert await door.settle(got[10:15], ABANDON) == {}
        await world.stop()

    async def after(loop: VirtualLoop) -> None:
        world = World(loop, tmp_path, stores=4)
        await world.start_node(0, lambda store: SqliteStore(tmp_path / f"{store}.sqlite"))
        door = Door(world.nodes[0], "p")
        await door.send(b"40", key="k")
        got = await door.receiver().take(31)
        assert [each.body for each in got] == [b"%d" % number for number in range(10, 41)]
        assert [each.read.deliveries for each in got] == [1] * 5 + [0] * 26
        assert [each.read.sequence & 0xFFFF for each in got] == list(range(11, 42))
        await world.stop()

    run(before)
    run(after)


@simulated
async def test_P3_the_death_of_a_node_takes_only_its_own_stores_away(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(
        loop, folder, PARTITIONED, nodes=2, stores=4, hop_ms=lambda random: random.random()
    ).start()
    door = Door(world.nodes[0], "p")
    await door.send(*(b"%d" % number for number in range(64)))
    inbox = door.receiver()
    await inbox.take(4)
    world.crash(1)
    await world.settle()
    assert await door.sending(*([incoming(b"new")] for _ in range(32))).refusals() == [None] * 32
    keyed = [door.sending([incoming(b"keyed", key=f"{key}")]) for key in range(16)]
    refusals = [(await each.refusals())[0] for each in keyed]
    assert {type(each) for each in refusals} == {type(None), FragmentUnavailable}
    await world.start_node(1)
    await world.until(world.connected)
    accepted = 64 + 32 + refusals.count(None)
    inbox.credit(accepted + 1)
    # Locks that the dead node gave, or that were on their way, end by themselves.
    await asyncio.sleep(20)
    assert len({each.read.sequence for each in inbox.got}) == accepted
    await world.stop()


@simulated
async def test_a_cut_hop_refuses_what_was_under_way_and_mends_itself(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, CONVENTIONAL, nodes=2, stores=2, hop_ms=lambda _: 10).start()
    away = 1 - world.entity("c").home % 2
    door = Door(world.nodes[away], "c")
    inbox = door.receiver()
    inbox.credit(5)
    assert world.network is not None
    sending = door.sending([incoming(b"unsure")])
    await asyncio.sleep(0.001)
    world.network.cut()
    assert isinstance((await sending.refusals())[0], FragmentUnavailable)
    refused = (await door.sending([incoming(b"x")]).refusals())[0]
    assert refused is None or isinstance(refused, FragmentUnavailable)
    await world.until(world.connected)
    await door.send(b"after")
    await world.settle()
    assert inbox.bodies[-1] == b"after", "the receiver has subscribed again"
    await world.stop()


@simulated
async def test_settling_at_a_node_that_is_gone_is_an_error_to_be_repeated(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, CONVENTIONAL, nodes=2, stores=2, hop_ms=lambda _: 0).start()
    home = world.entity("c").home % 2
    door = Door(world.nodes[1 - home], "c")
    await door.send(b"a")
    got = await door.receiver().take(1)
    world.crash(home)
    await world.settle()
    refused = await door.settle(got)
    assert isinstance(refused[got[0].token], FragmentUnavailable)
    await world.stop()


@simulated
async def test_entities_made_changed_and_deleted_are_known_to_all_nodes(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, CONVENTIONAL, nodes=2, stores=2).start()
    world.catalog.create_queue(QueueDescription("New/Queue"), 1)
    entity, subqueue = world.nodes[1].resolve("new/queue/$DeadLetterQueue")
    assert (entity.name, subqueue) == ("New/Queue", SubQueue.DEAD_LETTER)
    assert world.nodes[1].resolve("NEW/QUEUE")[1] is SubQueue.ACTIVE
    world.catalog.delete_queue("new/queue", 1)
    await asyncio.sleep(1.1)
    for node in world.nodes.values():
        with pytest.raises(EntityNotFound, match="new/queue"):
            node.resolve("new/queue")
    await world.stop()


@simulated
async def test_news_of_the_catalog_travel_with_the_hop(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, PARTITIONED, nodes=2, stores=2).start()
    world.catalog.update_queue("p", {"MaxDeliveryCount": 7}, 1)
    world.nodes[0].refresh()
    await Door(world.nodes[0], "p").send(*[b"x"] * 32)
    assert world.nodes[1].version == world.nodes[0].version
    await world.stop()


@simulated
async def test_a_stopped_node_is_seen_to_be_gone(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, PARTITIONED, nodes=2, stores=2).start()
    await world.nodes[1].stop()
    await world.settle()
    assert not world.nodes[0].peer(1).up
    assert world.nodes[0].unavailable_stores() == [1]
    await Door(world.nodes[0], "p").send(*[b"x"] * 32)
    del world.nodes[1]
    await world.stop()


@simulated
async def test_P3_a_store_that_cannot_be_opened_takes_only_its_own_fragments_away(
    loop: VirtualLoop, folder: Path
) -> None:
    world = World(loop, folder, PARTITIONED, stores=4)
    damaged = True

    def open_store(store: int) -> Store:
        if damaged and store == 2:
            raise StoreDamaged("store-02.sqlite is damaged")
        return world.disks[store].open()

    await world.start_node(0, open_store)
    node = world.nodes[0]
    assert node.unavailable_stores() == [2]
    await Door(node, "p").send(*[b"x"] * 64)
    damaged = False
    await world.until(lambda: not node.unavailable_stores())
    await world.stop()


@simulated
async def test_the_space_of_an_entity_deleted_while_a_node_was_down_is_taken_back(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, PARTITIONED, stores=2).start()
    await Door(world.nodes[0], "p").send(*[b"x"] * 64)
    await world.nodes.pop(0).stop()
    world.catalog.delete_queue("p", 1)
    await world.start_node(0)
    await world.settle()
    await world.stop()
    assert [disk.open().fragments() for disk in world.disks] == [[], []]
