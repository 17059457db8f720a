"""Operations by sequence number find their fragment, and step over those that do not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partibus.broker.descriptions import Entity, QueueDescription
from partibus.broker.errors import (
    EntityDisabled,
    FragmentUnavailable,
    InvalidOperation,
    MessageNotFound,
    NotImplementedHere,
    Refusal,
)
from partibus.broker.records import SubQueue
from partibus.broker.settlement import RELEASE, Outcome, Settlement
from partibus.runtime import numbered
from partibus.runtime.numbered import View
from partibus.runtime.requests import Delivered
from partibus.store import StoreError
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import Read, incoming, payload, read
from partibus.testing.world import World

QUEUES = (QueueDescription("p", enable_partitioning=True), QueueDescription("c"))
ACTIVE = SubQueue.ACTIVE


async def two_nodes(loop: VirtualLoop, folder: Path) -> World:
    return await World(loop, folder, *QUEUES, nodes=2, stores=4, hop_ms=lambda _: 1).start()


async def peek(door: Door, sequence: int, count: int = 250) -> list[Read]:
    future: asyncio.Future[list[Delivered]] = asyncio.get_running_loop().create_future()

    def done(messages: list[Delivered], refusal: Refusal | None) -> None:
        if refusal is not None:
            future.set_exception(refusal)
        else:
            future.set_result(messages)

    numbered.peek(door.node, door.entity, ACTIVE, View(sequence, count), done)
    return [read(message.payload) for message in await future]


async def peek_all(door: Door, count: int = 250) -> list[Read]:
    found: list[Read] = []
    while part := await peek(door, found[-1].sequence + 1 if found else 0, count):
        found += part
    return found


@simulated
async def test_R4_R5_peek_goes_from_fragment_to_fragment_over_all_nodes(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(*(b"%d" % n for n in range(300)))
    for count in (1, 7, 250):
        found = await peek_all(door, count)
        assert sorted(each.body for each in found) == sorted(b"%d" % n for n in range(300))
        numbers = [each.sequence for each in found]
        assert numbers == sorted(numbers)
    part = await peek(door, 0)
    assert len({each.sequence >> 48 for each in part}) == 1
    assert await peek(door, 17 << 48) == []
    await world.stop()


@simulated
async def test_R4_peek_steps_over_a_lost_node_and_a_store_that_hangs(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(*(b"%d" % n for n in range(300)))
    world.crash(1)
    await asyncio.sleep(0.1)
    there = {p for p in door.entity.partitions if world.store_of("p", p) % 2 == 0}
    assert {each.sequence >> 48 for each in await peek_all(door)} == there
    world.lanes[0].hold()
    there = {p for p in there if world.store_of("p", p) != 0}
    assert {each.sequence >> 48 for each in await peek_all(door)} == there
    world.lanes[0].release()
    await world.start_node(1)
    await world.until(world.connected)
    assert len(await peek_all(door)) == 300
    await world.stop()


@simulated
async def test_a_peek_where_nobody_answers_is_refused(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder)
    index = world.store_of("c", 0) % 2
    door = Door(world.nodes[1 - index], "c")
    world.crash(index)
    await asyncio.sleep(0.1)
    with pytest.raises(FragmentUnavailable):
        await peek(door, 0)
    await world.start_node(index)
    await world.until(world.connected)
    assert await peek(door, 0) == []
    await world.stop()


@simulated
async def test_messages_are_placed_and_cancelled_by_number_from_any_node(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    answers: list[Refusal | None] = []
    for name in ("p", "c"):
        answers.clear()
        door, other = Door(world.nodes[0], name), Door(world.nodes[1], name)
        numbers: list[int] = []
        for _ in range(20):
            message = incoming(b"x")
            message.due_ms = door.node.clock.now_ms() + 60_000
            door.node.sender(door.entity).place(
                [message], numbers.extend, lambda _, refusal: answers.append(refusal)
            )
        await world.until(lambda: len(answers) == 20)
        assert answers == [None] * 20
        assert {each.sequence for each in await peek_all(door)} == set(numbers)
        for number in numbers:
            numbered.cancel_scheduled(other.node, other.entity, [number], answers.append)
        await world.until(lambda: len(answers) == 40)
        assert answers == [None] * 40
        assert await peek_all(door) == []
        numbered.cancel_scheduled(other.node, other.entity, numbers[:1], answers.append)
        await world.until(lambda: len(answers) == 41)
        assert isinstance(answers[-1], MessageNotFound)
    await world.stop()


@simulated
async def test_deferred_messages_are_what_was_acknowledged_through_crashes(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(*(b"%d" % n for n in range(50)))
    inbox = door.receiver()
    got = await inbox.take(50)
    assert await door.settle(got[:30], Settlement(Outcome.DEFER)) == {}
    inbox.close()
    for index in (0, 1):
        world.crash(index)
        await world.start_node(index)
    await world.until(world.connected)
    door = Door(world.nodes[1], "p")
    answers: list[tuple[list[Delivered], Refusal | None]] = []
    for message in got[:30]:
        numbered.receive_deferred(
            door.node, door.entity, ACTIVE, [int(message.read.sequence)],
            lambda messages, refusal: answers.append((messages, refusal)), delete=True,
        )  # fmt: skip
    await world.until(lambda: len(answers) == 30)
    bodies = sorted(read(messages[0].payload).body for messages, _ in answers)
    assert bodies == sorted(each.body for each in got[:30])
    inbox = Door(world.nodes[0], "p").receiver()
    assert sorted(each.body for each in await inbox.take(20)) == sorted(
        each.body for each in got[30:]
    )
    assert await inbox.drain(10) == []
    await world.stop()


def test_numbers_of_one_fragment_only() -> None:
    partitioned = Entity(1, 1, "p", QUEUES[0], 16, 0)
    plain = Entity(2, 1, "c", QUEUES[1], 1, 0)
    assert numbered.partition_of(partitioned, [(3 << 48) + 1, (3 << 48) + 9]) == 3
    assert numbered.partition_of(plain, [1, 2]) == 0
    with pytest.raises(InvalidOperation, match="different partitions"):
        numbered.partition_of(partitioned, [(3 << 48) + 1, (4 << 48) + 1])
    for entity, number in ((partitioned, 5), (partitioned, 17 << 48), (plain, (1 << 48) + 5)):
        with pytest.raises(MessageNotFound, match=f"number {number & (1 << 48) - 1}"):
            numbered.partition_of(entity, [number])
    with pytest.raises(MessageNotFound):
        numbered.partition_of(plain, [-1])


@simulated
async def test_a_backlog_on_disk_is_deleted_in_batches(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "c")
    await door.send(*[payload(b"x" * 20) for _ in range(4_000)])
    index = world.store_of("c", 0) % 2
    world.crash(index)
    await world.start_node(index)
    await world.until(world.connected)
    door = Door(world.nodes[1 - index], "c")
    deleted: list[int] = []
    while not deleted or deleted[-1]:
        before = len(deleted)
        numbered.delete_messages(
            door.node, door.entity, ACTIVE, 500, 1 << 50, lambda count, _: deleted.append(count)
        )
        await world.until(lambda before=before: len(deleted) > before)  # type: ignore[misc]
    assert sum(deleted) == 4_000
    assert max(deleted) <= 500
    assert await peek_all(door) == []
    partitioned = Door(world.nodes[0], "p")
    with pytest.raises(NotImplementedHere):
        numbered.delete_messages(
            partitioned.node, partitioned.entity, ACTIVE, 1, 1, lambda *_: None
        )
    await world.stop()


@simulated
async def test_deleting_while_the_store_fails_touches_nothing_of_its_former_life(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    store = world.store_of("c", 0)
    door = Door(world.nodes[store % 2], "c")
    await door.send(*(b"%d" % n for n in range(20)))
    driver = door.node.host.drivers[store]
    (fragment,) = driver.fragments.values()
    got = await door.receiver().take(1)
    fragment.window.evict()
    answers: list[Refusal | None] = []
    # The read hangs; what is given back meanwhile is in memory when the store fails.
    world.lanes[store].hold()
    numbered.delete_messages(
        door.node, door.entity, ACTIVE, 5, 1 << 50, lambda _, refusal: answers.append(refusal)
    )
    await door.settle(got, RELEASE)
    driver._fail(StoreError("the disk is gone"))
    world.lanes[store].release()
    await asyncio.sleep(3)
    assert [type(answer) for answer in answers] == [FragmentUnavailable]
    assert len(await peek_all(door)) == 20
    await world.stop()


@simulated
async def test_a_disabled_queue_takes_no_scheduled_message(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "c")
    sender = door.node.sender(door.entity)
    world.catalog.update_queue("c", {"Status": "SendDisabled"}, 0)
    world.nodes[0].refresh()
    answers: list[Refusal | None] = []
    sender.place([incoming()], lambda _: None, lambda _, refusal: answers.append(refusal))
    assert isinstance(answers[0], EntityDisabled)
    await world.stop()
