"""By lock token: any node finds the message, and nobody settles what is not theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import InvalidArgument, InvalidOperation, MessageLockLost
from partibus.broker.records import SubQueue
from partibus.broker.settlement import ABANDON, COMPLETE, Outcome, Settlement
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.world import World

PARTITIONED = QueueDescription("p", enable_partitioning=True)
OTHER = QueueDescription("other")
DEAD = Settlement(Outcome.DEAD_LETTER)


async def world_of_two(loop: VirtualLoop, folder: Path) -> World:
    return await World(loop, folder, PARTITIONED, OTHER, nodes=2, stores=4).start()


@simulated
async def test_tokens_of_many_fragments_are_settled_in_one_call(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await world_of_two(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(*[b"x"] * 300)
    got = await door.receiver().take(300)
    assert await Door(world.nodes[1], "p").settle(got) == {}
    refused = await door.settle(got[:2])
    assert {type(each) for each in refused.values()} == {MessageLockLost}
    await world.stop()


@simulated
async def test_strange_tokens_are_lost_locks_and_spoil_nothing(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await world_of_two(loop, folder)
    door = Door(world.nodes[0], "p")
    await door.send(b"a")
    got = await door.receiver().take(1)
    strange = [Got(token, got[0].read) for token in (b"", b"x", b"\xff" * 16, bytes(16))]
    for settlement in (COMPLETE, ABANDON):
        refused = await door.settle(strange, settlement)
        assert {type(each) for each in refused.values()} == {MessageLockLost}
    refused = await door.settle([*strange, *got])
    assert set(refused) == {each.token for each in strange}
    lost, _ = await door.renew(strange)
    assert len(lost) == 4
    assert await door.settle([]) == {}
    await world.stop()


@simulated
async def test_a_token_settles_nothing_of_another_queue(loop: VirtualLoop, folder: Path) -> None:
    world = await world_of_two(loop, folder)
    door, stranger = Door(world.nodes[0], "p"), Door(world.nodes[0], "other")
    await door.send(b"a")
    got = await door.receiver().take(1)
    assert set(await stranger.settle(got)) == {got[0].token}
    assert set((await stranger.renew(got))[0]) == {got[0].token}
    assert await door.settle(got) == {}
    await world.stop()


@pytest.mark.parametrize("node", [0, 1])
def test_refusals_reach_who_asked_from_whichever_node(tmp_path: Path, node: int) -> None:
    @simulated
    async def scenario(loop: VirtualLoop, folder: Path) -> None:
        world = await world_of_two(loop, folder)
        door = Door(world.nodes[node], "p")
        await door.send(*[b"a"] * 64)
        got = await door.receiver().take(64)
        bad = await door.settle(got, Settlement(Outcome.ABANDON, properties=b"\xc1"))
        assert {type(each) for each in bad.values()} == {InvalidArgument}
        assert await door.settle(got, DEAD) == {}
        dead = await door.receiver(subqueue=SubQueue.DEAD_LETTER).take(64)
        refused = await door.settle(dead, DEAD)
        assert {type(each) for each in refused.values()} == {InvalidOperation}
        assert await door.settle(dead) == {}
        await world.stop()

    scenario(tmp_path)
