"""Messages scheduled in a transaction: numbers at once, messages with the discharge (T5, A1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import Refusal, TransactionRolledBack
from partibus.broker.message import Incoming
from partibus.broker.records import SubQueue
from partibus.broker.transactions import Transaction
from partibus.runtime import numbered
from partibus.runtime.discharging import discharge
from partibus.runtime.numbered import View
from partibus.runtime.requests import Delivered
from partibus.runtime.reserving import reserve_numbers
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import Read, incoming, read
from partibus.testing.world import World

HOUR_MS = 3_600_000
QUEUES = (
    QueueDescription("c"),
    QueueDescription("p", enable_partitioning=True),
    QueueDescription("d", requires_duplicate_detection=True),
)


def later(door: Door, body: bytes, ms: int = HOUR_MS) -> Incoming:
    message = incoming(body, message_id=body.decode(), key="k")
    return msgspec.structs.replace(message, due_ms=door.node.clock.now_ms() + ms)


async def scheduled(door: Door, transaction: Transaction, *messages: Incoming) -> list[int]:
    """Schedule in a transaction; the numbers that were promised."""
    future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    def done(numbers: list[int], refusal: Refusal | None) -> None:
        if refusal is not None:
            future.set_exception(refusal)
        else:
            future.set_result(numbers)

    scheduling = transaction.schedule(door.entity, list(messages), 0)
    reserve_numbers(door.node, transaction, scheduling, done)
    return await future


async def committed(door: Door, transaction: Transaction) -> Refusal | None:
    done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    discharge(door.node, transaction, done.set_result)
    return await done


async def seen(door: Door) -> list[Read]:
    """All messages, as a browser sees them, in the order of their numbers."""
    found: list[Read] = []
    while part := await part_of(door, found[-1].sequence + 1 if found else 0):
        found += part
    return found


async def part_of(door: Door, sequence: int) -> list[Read]:
    future: asyncio.Future[list[Delivered]] = asyncio.get_running_loop().create_future()

    def done(messages: list[Delivered], _: Refusal | None) -> None:
        future.set_result(messages)

    numbered.peek(door.node, door.entity, SubQueue.ACTIVE, View(sequence, 250), done)
    return [read(each.payload) for each in await future]


@pytest.mark.parametrize("queue", ["c", "p", "d"])
def test_T5_scheduled_messages_come_with_the_discharge_under_their_numbers(
    queue: str, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await World(loop, folder, *QUEUES, nodes=2, hop_ms=lambda _: 1).start()
        for node in (0, 1):
            door = Door(world.nodes[node], queue)
            transaction = Transaction(door.node.stores)
            one, two = f"{node}one".encode(), f"{node}two".encode()
            numbers = await scheduled(door, transaction, later(door, one), later(door, two))
            assert await scheduled(door, transaction, later(door, one + b"!")) > numbers
            # Others go on meanwhile, and get other numbers.
            await door.sending([incoming(b"x", message_id=f"{node}x", key="k")]).refusals()
            transaction.send(door.entity, [incoming(b"y", message_id=f"{node}y", key="k")], 0)
            assert [each.body for each in await seen(door)][-1:] == [b"x"]
            assert await committed(door, transaction) is None
            found = {each.body: each for each in await seen(door)}
            assert [found[body].sequence for body in (one, two)] == numbers
            assert found[one].annotations["x-opt-message-state"] == 2
            assert found[b"y"].sequence > found[b"x"].sequence > numbers[1]
            # They become active in their time, and are received like all others.
            await asyncio.sleep(HOUR_MS / 1000 + 5)
            got = await door.receiver().drain(10)
            assert sorted(each.body for each in got) == [one, one + b"!", two, b"x", b"y"]
            assert await door.settle(got) == {}
        await world.stop()

    run(tmp_path)


@simulated
async def test_T5_a_message_that_is_due_already_becomes_active_at_once(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    transaction = Transaction(door.node.stores)
    await scheduled(door, transaction, later(door, b"soon", 1000), incoming(b"now", key="k"))
    await door.send(b"before")
    await asyncio.sleep(5)
    assert await committed(door, transaction) is None
    await asyncio.sleep(1)
    got = await door.receiver().drain(10)
    assert [each.body for each in got] == [b"before", b"soon", b"now"]
    await world.stop()


@simulated
async def test_T5_what_is_not_discharged_leaves_nothing(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "p")
    await scheduled(door, Transaction(door.node.stores), later(door, b"never"))
    await door.send(b"x", key="k")
    await asyncio.sleep(2 * HOUR_MS / 1000)
    assert [each.body for each in await seen(door)] == [b"x"]
    await world.stop()


@pytest.mark.parametrize("fault", ["store fails", "node crashes"])
def test_T5_numbers_that_were_lost_with_a_store_roll_all_of_it_back(
    fault: str, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await World(loop, folder, *QUEUES, nodes=2, hop_ms=lambda _: 1).start()
        store = world.store_of("c", 0)
        owner = store % 2
        door = Door(world.nodes[1 - owner], "c")
        transaction = Transaction(door.node.stores)
        [number] = await scheduled(door, transaction, later(door, b"s"))
        transaction.send(door.entity, [incoming(b"with it")], 0)
        if fault == "store fails":
            world.disks[store].fail()
            await door.sending([incoming(b"x")]).refusals()
        else:
            world.crash(owner)
            await world.start_node(owner)
            await world.until(world.connected)
        await world.until(lambda: world.nodes[owner].host.drivers[store].up)
        # Somebody else has the number by now.
        await door.send(b"a", b"b")
        assert isinstance(await committed(door, transaction), TransactionRolledBack)
        found = await seen(door)
        assert [each.body for each in found] == [b"a", b"b"]
        assert number in [each.sequence for each in found]
        await world.stop()

    run(tmp_path)


@simulated
async def test_T5_a_full_queue_refuses_scheduled_messages_with_the_rest(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    await door.send(b"x")
    transaction = Transaction(door.node.stores)
    await scheduled(door, transaction, later(door, b"s"), later(door, b"t"))
    transaction.send(door.entity, [incoming(b"y")], 0)
    [fragment] = world.nodes[0].host.drivers[world.store_of("c", 0)].fragments.values()
    # Room for two of the three.
    room = sum(len(each.bare) + len(each.kept) for each in (later(door, b"s"), incoming(b"y")))
    taken = (1 << 30) - fragment.counters.bytes - room
    fragment.counters.bytes += taken
    refusal = await committed(door, transaction)
    assert refusal is not None
    assert refusal.condition == "amqp:resource-limit-exceeded"
    fragment.counters.bytes -= taken
    assert [each.body for each in await seen(door)] == [b"x"]
    assert await committed(door, transaction) is None
    await world.stop()


@simulated
async def test_F2_a_duplicate_keeps_its_promised_number_empty(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "d")
    await door.sending([incoming(b"a", message_id="a")]).refusals()
    transaction = Transaction(door.node.stores)
    again, fresh = await scheduled(door, transaction, later(door, b"a"), later(door, b"b"))
    assert await committed(door, transaction) is None
    assert [each.sequence for each in await seen(door)] == [again - 1, fresh]
    await world.stop()
