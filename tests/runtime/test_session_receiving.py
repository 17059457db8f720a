"""Sessions over two nodes: offers, claims, locks and their ends, in simulated time (T6, P4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import (
    InvalidOperation,
    MessageNotFound,
    OperationTimedOut,
    Refusal,
    SessionCannotBeLocked,
    SessionLockLost,
)
from partibus.broker.partitioning import index_of
from partibus.broker.records import SubQueue
from partibus.broker.settlement import ABANDON, Outcome, Settlement
from partibus.runtime import numbered
from partibus.runtime.requests import Delivered
from partibus.runtime.session_receiving import SessionReceiver
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, run
from partibus.testing.messages import incoming, read
from partibus.testing.session_door import TIMEOUT_MS, SessionInbox
from partibus.testing.world import World

LOCK_MS = 10_000
QUEUES = (
    QueueDescription("p", lock_ms=LOCK_MS, requires_session=True, enable_partitioning=True),
    QueueDescription("c", lock_ms=LOCK_MS, requires_session=True),
)
both_kinds = pytest.mark.parametrize("queue", ["p", "c"], ids=["partitioned", "conventional"])


async def send(door: Door, session: str, *bodies: bytes) -> None:
    sending = door.sending(*([incoming(body, session=session)] for body in bodies))
    assert await sending.refusals() == [None] * len(bodies)


def simulate(tmp_path: Path, story: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    async def live(loop: VirtualLoop) -> None:
        world = World(
            loop,
            tmp_path,
            *QUEUES,
            nodes=2,
            stores=4,
            seed=seed,
            disk_ms=lambda random: random.expovariate(1 / 2),
            hop_ms=lambda random: random.expovariate(1 / 2),
        )
        await world.start()
        await story(world)
        await world.stop()

    run(live)


def doors(world: World, queue: str) -> tuple[Door, Door]:
    return Door(world.nodes[0], queue), Door(world.nodes[1], queue)


@both_kinds
def test_T6_a_session_is_exclusive_whichever_node_is_asked(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        for name in ("a", "b", "c", "d"):
            await send(here, name, b"1", b"2")
            first = await SessionInbox(here, name).settled()
            second = await SessionInbox(there, name).settled()
            assert not first.lost
            assert isinstance(second.lost[0], SessionCannotBeLocked)
            first.receiver.set_credit(10)
            await world.settle()
            assert first.bodies == [b"1", b"2"]
            assert await here.settle(first.got[:1]) == {}
            first.receiver.close()
            await world.settle()
            third = await SessionInbox(there, name).settled()
            third.receiver.set_credit(10)
            await world.settle()
            assert [(g.body, g.read.deliveries) for g in third.got] == [(b"2", 0)]
            # What was one's own a moment ago is not any more.
            assert await here.settle(first.got[1:])
            third.receiver.close()

    simulate(tmp_path, story)


@both_kinds
def test_T6_the_next_available_is_the_oldest_of_all_nodes(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        names = [f"session {n}" for n in range(12)]
        for name in names:
            await send(here, name, b"x")
            await asyncio.sleep(0.001)
        held = []
        for at, name in enumerate(names):
            listener = await SessionInbox((here, there)[at % 2]).settled()
            assert listener.session == name
            held.append(listener)
            # What the other node offered in vain is to be had again a moment later.
            await world.settle()
        late = SessionInbox(here)
        await asyncio.sleep(1)
        # A session that is released is to be had at once.
        held[3].receiver.close()
        await late.settled()
        assert late.session == names[3]

    simulate(tmp_path, story)


@both_kinds
def test_many_wait_and_each_new_session_goes_to_one_of_them(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        waiting = [
            SessionInbox(door, timeout_ms=60_000) for _ in range(10) for door in (here, there)
        ]
        await world.settle()
        for n in range(20):
            await send(there, f"new {n}", b"x")
        await asyncio.gather(*(each.settled(20) for each in waiting))
        assert sorted(each.session or "" for each in waiting) == sorted(
            f"new {n}" for n in range(20)
        )

    for seed in range(3):
        place = tmp_path / str(seed)
        place.mkdir()
        simulate(place, story, seed)


@both_kinds
def test_T6_deferred_messages_are_only_for_who_holds_their_session(
    tmp_path: Path, queue: str
) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        await send(here, "s", b"1", b"2")
        holder = await SessionInbox(here, "s").settled()
        holder.credit(2)
        await world.settle()
        assert await here.settle(holder.got, Settlement(Outcome.DEFER)) == {}
        one, two = (got.read.sequence for got in holder.got)
        (message,) = await deferred(here, holder.receiver, one)
        assert await here.settle([message]) == {}
        # Who holds another session has no part in this one.
        other = await SessionInbox(here, "t").settled()
        with pytest.raises((MessageNotFound, SessionLockLost)):
            await deferred(here, other.receiver, two)
        # Nor has who held it, whoever has it now.
        holder.close()
        await world.settle()
        with pytest.raises(SessionLockLost):
            await deferred(here, holder.receiver, two)
        successor = await SessionInbox(there, "s").settled()
        with pytest.raises(SessionLockLost):
            await deferred(here, holder.receiver, two)
        with pytest.raises(SessionLockLost):
            await deferred(here, None, two)
        (message,) = await deferred(there, successor.receiver, two)
        assert message.body == b"2"
        # Nor has who lost it to time.
        await there.settle([message], Settlement(Outcome.DEFER))
        await asyncio.sleep(LOCK_MS / 1000 + 1)
        with pytest.raises(SessionLockLost):
            await deferred(there, successor.receiver, two)

    simulate(tmp_path, story)


async def deferred(door: Door, holder: SessionReceiver | None, sequence: int) -> list[Got]:
    future: asyncio.Future[list[Got]] = asyncio.get_running_loop().create_future()

    def done(messages: list[Delivered], refusal: Refusal | None) -> None:
        if refusal is not None:
            future.set_exception(refusal)
        else:
            future.set_result([Got(each.token, read(each.payload)) for each in messages])

    numbered.receive_deferred(
        door.node, door.entity, SubQueue.ACTIVE, [sequence], done, delete=False, holder=holder
    )
    return await future


def test_without_a_session_the_wait_ends_in_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        here, _ = doors(world, "p")
        begun_s = world.loop.time()
        listener = await SessionInbox(here).settled(20)
        assert isinstance(listener.lost[0], OperationTimedOut)
        assert world.loop.time() - begun_s == pytest.approx(TIMEOUT_MS / 1000, abs=0.1)
        listener.receiver.close()
        # Nobody remembers it: the next session is another's.
        await send(here, "s", b"x")
        assert (await SessionInbox(here).settled()).session == "s"

    simulate(tmp_path, story)


@both_kinds
def test_a_lock_that_ends_counts_what_was_outstanding(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        await send(here, "s", b"1", b"2", b"3")
        first = await SessionInbox(there, "s").settled()
        first.receiver.set_credit(2)
        await world.settle()
        await asyncio.sleep(LOCK_MS / 2000)
        reply = await first.ask(first.receiver.renew)
        assert reply.number > first.until_ms
        await asyncio.sleep(0.9 * LOCK_MS / 1000)
        assert not first.lost
        second = SessionInbox(here, timeout_ms=60_000)
        await second.settled(20)
        await world.settle()
        assert isinstance(first.lost[0], SessionLockLost)
        assert second.session == "s"
        second.receiver.set_credit(10)
        await world.settle()
        found = [(got.body, got.read.deliveries) for got in second.got]
        assert found == [(b"1", 1), (b"2", 1), (b"3", 0)]
        assert (await first.ask(first.receiver.renew)).refusal is not None

    simulate(tmp_path, story)


def test_an_abandoned_message_goes_before_those_behind_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        here, _ = doors(world, "p")
        await send(here, "s", b"1", b"2")
        listener = await SessionInbox(here, "s").settled()
        listener.receiver.set_credit(1)
        await world.settle()
        settling = asyncio.ensure_future(here.settle(listener.got, ABANDON))
        await asyncio.sleep(0)
        listener.receiver.set_credit(2)
        assert await settling == {}
        await world.settle()
        assert listener.bodies == [b"1", b"1", b"2"]

    simulate(tmp_path, story)


@both_kinds
def test_T6_state_outlives_a_crash_and_a_lock_does_not(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, _ = doors(world, queue)
        entity = here.entity
        partition = entity.partitions[index_of("s", entity.fragments)]
        owner = world.store_of(queue, partition) % 2
        other = world.nodes[1 - owner]
        await send(here, "s", b"1")
        listener = await SessionInbox(Door(other, queue), "s").settled()
        receiver = listener.receiver
        assert (await listener.ask(receiver.get_state)).content is None
        assert not (await listener.ask(lambda done: receiver.set_state(b"kept", done))).condition
        world.crash(owner)
        await asyncio.sleep(1)
        assert isinstance(listener.lost[0], SessionLockLost)
        await world.start_node(owner)
        await world.until(world.connected)
        again = await SessionInbox(Door(other, queue)).settled()
        assert again.session == "s"
        assert (await again.ask(again.receiver.get_state)).content == b"kept"
        again.receiver.set_credit(5)
        await world.settle()
        assert [(got.body, got.read.deliveries) for got in again.got] == [(b"1", 0)]

    simulate(tmp_path, story)


def test_a_gateway_that_dies_leaves_its_sessions_free(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, "p")
        names = [f"s{n}" for n in range(8)]
        for name in names:
            await send(here, name, b"x")
        held = [await SessionInbox(there, name).settled() for name in names]
        assert not any(each.lost for each in held)
        for name in names:
            taken = await SessionInbox(here, name).settled()
            assert isinstance(taken.lost[0], SessionCannotBeLocked)
            taken.receiver.close()
        world.crash(1)
        await world.start_node(1)
        await world.until(world.connected)
        for name in names:
            assert not (await SessionInbox(here, name).settled()).lost

    simulate(tmp_path, story)


def test_a_store_that_fails_takes_its_locks_away(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        here, _ = doors(world, "c")
        await send(here, "s", b"1")
        listener = await SessionInbox(here, "s").settled()
        store = world.store_of("c", 0)
        world.disks[store].fail()
        refusals = await here.sending([incoming(b"2", session="t")]).refusals()
        assert refusals != [None]
        await world.until(lambda: bool(listener.lost))
        assert isinstance(listener.lost[0], SessionLockLost)
        again = await SessionInbox(here, timeout_ms=60_000).settled(20)
        assert again.session == "s"

    simulate(tmp_path, story)


@both_kinds
def test_what_says_no_session_is_refused_by_itself(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, _ = doors(world, queue)
        sending = here.sending(
            [incoming(b"1", session="s")], [incoming(b"2")], [incoming(b"3", session="s")]
        )
        first, second, third = await sending.refusals()
        assert (first, third) == (None, None)
        assert isinstance(second, InvalidOperation)

    simulate(tmp_path, story)


@both_kinds
def test_A1_sessions_are_listed_page_by_page(tmp_path: Path, queue: str) -> None:
    async def story(world: World) -> None:
        here, there = doors(world, queue)
        names = {f"s{n:03}" for n in range(50)}
        for name in names:
            await send(here, name, b"x", b"y")
        listener = await SessionInbox(there, "only state").settled()
        await listener.ask(lambda done: listener.receiver.set_state(b"x", done))

        async def page(since_ms: int, skip: int, top: int) -> list[str]:
            answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

            def done(found: list[str], refusal: Refusal | None) -> None:
                assert refusal is None
                answer.set_result(found)

            here.node.session_lists.page(here.entity, since_ms, skip, top, done)
            return await answer

        found: list[str] = []
        while more := await page(-1, len(found), 7):
            found += more
        assert len(found) == 51
        assert set(found) == names | {"only state"}
        # Somewhere in the middle, without having been before.
        assert await page(-1, 20, 11) == found[20:31]
        assert await page(0, 0, 10) == ["only state"]
        assert await page(1 << 50, 0, 10) == []

    simulate(tmp_path, story)
