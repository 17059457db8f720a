"""One store and its fragments: durable before answered, one commit at a time, the disk is right."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import FragmentUnavailable
from partibus.broker.message import read_message
from partibus.broker.records import SubQueue
from partibus.broker.settlement import ABANDON
from partibus.runtime import driver as driver_module
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import BYTES_MAX, incoming, payload
from partibus.testing.world import World

QUEUE = QueueDescription("q", lock_ms=5_000, max_delivery_count=2)


async def one_store(loop: VirtualLoop, folder: Path, queue: QueueDescription = QUEUE) -> World:
    return await World(loop, folder, queue, stores=1).start()


@simulated
async def test_nothing_is_answered_or_shown_before_it_is_durable(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    inbox = door.receiver()
    inbox.credit(10)
    world.lanes[0].hold()
    sending = door.sending([incoming(b"a")])
    await asyncio.sleep(60)
    assert not sending.done
    assert inbox.got == []
    world.lanes[0].release()
    assert await sending.refusals() == [None]
    await world.settle()
    assert inbox.bodies == [b"a"]
    await world.stop()


@simulated
async def test_a_settlement_is_answered_when_it_is_durable(loop: VirtualLoop, folder: Path) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    await door.send(b"a")
    got = await door.receiver().take(1)
    world.lanes[0].hold()
    settling = asyncio.ensure_future(door.settle(got))
    await asyncio.sleep(1)
    assert not settling.done()
    world.lanes[0].release()
    assert await settling == {}
    await world.stop()


@simulated
async def test_what_gathers_during_a_commit_is_one_commit(loop: VirtualLoop, folder: Path) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    world.lanes[0].hold()
    sendings = []
    for number in range(50):
        sendings.append(door.sending([incoming(b"%d" % number)]))
        await asyncio.sleep(0.001)
    world.lanes[0].release()
    for sending in sendings:
        assert await sending.refusals() == [None]
    assert world.disks[0].commits == 2
    await world.stop()


@simulated
async def test_after_a_failed_commit_the_disk_is_the_truth(loop: VirtualLoop, folder: Path) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    await door.send(b"a", b"b")
    inbox = door.receiver()
    got = await inbox.take(1)
    world.disks[0].fail()
    failed = await door.sending([incoming(b"lost")]).refusals()
    assert isinstance(failed[0], FragmentUnavailable)
    refused = await door.settle(got)
    assert isinstance(refused[got[0].token], FragmentUnavailable)
    await world.until(lambda: world.nodes[0].host.drivers[0].up)
    await door.send(b"c")
    # The lock was forgotten with everything else in memory.
    again = await inbox.take(3)
    assert [each.body for each in again] == [b"a", b"b", b"c"]
    assert [each.read.deliveries for each in again] == [0, 0, 0]
    await world.stop()


@simulated
async def test_a_store_that_cannot_be_opened_is_tried_again(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    await door.send(b"a")
    world.disks[0].crash()
    blocker = world.disks[0].open()
    failed = await door.sending([incoming(b"x")]).refusals()
    assert isinstance(failed[0], FragmentUnavailable)
    await asyncio.sleep(5)
    assert not world.nodes[0].host.drivers[0].up
    blocker.close()
    assert [each.body for each in await door.receiver().take(1)] == [b"a"]
    await world.stop()


def test_reading_and_writing_that_fail_together_reopen_the_store_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @simulated
    async def scenario(loop: VirtualLoop, folder: Path) -> None:
        world = await one_store(loop, folder)
        door = Door(world.nodes[0], "q")
        await door.send(b"a")
        (fragment,) = world.nodes[0].host.drivers[0].fragments.values()
        fragment.window.evict()
        world.lanes[0].hold()
        inbox = door.receiver()
        inbox.credit(5)
        sending = door.sending([incoming(b"b")])
        await world.settle()
        world.disks[0].crash()
        world.lanes[0].release()
        assert isinstance((await sending.refusals())[0], FragmentUnavailable)
        await asyncio.sleep(5)
        assert inbox.bodies == [b"a"]
        await world.stop()

    with caplog.at_level(logging.WARNING):
        scenario(tmp_path)
    assert sum("store is back" in record.message for record in caplog.records) == 1


@simulated
async def test_a_backlog_with_large_annotations_is_read_to_its_end(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    sent = payload(b"a", message_id="id", annotations={"x-note": "x" * 2000})
    message = read_message(sent, BYTES_MAX, str)
    assert await door.sending([message] * 1500).refusals() == [None]
    (fragment,) = world.nodes[0].host.drivers[0].fragments.values()
    fragment.window.evict()
    assert len(await door.receiver().drain(2000)) == 1500
    await world.stop()


@simulated
async def test_a_lock_that_ends_makes_the_message_come_again(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    await door.send(b"a")
    inbox = door.receiver()
    began_s = loop.time()
    await inbox.take(2)
    assert loop.time() - began_s == pytest.approx(5, abs=0.1)
    assert [each.read.deliveries for each in inbox.got] == [0, 1]
    await asyncio.sleep(6)
    dead = await door.receiver(subqueue=SubQueue.DEAD_LETTER).take(1)
    assert dead[0].read.properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    await world.stop()


@simulated
async def test_changed_settings_hold_for_locks_and_dead_letters_from_then_on(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder, replace(QUEUE, lock_ms=300_000))
    door = Door(world.nodes[0], "q")
    await door.send(b"long", b"short")
    inbox = door.receiver()
    await inbox.take(1)
    world.catalog.update_queue("q", {"LockDuration": "PT5S", "MaxDeliveryCount": 1}, 0)
    await asyncio.sleep(2)
    await inbox.take(1)
    await asyncio.sleep(6)
    deadletters = door.receiver(subqueue=SubQueue.DEAD_LETTER)
    (dead,) = await deadletters.take(1)
    assert dead.body == b"short"
    # The dead-letter queue, made just now, has the new lock duration as well.
    await asyncio.sleep(6)
    assert (await deadletters.take(1))[0].read.deliveries == 2
    await world.stop()


@simulated
async def test_a_send_that_waits_while_its_queue_is_deleted_is_answered(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    world.lanes[0].hold()
    first = door.sending([incoming(b"a")])
    await world.settle()
    second = door.sending([incoming(b"b")])
    world.catalog.delete_queue("q", 1)
    await asyncio.sleep(2)
    world.lanes[0].release()
    await asyncio.sleep(2)
    assert first.done
    assert second.done
    assert world.nodes[0].host.drivers[0].up, "nobody writes to what was deleted"
    await world.stop()


def test_receivers_are_served_again_when_the_disk_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "STAGED_OPERATIONS_MAX", 4)

    @simulated
    async def scenario(loop: VirtualLoop, folder: Path) -> None:
        other = QueueDescription("other")
        world = await World(loop, folder, QUEUE, other, stores=1).start()
        door, aside = Door(world.nodes[0], "q"), Door(world.nodes[0], "other")
        await aside.send(b"waits")
        await door.send(*[b"x"] * 6)
        got = await door.receiver().take(6)
        world.lanes[0].hold()
        settling = [asyncio.ensure_future(door.settle([each])) for each in got]
        await world.settle()
        inbox = aside.receiver()
        inbox.credit(1)
        await world.settle()
        assert inbox.got == [], "back-pressure: the disk is behind"
        world.lanes[0].release()
        await asyncio.gather(*settling)
        await world.settle()
        assert inbox.bodies == [b"waits"]
        await world.stop()

    scenario(tmp_path)


@simulated
async def test_stopping_finishes_the_commits_under_way(loop: VirtualLoop, folder: Path) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    sending = door.sending([incoming(b"a")])
    await world.nodes[0].stop()
    assert await sending.refusals() == [None]
    await world.start_node(0)
    assert [each.body for each in await Door(world.nodes[0], "q").receiver().take(1)] == [b"a"]
    await world.stop()


@simulated
async def test_heads_that_nobody_reads_are_left_to_the_disk(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    driver = world.nodes[0].host.drivers[0]
    body = bytes(100_000)
    for name in ("a", "b", "c", "d", "e"):
        world.catalog.create_queue(QueueDescription(name), 0)
        await asyncio.sleep(1.1)
        other = Door(world.nodes[0], name)
        for _ in range(22):
            await other.send(body)
    for _ in range(driver_module.TRIM_EVERY_COMMITS):
        await door.send(b"x")
    held = sum(fragment.window.bytes for fragment in driver.fragments.values())
    assert held <= driver_module.IDLE_WINDOW_BYTES_MAX
    assert len(await Door(world.nodes[0], "a").receiver().drain(30)) == 22
    await world.stop()


@simulated
async def test_an_abandoned_message_survives_a_crash_with_its_count(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await one_store(loop, folder)
    door = Door(world.nodes[0], "q")
    await door.send(b"a")
    assert await door.settle(await door.receiver().take(1), ABANDON) == {}
    world.disks[0].fail()
    await door.sending([incoming(b"x")]).refusals()
    await asyncio.sleep(2)
    assert (await door.receiver().take(1))[0].read.deliveries == 1
    await world.stop()
