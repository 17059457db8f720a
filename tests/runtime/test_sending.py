"""Sends: a key pins, everything else finds a fragment that answers (K2 to K5)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import (
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    QuotaExceeded,
)
from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.message import Incoming
from partibus.broker.partitioning import index_of
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

PARTITIONED = QueueDescription("p", enable_partitioning=True)
STORES = 16


async def sixteen_stores(loop: VirtualLoop, folder: Path, nodes: int = 1) -> World:
    return await World(loop, folder, PARTITIONED, nodes=nodes, stores=STORES).start()


def partition(got: Got) -> int:
    assert got.read.annotations["x-opt-partition-id"] == got.read.sequence >> PARTITION_SHIFT
    return got.read.sequence >> PARTITION_SHIFT


def singles(count: int, key: str | None = None) -> list[list[Incoming]]:
    return [[incoming(b"%d" % number, key=key)] for number in range(count)]


def store_of_key(world: World, key: str) -> int:
    return world.store_of("p", index_of(key, 16) + 1)


@simulated
async def test_K2_K6_messages_of_one_key_share_a_fragment_and_keep_their_order(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.sending(*singles(40, key="k")).refusals()
    got = await door.receiver().take(40)
    assert {partition(each) for each in got} == {index_of("k", 16) + 1}
    assert [each.body for each in got] == [b"%d" % number for number in range(40)]
    await world.stop()


@simulated
async def test_K5_messages_without_a_key_spread_over_all_fragments(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    for size in (1, 3, 16, 100, 400, 504):
        assert await door.sending(*singles(size)).refusals() == [None] * size
    spread = Counter(partition(each) for each in await door.receiver().take(1024))
    assert len(spread) == 16
    assert max(spread.values()) <= 1.5 * 1024 / 16
    await world.stop()


@simulated
async def test_a_batch_goes_to_one_fragment_and_distinct_keys_are_refused(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    whole = [incoming(b"%d" % number) for number in range(50)]
    mixed = [incoming(key="a"), incoming(key="b")]
    accepted, refused = await door.sending(whole, mixed).refusals()
    assert accepted is None
    assert isinstance(refused, InvalidOperation)
    got = await door.receiver().drain(100)
    assert len(got) == 50
    assert len({partition(each) for each in got}) == 1
    await world.stop()


@simulated
async def test_P3_K4_K5_a_failed_store_is_stepped_over_except_by_its_own_keys(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(b"before", key="k")
    disk = world.disks[store_of_key(world, "k")]
    disk.fail(commits=1_000)
    refused = (await door.sending([incoming(key="k")]).refusals())[0]
    assert isinstance(refused, FragmentUnavailable)
    for _ in range(4):
        assert await door.sending(*singles(64)).refusals() == [None] * 64
        await asyncio.sleep(0.7)
    disk.fail(commits=0)
    await asyncio.sleep(2)
    await door.send(b"after", key="k")
    bodies = [each.body for each in await door.receiver().take(2 + 4 * 64)]
    assert bodies.count(b"before") == bodies.count(b"after") == 1
    assert Counter(bodies)[b"7"] == 4
    await world.stop()


@simulated
async def test_K5_a_stalled_store_gets_no_new_work_and_loses_what_it_had(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    world.lanes[3].hold()
    began_s = loop.time()
    first = door.sending(*singles(256))
    await asyncio.sleep(2)
    assert not first.done
    # After a second the stall is known: new messages are not held up by it.
    assert await door.sending(*singles(64)).refusals() == [None] * 64
    assert loop.time() - began_s < 2.5
    assert await first.refusals() == [None] * 256
    assert 3 < loop.time() - began_s < 4
    world.lanes[3].release()
    await world.stop()


@simulated
async def test_a_commit_that_was_late_after_all_leaves_no_copy(
    loop: VirtualLoop, folder: Path
) -> None:
    for nodes in (1, 2):
        (folder / str(nodes)).mkdir()
        world = await sixteen_stores(loop, folder / str(nodes), nodes)
        door = Door(world.nodes[0], "p")
        inbox = door.receiver()
        inbox.credit(1000)
        for lane in (world.lanes[3], world.lanes[4]):
            lane.hold()
        assert await door.sending(*singles(256)).refusals() == [None] * 256
        for lane in (world.lanes[3], world.lanes[4]):
            lane.release()
        await asyncio.sleep(5)
        assert sorted(inbox.bodies) == sorted(b"%d" % number for number in range(256))
        drivers = [d for node in world.nodes.values() for d in node.host.drivers.values()]
        counters = [f.counters for each in drivers for f in each.fragments.values()]
        assert sum(each.discarded for each in counters) == 32
        assert sum(each.active for each in counters) == 256
        await world.stop()


@simulated
async def test_K4_with_every_store_down_even_a_message_without_a_key_is_refused(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    for disk in world.disks:
        disk.fail(commits=100)
    refused = (await door.sending([incoming()]).refusals())[0]
    assert isinstance(refused, FragmentUnavailable)
    for disk in world.disks:
        disk.fail(commits=0)
    await asyncio.sleep(2)
    await door.send(b"a")
    assert len(await door.receiver().drain(10)) == 1
    await world.stop()


@simulated
async def test_K5_a_full_fragment_is_stepped_over(loop: VirtualLoop, folder: Path) -> None:
    small = QueueDescription("p", enable_partitioning=True)
    world = await World(loop, folder, small, stores=4).start()
    door = Door(world.nodes[0], "p")
    await door.send(b"a", key="k")
    fragment = next(
        fragment
        for driver in world.nodes[0].host.drivers.values()
        for fragment in driver.fragments.values()
    )
    fragment.counters.bytes = small.max_size_mb * 1024 * 1024
    refused = (await door.sending([incoming(key="k")]).refusals())[0]
    assert isinstance(refused, QuotaExceeded)
    assert await door.sending(*singles(64)).refusals() == [None] * 64
    await world.stop()


@simulated
async def test_a_queue_that_is_disabled_or_deleted_takes_nothing(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(b"a")
    world.catalog.update_queue("p", {"Status": "SendDisabled"}, 0)
    await asyncio.sleep(1.1)
    assert isinstance((await door.sending([incoming()]).refusals())[0], EntityDisabled)
    sender = world.nodes[0].sender(door.entity)
    world.catalog.delete_queue("p", 1)
    await asyncio.sleep(1.1)
    answers: list[object] = []
    sender.send([(1, [incoming()])], lambda _, refusal: answers.append(refusal))
    assert isinstance(answers[0], EntityNotFound)
    await world.stop()


@simulated
async def test_a_node_knows_whether_somebody_has_sent_lately(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await sixteen_stores(loop, folder)
    node = world.nodes[0]
    assert not node.has_senders(within_ms=1000)
    await Door(node, "p").sending(*singles(1)).refusals()
    assert node.has_senders(within_ms=1000)
    await asyncio.sleep(2)
    assert not node.has_senders(within_ms=1000)
    await world.stop()
