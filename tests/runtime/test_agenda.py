"""What time brings: activation and expiry, on time, durable, in bounded parts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from partibus.broker.descriptions import QueueDescription
from partibus.broker.message import Incoming
from partibus.broker.records import SubQueue
from partibus.broker.settlement import Outcome, Settlement
from partibus.runtime.agenda import PART_MESSAGES
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.simulation import adds_up
from partibus.testing.world import World

TTL_MS = 60_000
QUEUES = (
    QueueDescription("p", enable_partitioning=True),
    QueueDescription("c"),
    QueueDescription("short", default_ttl_ms=TTL_MS, dead_letter_on_expiration=True),
)


async def two_nodes(loop: VirtualLoop, folder: Path) -> World:
    return await World(loop, folder, *QUEUES, nodes=2, stores=4, hop_ms=lambda _: 1).start()


def scheduled(world: World, body: bytes, seconds: float) -> Incoming:
    message = incoming(body)
    message.due_ms = world.nodes[0].clock.now_ms() + round(seconds * 1000)
    return message


async def schedule(world: World, queue: str, *delays: float) -> None:
    messages = [[scheduled(world, b"%d" % at, delay)] for at, delay in enumerate(delays)]
    sending = Door(world.nodes[0], queue).sending(*messages)
    assert await sending.refusals() == [None] * len(delays)


def counters(world: World, name: str) -> dict[str, int]:
    """The counters of all fragments together; each must add up."""
    total: dict[str, int] = {}
    for node in world.nodes.values():
        for driver in node.host.drivers.values():
            for key, fragment in driver.fragments.items():
                assert adds_up(fragment.counters)
                if key.entity == world.entity(name).id:
                    for field in ("active", "scheduled", "expired", "dead_lettered"):
                        value = getattr(fragment.counters, field)
                        total[field] = total.get(field, 0) + value
    return total


@simulated
async def test_a_scheduled_message_is_received_at_its_time_and_not_before(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    clock = world.nodes[0].clock
    began_ms = clock.now_ms()
    await schedule(world, "p", 20, 5, 10)
    came_ms: list[int] = []
    inbox = Door(world.nodes[1], "p").receiver(seen=lambda _: came_ms.append(clock.now_ms()))
    inbox.credit(10)
    await asyncio.sleep(25)
    assert inbox.bodies == [b"1", b"2", b"0"]
    for due_s, at_ms in zip((5, 10, 20), came_ms, strict=True):
        assert 0 <= at_ms - (began_ms + 1000 * due_s) < 200
    await world.stop()


@simulated
async def test_scheduled_messages_outlive_crashes_before_at_and_after_their_time(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    await schedule(world, "p", *([5.0] * 40 + [30.0] * 40))
    for index in (0, 1):
        world.crash(index)
        await world.start_node(index)
    # They are due while nobody is there.
    world.crash(0)
    await asyncio.sleep(8)
    await world.start_node(0)
    await world.until(world.connected)
    # The disk fails in the middle of the next activation.
    for disk in world.disks:
        disk.crash_in_commit(keeps=True)
    await asyncio.sleep(40)
    inbox = Door(world.nodes[1], "p").receiver()
    assert len(await inbox.take(80)) == 80
    assert sorted(inbox.bodies) == sorted(b"%d" % n for n in range(80))
    assert await inbox.drain(10) == []
    assert counters(world, "p")["scheduled"] == 0
    await world.stop()


@simulated
async def test_more_than_fit_in_one_part_become_active_part_by_part(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    count = 3 * PART_MESSAGES + 7
    await schedule(world, "c", *([3.0] * count))
    commits = sum(disk.commits for disk in world.disks)
    await asyncio.sleep(5)
    assert counters(world, "c")["active"] == count
    assert sum(disk.commits for disk in world.disks) - commits == 4
    await world.stop()


@simulated
async def test_messages_expire_without_a_receiver_and_become_dead_letters(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "short")
    await door.send(*(b"%d" % n for n in range(3 * PART_MESSAGES)))
    inbox = door.receiver()
    (deferred,) = await inbox.take(1)
    await door.settle([deferred], Settlement(Outcome.DEFER))
    inbox.close()
    await asyncio.sleep(TTL_MS / 1000 - 1)
    assert counters(world, "short")["active"] == 3 * PART_MESSAGES - 1
    await asyncio.sleep(4)
    assert counters(world, "short")["dead_lettered"] == 3 * PART_MESSAGES - 1
    dead = door.receiver(subqueue=SubQueue.DEAD_LETTER)
    assert len(await dead.take(3 * PART_MESSAGES - 1)) == 3 * PART_MESSAGES - 1
    # Dead letters have no time to live, whatever they carry with them.
    await asyncio.sleep(3 * TTL_MS / 1000)
    assert counters(world, "short")["active"] == 3 * PART_MESSAGES - 1
    await world.stop()


@simulated
async def test_an_expired_message_whose_commit_was_late_is_found(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder)
    door = Door(world.nodes[0], "c")
    store = world.store_of("c", 0)
    await door.send(b"first")
    message, other = incoming(b"late"), incoming(b"other")
    message.ttl_ms, other.ttl_ms = 2_000, 1_000
    sending = door.sending([other])
    await sending.refusals()
    world.lanes[store].hold()
    sending = door.sending([message])
    await asyncio.sleep(5)
    world.lanes[store].release()
    assert await sending.refusals() == [None]
    await asyncio.sleep(5)
    assert counters(world, "c")["expired"] == 2
    assert counters(world, "c")["active"] == 1
    await world.stop()
