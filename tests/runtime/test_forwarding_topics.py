"""Forwarding into topics and out of subscriptions: the same rules as between queues."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.message import Incoming, read_message
from partibus.broker.records import SubQueue
from partibus.broker.settlement import Outcome, Settlement
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.runtime.sending_via import ViaSender
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import payload
from partibus.testing.simulation import adds_up
from partibus.testing.world import World

KINDS = pytest.mark.parametrize("partitioned", [False, True], ids=["conventional", "partitioned"])


async def started(
    loop: VirtualLoop,
    folder: Path,
    partitioned: bool,
    *queues: QueueDescription,
    **targets: str,
) -> World:
    """Two nodes; a topic with the subscriptions `all` and `on`, which has these targets."""
    world = World(loop, folder, *queues, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 1)
    world.catalog.create_topic(TopicDescription("t", enable_partitioning=partitioned), 0)
    for each in (SubscriptionDescription("all"), SubscriptionDescription("on", **targets)):  # type: ignore[arg-type]
        world.catalog.create_subscription("t", each, 0)
    return await world.start()


async def received(
    world: World, name: str, count: int, subqueue: SubQueue = SubQueue.ACTIVE
) -> list[Got]:
    """So many messages, completed, and no more than these."""
    door = Door(world.nodes[0], name)
    inbox = door.receiver(subqueue=subqueue)
    got = await inbox.take(count)
    assert await door.settle(got) == {}
    await asyncio.sleep(1)
    assert await inbox.drain(10) == []
    inbox.close()
    return got


def all_adds_up(world: World) -> bool:
    fragments = [
        fragment
        for node in world.nodes.values()
        for driver in node.host.drivers.values()
        for fragment in driver.fragments.values()
    ]
    return all(adds_up(fragment.counters) for fragment in fragments)


@KINDS
def test_F1_a_queue_forwards_to_a_topic(partitioned: bool, tmp_path: Path) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await started(loop, folder, partitioned, QueueDescription("q", forward_to="t"))
        await Door(world.nodes[1], "q").send(b"1", b"2", b"3", key="k")
        for name in ("all", "on"):
            got = await received(world, f"t/Subscriptions/{name}", 3)
            assert [each.body for each in got] == [b"1", b"2", b"3"]
            numbers = [each.read.annotations["x-opt-enqueue-sequence-number"] for each in got]
            assert numbers == [1, 2, 3]
        assert all_adds_up(world)
        await world.stop()

    run(tmp_path)


@KINDS
def test_F1_a_subscription_forwards_to_a_queue(partitioned: bool, tmp_path: Path) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await started(loop, folder, partitioned, QueueDescription("q"), forward_to="q")
        bodies = [b"%d" % each for each in range(40)]
        await Door(world.nodes[0], "t").send(*bodies)
        for name in ("q", "t/Subscriptions/all"):
            got = await received(world, name, 40)
            assert sorted(each.body for each in got) == sorted(bodies)
        assert all_adds_up(world)
        await world.stop()

    run(tmp_path)


@KINDS
def test_F1_dead_letters_of_a_subscription_are_forwarded(partitioned: bool, tmp_path: Path) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await started(
            loop, folder, partitioned, QueueDescription("q"), forward_dead_letters_to="q"
        )
        await Door(world.nodes[0], "t").send(b"poison")
        door = Door(world.nodes[1], "t/Subscriptions/on")
        inbox = door.receiver()
        await door.settle(await inbox.take(1), Settlement(Outcome.DEAD_LETTER, "bad"))
        inbox.close()
        [got] = await received(world, "q", 1)
        assert got.read.properties["DeadLetterReason"] == "bad"
        assert got.read.annotations["x-opt-deadletter-source"] == "t/Subscriptions/on"
        await received(world, "t/Subscriptions/all", 1)
        await world.stop()

    run(tmp_path)


@KINDS
def test_F1_a_circle_through_a_topic_ends_after_four_hops(
    partitioned: bool, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await started(loop, folder, partitioned, forward_to="t")
        await Door(world.nodes[0], "t").send(b"round")
        [dead] = await received(world, "t/Subscriptions/on", 1, SubQueue.TRANSFER_DEAD_LETTER)
        assert dead.read.properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"
        await received(world, "t/Subscriptions/all", 5)
        assert all_adds_up(world)
        await world.stop()

    run(tmp_path)


def via_message(body: bytes) -> Incoming:
    sent = payload(body, message_id="m", annotations={"x-opt-via-partition-key": "k"})
    return read_message(sent, len(sent), str)


@KINDS
def test_T5_messages_are_sent_via_topics_and_subscriptions(
    partitioned: bool, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await started(loop, folder, partitioned, QueueDescription("q"))
        refusals: list[object] = []
        for via in ("t", "t/Subscriptions/on"):
            sender = ViaSender(world.nodes[0], world.entity(via), world.entity("q"))
            sender.send([(0, [via_message(b"x")])], lambda _, refusal: refusals.append(refusal))
            await received(world, "q", 1)
        assert refusals == [None, None]
        sender = ViaSender(world.nodes[0], world.entity("q"), world.entity("t"))
        sender.send([(0, [via_message(b"x")])], lambda _, refusal: None)
        await received(world, "t/Subscriptions/all", 1)
        await world.stop()

    run(tmp_path)
