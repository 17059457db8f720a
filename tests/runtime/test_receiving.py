"""Receives: credit is kept to, surplus is cached and given back, deletes are durable first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import EntityDisabled, EntityNotFound
from partibus.broker.records import SubQueue
from partibus.broker.settlement import Outcome, Settlement
from partibus.runtime.receiving import ReceiveCache, ReceiveMode
from partibus.testing.door import Door, Inbox
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

PARTITIONED = QueueDescription("p", enable_partitioning=True, lock_ms=30_000)
DELETING = ReceiveMode.RECEIVE_AND_DELETE


async def two_nodes(
    loop: VirtualLoop, folder: Path, receive_cache: ReceiveCache = ReceiveCache.LEAN
) -> World:
    world = World(loop, folder, PARTITIONED, nodes=2, stores=4, receive_cache=receive_cache)
    return await world.start()


async def filled(world: World, count: int) -> Door:
    door = Door(world.nodes[0], "p")
    await door.send(*(b"%d" % number for number in range(count)))
    return door


def locked(world: World) -> int:
    """Messages that are locked, in a receiver's hand or in a cache."""
    fragments = [
        fragment
        for node in world.nodes.values()
        for driver in node.host.drivers.values()
        for fragment in driver.fragments.values()
    ]
    return sum(each.counters.active - len(each.window) for each in fragments)


@simulated
async def test_R1_a_receiver_gets_what_lies_anywhere_and_never_more_than_its_credit(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 100)
    inbox = door.receiver()
    for expected in (1, 2, 5, 42, 50):
        await inbox.take(expected)
    assert sorted(inbox.bodies) == sorted(b"%d" % number for number in range(100))
    await world.stop()


@simulated
async def test_R1_R3_what_came_beyond_the_credit_is_cached_and_served_first(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, ReceiveCache.EAGER)
    door = await filled(world, 64)
    inbox = door.receiver()
    await inbox.take(1)
    await world.settle()
    cached = locked(world) - 1
    assert cached > 0, "the other node was asked as well"
    await inbox.take(cached)
    await inbox.take(1)
    await world.stop()


@simulated
async def test_R3_the_cache_is_given_back_uncounted_after_an_idle_second(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, ReceiveCache.EAGER)
    door = await filled(world, 64)
    inbox = door.receiver()
    await inbox.take(3)
    await asyncio.sleep(0.5)
    assert locked(world) > 3
    await asyncio.sleep(1.5)
    assert locked(world) == 3
    other = Door(world.nodes[1], "p").receiver()
    assert {each.read.deliveries for each in await other.take(61)} == {0}
    await world.stop()


@simulated
async def test_a_lean_receiver_holds_only_what_it_got_and_takes_from_all_nodes_in_turn(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    inbox = door.receiver()
    for count in range(1, 17):
        await inbox.take(1)
        await world.settle()
        assert locked(world) == count
    stores = {int.from_bytes(each.token[:2], "big") for each in inbox.got}
    assert {world.nodes[0].placement.owner(store) for store in stores} == {0, 1}
    await world.stop()


@simulated
async def test_a_node_that_does_not_answer_does_not_keep_a_receiver_from_the_rest(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    for store, lane in world.lanes.items():
        if store % 2:
            lane.hold()
    for driver in world.nodes[1].host.drivers.values():
        for fragment in driver.fragments.values():
            fragment.window.evict()
    inbox = door.receiver()
    assert len(await inbox.take(32)) == 32
    for lane in world.lanes.values():
        lane.release()
    await world.stop()


@simulated
async def test_a_cache_in_use_is_not_given_back(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder, ReceiveCache.EAGER)
    door = await filled(world, 64)
    inbox = door.receiver()
    for _ in range(20):
        await inbox.take(2)
        await asyncio.sleep(0.3)
    assert len({each.token for each in inbox.got}) == 40
    assert {each.read.deliveries for each in inbox.got} == {0}
    await world.stop()


@simulated
async def test_closing_gives_the_cache_back_uncounted_and_keeps_the_locks(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    inbox = door.receiver()
    held = await inbox.take(3)
    inbox.close()
    await world.settle()
    assert locked(world) == 3
    # What the receiver got stays its own until the lock ends.
    assert await door.settle(held) == {}
    assert len(await door.receiver().take(61)) == 61
    await world.stop()


@simulated
async def test_messages_on_their_way_when_the_receiver_closes_come_back(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    inbox = door.receiver()
    inbox.credit(50)
    inbox.close()
    await world.settle()
    assert locked(world) == len(inbox.got)
    await world.stop()


@simulated
async def test_a_paused_receiver_gets_nothing_and_holds_nothing_for_long(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "p")
    inbox = door.receiver()
    inbox.credit(50)
    inbox.receiver.pause()
    await filled(world, 64)
    await asyncio.sleep(3)
    assert inbox.got == []
    assert locked(world) == 0
    inbox.receiver.resume()
    await world.settle()
    assert len(inbox.got) == 50
    await world.stop()


@simulated
async def test_a_drain_gives_what_is_there_and_ends_the_credit(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 40)
    inbox = door.receiver()
    assert len(await inbox.drain(25)) == 25
    assert len(await inbox.drain(100)) == 15
    assert await inbox.drain(100) == []
    await door.send(b"late")
    await world.settle()
    assert len(inbox.got) == 40
    await world.stop()


@simulated
async def test_a_drain_waits_for_what_has_to_be_read_from_disk(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 40)
    for node in world.nodes.values():
        for driver in node.host.drivers.values():
            for fragment in driver.fragments.values():
                fragment.window.evict()
    assert len(await door.receiver().drain(100)) == 40
    await world.stop()


@simulated
async def test_P3_a_stalled_store_does_not_keep_a_drain_from_being_answered(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    for driver in world.nodes[0].host.drivers.values():
        for fragment in driver.fragments.values():
            fragment.window.evict()
    world.lanes[0].hold()
    got = await door.receiver().drain(100)
    assert 32 <= len(got) < 64
    world.lanes[0].release()
    await world.stop()


@simulated
async def test_receive_and_delete_is_durable_before_it_is_delivered(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 8)
    for lane in world.lanes.values():
        lane.hold()
    inbox = door.receiver(DELETING)
    inbox.credit(8)
    await asyncio.sleep(5)
    assert inbox.got == []
    for lane in world.lanes.values():
        lane.release()
    await world.settle()
    assert len(inbox.got) == 8
    assert locked(world) == 0
    await world.stop()


@simulated
async def test_receive_and_delete_never_gives_more_than_the_credit(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 64)
    for lane in world.lanes.values():
        lane.hold()
    inbox = door.receiver(DELETING)
    # A client repeats its credit, not knowing what is being deleted for it.
    for _ in range(3):
        inbox.credit(10)
        await world.settle()
    for lane in world.lanes.values():
        lane.release()
    await world.settle()
    assert len(inbox.got) == 10
    await world.stop()


@simulated
async def test_a_failed_delete_delivers_nothing(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 16)
    for disk in world.disks:
        disk.fail()
    inbox = door.receiver(DELETING)
    inbox.credit(1)
    await world.settle()
    assert inbox.got == []
    await asyncio.sleep(3)
    assert len(inbox.got) == 1, "the credit was not lost with it"
    await world.stop()


@simulated
async def test_a_deleted_or_disabled_queue_ends_its_receivers(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    inboxes = [Door(node, "p").receiver() for node in world.nodes.values()]
    world.catalog.update_queue("p", {"Status": "ReceiveDisabled"}, 1)
    await asyncio.sleep(1.1)
    assert [type(inbox.lost[0]) for inbox in inboxes] == [EntityDisabled] * 2
    for inbox in inboxes:
        inbox.close()
    world.catalog.update_queue("p", {"Status": "Active"}, 1)
    await asyncio.sleep(1.1)
    inboxes = [Door(node, "p").receiver() for node in world.nodes.values()]
    await Door(world.nodes[0], "p").send(b"a")
    world.catalog.delete_queue("p", 1)
    await asyncio.sleep(1.1)
    assert [type(inbox.lost[0]) for inbox in inboxes] == [EntityNotFound] * 2
    for inbox in inboxes:
        inbox.close()
    await world.settle()
    drivers = [driver for node in world.nodes.values() for driver in node.host.drivers.values()]
    assert all(not driver.fragments for driver in drivers)
    await world.stop()


@simulated
async def test_a_dead_letter_queue_is_received_from_like_any_other(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = await filled(world, 20)
    got = await door.receiver().take(20)
    deadletters = Inbox(Door(world.nodes[1], "p"), ReceiveMode.PEEK_LOCK, SubQueue.DEAD_LETTER)
    deadletters.credit(20)
    await door.settle(got, Settlement(Outcome.DEAD_LETTER, "why"))
    await world.settle()
    numbers = sorted(each.read.sequence for each in got)
    assert sorted(each.read.sequence for each in deadletters.got) == numbers
    assert await Door(world.nodes[1], "p").settle(deadletters.got) == {}
    await world.stop()


@simulated
async def test_receivers_of_one_queue_share_it_fairly(loop: VirtualLoop, folder: Path) -> None:
    queue = QueueDescription("q")
    world = await World(loop, folder, queue, stores=1).start()
    door = Door(world.nodes[0], "q")
    inboxes = [door.receiver() for _ in range(4)]
    for inbox in inboxes:
        inbox.credit(256)
    assert await door.sending(*([incoming()] for _ in range(512))).refusals() == [None] * 512
    await world.settle()
    assert [len(inbox.got) for inbox in inboxes] == [128] * 4
    await world.stop()


@simulated
async def test_credit_that_is_taken_back_leaves_nothing_behind(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, QueueDescription("q"), nodes=2, stores=2).start()
    door = Door(world.nodes[1 - world.entity("q").home % 2], "q")
    await door.send(*[b"x"] * 5)
    inbox = door.receiver()
    inbox.credit(5)
    inbox.credit(2)
    await asyncio.sleep(2)
    assert len(inbox.got) == 2
    assert locked(world) == 2
    await world.stop()
