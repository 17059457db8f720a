"""A transaction at its store: all of it in one commit, or nothing (T5)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import (
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    Refusal,
    TransactionInDoubt,
)
from partibus.broker.partitioning import index_of
from partibus.broker.records import SubQueue
from partibus.broker.settlement import ABANDON, COMPLETE, Outcome, Settlement
from partibus.broker.transactions import Transaction
from partibus.runtime.discharging import discharge
from partibus.runtime.reserving import reserve_numbers
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

LOCK_MS = 30_000
QUEUES = (
    QueueDescription("c", lock_ms=LOCK_MS),
    QueueDescription("p", lock_ms=LOCK_MS, enable_partitioning=True),
    QueueDescription("d", lock_ms=LOCK_MS, requires_duplicate_detection=True),
)
DEAD_LETTER = Settlement(Outcome.DEAD_LETTER, "why")

FAULTS = ("none", "none", "fail", "crash before", "crash after", "crash node")

T = TypeVar("T")


class Work:
    """A transaction on one queue, through one node."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.transaction = Transaction(door.node.stores)

    def send(self, *bodies: bytes, key: str = "k") -> Work:
        messages = [incoming(body, message_id=body.decode(), key=key) for body in bodies]
        self.transaction.send(self.door.entity, messages, 0)
        return self

    async def schedule(self, body: bytes, key: str) -> None:
        """Have it come a second later than the rest."""
        message = incoming(body, message_id=body.decode(), key=key)
        message.due_ms = self.door.node.clock.now_ms() + 1000
        scheduling = self.transaction.schedule(self.door.entity, [message], 0)
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        reserve_numbers(
            self.door.node,
            self.transaction,
            scheduling,
            lambda _, refusal: done.set_result(refusal),
        )
        assert await done is None

    def settle(self, *got: Got, how: Settlement = COMPLETE) -> Work:
        self.transaction.settle(self.door.entity, [each.token for each in got], how, 0)
        return self

    def committing(self) -> asyncio.Future[Refusal | None]:
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        discharge(self.door.node, self.transaction, done.set_result)
        return done


async def bodies(door: Door, subqueue: SubQueue = SubQueue.ACTIVE) -> list[bytes]:
    """What can be received; it is given back."""
    inbox = door.receiver(subqueue=subqueue)
    got = await inbox.drain(500)
    inbox.close()
    await door.settle(got, Settlement(Outcome.RELEASE))
    return sorted(each.body for each in got)


@pytest.mark.parametrize("queue", ["c", "p", "d"])
def test_T5_a_transaction_is_discharged_over_the_hop(queue: str, tmp_path: Path) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await World(loop, folder, *QUEUES, nodes=2, hop_ms=lambda _: 1).start()
        for node in (0, 1):
            door = Door(world.nodes[node], queue)
            old = [b"%d%s" % (node, each) for each in (b"a", b"b", b"c")]
            await door.sending(
                *([incoming(each, message_id=each.decode(), key="k")] for each in old)
            ).refusals()
            inbox = door.receiver()
            complete, dead, abandon = await inbox.take(3)
            inbox.close()
            work = Work(door).send(b"%dnew" % node).settle(complete)
            work.settle(dead, how=DEAD_LETTER).settle(abandon, how=ABANDON)
            assert await work.committing() is None
            assert await bodies(door) == [b"%dc" % node, b"%dnew" % node]
            [left] = [each for each in await door.receiver().take(2) if each.body[1:] == b"c"]
            assert left.read.deliveries == 1
            assert await bodies(door, SubQueue.DEAD_LETTER) == [b"%db" % node]
            await asyncio.sleep(LOCK_MS / 1000 + 1)
            inbox = door.receiver()
            await door.settle(await inbox.drain(10))
            inbox.close()
            inbox = door.receiver(subqueue=SubQueue.DEAD_LETTER)
            await door.settle(await inbox.drain(10))
            inbox.close()
        await world.stop()

    run(tmp_path)


@simulated
async def test_T5_all_of_it_is_one_commit(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    await door.send(b"a", b"b")
    got = await door.receiver().take(2)
    disk = world.disks[world.store_of("c", 0)]
    before = disk.commits
    work = Work(door).send(b"x", b"y").settle(got[0]).settle(got[1], how=DEAD_LETTER)
    assert await work.committing() is None
    assert disk.commits == before + 1
    await world.stop()


@simulated
async def test_a_lost_lock_leaves_everything_as_it_was(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    await door.send(b"a", b"b")
    inbox = door.receiver()
    kept, lost = await inbox.take(2)
    inbox.close()
    await door.settle([lost])
    work = Work(door).send(b"x").settle(kept, how=DEAD_LETTER).settle(lost)
    assert isinstance(await work.committing(), MessageLockLost)
    # The other lock is still there, and nothing was sent.
    assert await door.settle([kept]) == {}
    assert await bodies(door) == []
    await world.stop()


@simulated
async def test_a_token_of_another_queue_is_a_lost_lock(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES, stores=1).start()
    other = Door(world.nodes[0], "d")
    await other.send(b"a")
    [theirs] = await other.receiver().take(1)
    work = Work(Door(world.nodes[0], "c")).send(b"x").settle(theirs)
    assert isinstance(await work.committing(), MessageLockLost)
    assert await other.settle([theirs]) == {}
    await world.stop()


@simulated
async def test_fragments_that_share_a_store_are_told_apart(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES, stores=1).start()
    door = Door(world.nodes[0], "p")
    await door.send(b"a", key="a")
    await door.send(b"b", key="b")
    got = await door.receiver().take(2)
    assert index_of("a", 16) != index_of("b", 16)
    assert isinstance(await Work(door).settle(*got).committing(), InvalidOperation)
    one = next(each for each in got if each.body == b"a")
    crossed = Work(door).settle(one).send(b"x", key="b")
    assert isinstance(await crossed.committing(), InvalidOperation)
    assert await Work(door).settle(one).send(b"x", key="a").committing() is None
    await world.stop()


@simulated
async def test_a_full_queue_refuses_all_of_it(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    await door.send(b"a")
    [got] = await door.receiver().take(1)
    [fragment] = world.nodes[0].host.drivers[world.store_of("c", 0)].fragments.values()
    fragment.counters.bytes += 1 << 40
    assert isinstance(await Work(door).send(b"x").settle(got).committing(), QuotaExceeded)
    fragment.counters.bytes -= 1 << 40
    assert await door.settle([got]) == {}
    await world.stop()


@simulated
async def test_a_deleted_queue_refuses_all_of_it(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    work = Work(door).send(b"x")
    world.catalog.delete_queue("c", 1)
    world.nodes[0].refresh()
    assert isinstance(await work.committing(), EntityNotFound)
    await world.stop()


@simulated
async def test_duplicates_in_a_transaction_are_dropped_and_the_rest_happens(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "d")
    assert await Work(door).send(b"a", b"b").committing() is None
    inbox = door.receiver()
    got = await inbox.take(1)
    inbox.close()
    assert await Work(door).send(b"a").settle(*got).committing() is None
    assert await bodies(door) == [b"b"]
    # Refused after the look for duplicates: nothing is remembered of it.
    assert isinstance(await Work(door).send(b"c").settle(*got).committing(), MessageLockLost)
    assert await Work(door).send(b"c").committing() is None
    assert await bodies(door) == [b"b", b"c"]
    await world.stop()


@simulated
async def test_an_empty_transaction_is_committed(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    assert await Work(Door(world.nodes[0], "c")).committing() is None
    await world.stop()


@simulated
async def test_a_store_that_is_down_refuses_and_one_that_fails_leaves_in_doubt(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    store = world.store_of("c", 0)
    world.disks[store].fail()
    assert isinstance(await Work(door).send(b"x").committing(), TransactionInDoubt)
    assert isinstance(await Work(door).send(b"y").committing(), FragmentUnavailable)
    await world.until(lambda: world.nodes[0].host.drivers[store].up)
    assert await Work(door).send(b"z").committing() is None
    assert await bodies(door) == [b"z"]
    await world.stop()


@simulated
async def test_a_node_that_is_lost_refuses_before_and_leaves_in_doubt_during_the_commit(
    loop: VirtualLoop, folder: Path
) -> None:
    world = World(loop, folder, *QUEUES, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 50)
    await world.start()
    owner = world.store_of("c", 0) % 2
    door = Door(world.nodes[1 - owner], "c")
    under_way = Work(door).send(b"x").committing()
    await asyncio.sleep(0.02)
    world.crash(owner)
    assert isinstance(await under_way, TransactionInDoubt)
    refusal = await Work(door).send(b"y").committing()
    assert isinstance(refusal, FragmentUnavailable)
    await world.start_node(owner)
    await world.until(world.connected)
    assert await bodies(door) == []
    await world.stop()


class TransactionsAgainstModel(RuleBasedStateMachine):
    """Transactions with crashes agree with a dict that each of them changes at once or never.

    Every key is a token that stands in one message; a transaction takes it out and puts it in
    again with a higher number, or lets it die and puts in another. However commits fail and nodes
    crash, each key has exactly one message, and no committed change is undone.
    """

    keys = ("a", "b", "c")

    @initialize(queue=st.sampled_from(("c", "p", "d")))
    def start(self, queue: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = VirtualLoop()
        self.world = World(
            self.loop,
            Path(self.folder.name),
            *QUEUES,
            nodes=2,
            stores=3,
            disk_ms=lambda random: random.expovariate(1 / 5),
            hop_ms=lambda random: random.expovariate(1 / 2),
        )
        self.queue = queue
        self.run(self.world.start())
        # The number of each key that was committed for certain, and the highest that may be.
        self.certain = dict.fromkeys(self.keys, 0)
        self.possible = dict.fromkeys(self.keys, 0)
        self.names = 0
        for key in self.keys:
            assert self.run(self.sent(key)) is None

    async def sent(self, key: str) -> Refusal | None:
        return await Work(self.door(0)).send(self.name(key, 0), key=key).committing()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        result = self.loop.run_until_complete(work)
        assert not self.loop.failures
        return result

    def door(self, node: int) -> Door:
        return Door(self.world.nodes[node], self.queue)

    def name(self, key: str, number: int) -> bytes:
        self.names += 1
        return f"{key}:{number}:{self.names}".encode()

    @rule(
        key=st.sampled_from(keys),
        node=st.integers(0, 1),
        how=st.sampled_from((COMPLETE, COMPLETE, DEAD_LETTER)),
        fate=st.sampled_from(("commit", "commit", "roll back", "lose the lock")),
        fault=st.sampled_from(
            ("none", "none", "fail", "crash before", "crash after", "crash node")
        ),
        others=st.integers(0, 3),
        later=st.booleans(),
    )
    def move(
        self, key: str, node: int, how: Settlement, fate: str, fault: str, others: int, later: bool
    ) -> None:
        self.run(self._move(key, node, how, fate, fault, others, later))
        self.run(self.recovered())

    async def _move(
        self, key: str, node: int, how: Settlement, fate: str, fault: str, others: int, later: bool
    ) -> None:
        door = self.door(node)
        inbox = door.receiver()
        got = await inbox.drain(10)
        inbox.close()
        of_key = [each for each in got if each.body.startswith(key.encode())]
        await door.settle([each for each in got if each not in of_key], Settlement(Outcome.RELEASE))
        assert len(of_key) == 1, f"{key} stands in {len(of_key)} messages"
        number = int(of_key[0].body.split(b":")[1])
        assert self.certain[key] <= number <= self.possible[key]
        self.certain[key] = self.possible[key] = number
        work = Work(door).settle(of_key[0], how=how)
        name = self.name(key, number + 1)
        if later:
            await work.schedule(name, key)
        else:
            work.send(name, key=key)
        if fate == "roll back":
            await door.settle(of_key, Settlement(Outcome.RELEASE))
            return
        if fate == "lose the lock":
            await asyncio.sleep(LOCK_MS / 1000 + 1)
            assert isinstance(await work.committing(), MessageLockLost)
            return
        owner = self.arm(key, fault)
        committing = work.committing()
        for _ in range(others):
            await asyncio.sleep(0.002)
        if fault == "crash node":
            self.world.crash(owner)
            if owner == node:
                # Whoever asked is gone, too.
                self.possible[key] = number + 1
                return
        refusal = await committing
        self.possible[key] = number + 1
        if refusal is None:
            self.certain[key] = number + 1
        elif not isinstance(refusal, TransactionInDoubt):
            self.possible[key] = number

    def arm(self, key: str, fault: str) -> int:
        """Prepare what will go wrong at the key's store; its node."""
        partition = index_of(key, 16) + 1 if self.queue == "p" else 0
        store = self.world.store_of(self.queue, partition)
        disk = self.world.disks[store]
        if fault == "fail":
            disk.fail()
        elif fault in ("crash before", "crash after"):
            disk.crash_in_commit(keeps=fault == "crash after")
        return store % 2

    async def recovered(self) -> None:
        for index in (0, 1):
            if index not in self.world.nodes:
                await self.world.start_node(index)
        await self.world.until(self.world.connected)
        await self.world.until(
            lambda: all(
                driver.up
                for node in self.world.nodes.values()
                for driver in node.host.drivers.values()
            )
        )
        # Whatever is locked and forgotten comes back.
        await asyncio.sleep(LOCK_MS / 1000 + 1)

    @rule(node=st.integers(0, 1))
    def crash(self, node: int) -> None:
        self.world.crash(node)
        self.run(self.recovered())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        found = [body.split(b":") for body in self.run(bodies(self.door(0)))]
        numbers = {key.decode(): int(number) for key, number, _ in found}
        assert len(found) == len(self.keys)
        for key in self.keys:
            assert self.certain[key] <= numbers[key] <= self.possible[key]
        self.run(self.world.stop())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(asyncio.sleep(0))
        self.loop.close()
        self.folder.cleanup()


TestTransactionsAgainstModel = TransactionsAgainstModel.TestCase
TestTransactionsAgainstModel.settings = settings(max_examples=25, stateful_step_count=15)
