"""Duplicates: accepted, dropped, and remembered on disk for their window (F2)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import FragmentUnavailable, QuotaExceeded
from partibus.broker.message import Incoming
from partibus.broker.records import Bucket, Changes, Digest, FragmentKey, Sighting
from partibus.runtime import duplicates
from partibus.store.sqlite import SqliteStore
from partibus.testing.door import Door
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming
from partibus.testing.world import World

WINDOW_MS = 20_000

T = TypeVar("T")


def once(name: str, **more: object) -> QueueDescription:
    return QueueDescription(
        name,
        requires_duplicate_detection=True,
        duplicate_window_ms=WINDOW_MS,
        **more,  # type: ignore[arg-type]
    )


CONVENTIONAL = once("c")
PARTITIONED = once("p", enable_partitioning=True)
QUEUES = (CONVENTIONAL, PARTITIONED)


def copies(*ids: str, key: str | None = None) -> list[list[Incoming]]:
    """Messages, each sent by itself."""
    return [[incoming(each.encode(), message_id=each, key=key)] for each in ids]


async def bodies(door: Door) -> list[bytes]:
    inbox = door.receiver()
    got = await inbox.drain(100)
    assert await door.settle(got) == {}
    inbox.close()
    return sorted(each.body for each in got)


@pytest.mark.parametrize("queue", ["c", "p"])
def test_F2_a_repeated_message_is_accepted_and_dropped(queue: str, tmp_path: Path) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await World(loop, folder, *QUEUES).start()
        door = Door(world.nodes[0], queue)
        for _ in range(2):
            # Together in one turn, and again when all of it is durable.
            sending = door.sending(*copies("a", "b", "a", "a"))
            assert await sending.refusals() == [None] * 4
        assert await bodies(door) == [b"a", b"b"]
        # Also when the message itself is long gone.
        assert await door.sending(*copies("a")).refusals() == [None]
        assert await bodies(door) == []
        await world.stop()

    run(tmp_path)


@simulated
async def test_F2_copies_meet_in_one_fragment_by_their_message_id(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES, nodes=2, hop_ms=lambda _: 1).start()
    ids = [f"m{number}" for number in range(40)]
    for node in (0, 1):
        assert not any(await Door(world.nodes[node], "p").sending(*copies(*ids)).refusals())
    assert await bodies(Door(world.nodes[1], "p")) == sorted(each.encode() for each in ids)
    await world.stop()


@simulated
async def test_F2_the_same_id_under_another_key_is_another_message_on_a_partitioned_queue(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    for queue, expected in (("p", 2), ("c", 1)):
        door = Door(world.nodes[0], queue)
        assert not any(await door.sending(*copies("a", key="k"), *copies("a", key="l")).refusals())
        assert len(await bodies(door)) == expected
    await world.stop()


@simulated
async def test_F2_duplicates_inside_a_batch_are_dropped_and_the_rest_of_it_is_kept(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    batch = [message for [message] in copies("a", "b", "a", "c")]
    assert await door.sending(batch).refusals() == [None]
    assert await door.sending([*batch, *copies("d")[0]]).refusals() == [None]
    assert await bodies(door) == [b"a", b"b", b"c", b"d"]
    counters = next(iter(world.nodes[0].host.drivers[world.store_of("c", 0)].fragments.values()))
    assert counters.counters.accepted == 4
    assert counters.counters.next_position == 5
    await world.stop()


@simulated
async def test_F2_an_id_may_be_used_again_once_the_window_since_its_first_use_has_passed(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    for _ in range(4):
        # Repeats do not prolong it.
        assert await door.sending(*copies("a")).refusals() == [None]
        await asyncio.sleep(WINDOW_MS / 1000 / 4 - 0.01)
    assert await bodies(door) == [b"a"]
    await asyncio.sleep(0.1)
    assert await door.sending(*copies("a")).refusals() == [None]
    assert await bodies(door) == [b"a"]
    assert await door.sending(*copies("a")).refusals() == [None]
    assert await bodies(door) == []
    await world.stop()


@simulated
async def test_F2_a_duplicate_is_not_answered_before_the_message_it_repeats_is_durable(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES, disk_ms=lambda _: 10).start()
    door = Door(world.nodes[0], "c")
    store = world.store_of("c", 0)
    first = door.sending(*copies("a"))
    await asyncio.sleep(0.015)
    # The commit is on its way to the disk, which fails: neither may count as accepted.
    second = door.sending(*copies("a"))
    world.disks[store].fail()
    refusals = [*await first.refusals(), *await second.refusals()]
    assert all(isinstance(refusal, FragmentUnavailable) for refusal in refusals)
    await world.until(lambda: world.nodes[0].host.drivers[store].up)
    assert await bodies(door) == []
    # What failed has left no history.
    assert await door.sending(*copies("a")).refusals() == [None]
    assert await bodies(door) == [b"a"]
    await world.stop()


@simulated
async def test_F2_a_refused_send_leaves_no_history(loop: VirtualLoop, folder: Path) -> None:
    world = await World(loop, folder, *QUEUES).start()
    door = Door(world.nodes[0], "c")
    assert await door.sending(*copies("a")).refusals() == [None]
    [fragment] = world.nodes[0].host.drivers[world.store_of("c", 0)].fragments.values()
    held = fragment.counters.bytes
    fragment.counters.bytes = 1 << 40
    [refusal] = await door.sending(*copies("b")).refusals()
    assert isinstance(refusal, QuotaExceeded)
    # A repeated message needs no room.
    assert await door.sending(*copies("a")).refusals() == [None]
    fragment.counters.bytes = held
    assert await door.sending(*copies("b")).refusals() == [None]
    assert await bodies(door) == [b"a", b"b"]
    await world.stop()


@simulated
async def test_F2_memory_holds_what_is_under_way_and_the_disk_what_a_window_reaches(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await World(loop, folder, *QUEUES, stores=1, disk_ms=lambda _: 2).start()
    door = Door(world.nodes[0], "c")
    driver = world.nodes[0].host.drivers[0]
    sizes = []
    for round_number in range(60):
        ids = [f"{round_number}/{number}" for number in range(50)]
        assert not any(await door.sending(*copies(*ids)).refusals())
        await asyncio.sleep(1)
        assert driver.duplicates._staged == {}
        sizes.append(len(world.disks[0]._durable._history))
    # 60 seconds of a 20 second window: the tables of the first are gone.
    assert max(sizes) <= 8
    await world.stop()


@simulated
async def test_more_than_one_look_can_hold_is_looked_up_in_portions(
    loop: VirtualLoop, folder: Path
) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(duplicates, "LOOK_DIGESTS_MAX", 3)
    try:
        world = await World(loop, folder, *QUEUES, disk_ms=lambda _: 1).start()
        door = Door(world.nodes[0], "c")
        sends = [door.sending(*copies(f"{n % 7}")) for n in range(30)]
        for sending in sends:
            assert await sending.refusals() == [None]
        assert await bodies(door) == [b"%d" % n for n in range(7)]
        await world.stop()
    finally:
        patch.undo()


class HistoryAgainstList(RuleBasedStateMachine):
    """Duplicate detection agrees with a list that forgets nothing and is searched in full.

    Sends come one by one and in crowds, from two nodes, over disks that take their time; nodes
    crash and come back; time passes.
    """

    @initialize()
    def start(self) -> None:
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
        self.run(self.world.start())
        # Queue, id, key, and when it was first accepted.
        self.accepted: list[tuple[str, str, str | None, float]] = []
        self.sent: dict[tuple[str, bytes], int] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        result = self.loop.run_until_complete(work)
        assert not self.loop.failures
        return result

    def is_new(self, queue: str, message_id: str, key: str | None) -> bool:
        return not any(
            (q, i) == (queue, message_id)
            and (queue == "c" or k == key)
            and self.loop.time() - at < WINDOW_MS / 1000 - 1
            for q, i, k, at in self.accepted
        )

    @rule(
        queue=st.sampled_from(("c", "p")),
        ids=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
        key=st.sampled_from((None, "k", "l")),
        node=st.integers(0, 1),
    )
    def send(self, queue: str, ids: list[str], key: str | None, node: int) -> None:
        batches = []
        expected = set()
        for each in ids:
            batches.append([incoming(each.encode(), message_id=each, key=key)])
            if self.is_new(queue, each, key):
                expected.add(each)
        door = Door(self.world.nodes[node], queue)

        async def work() -> None:
            assert not any(await door.sending(*batches).refusals())

        self.run(work())
        for each in expected:
            self.accepted.append((queue, each, key, self.loop.time()))
            place = queue, each.encode()
            self.sent[place] = self.sent.get(place, 0) + 1

    # Far from the window's end: a send takes its time, and either side of the end is right.
    @rule(seconds=st.sampled_from((1.0, 3.0, WINDOW_MS / 1000 + 2)))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        # What is about to end is not asked about.
        now = self.loop.time()
        ends = [now - at for _, _, _, at in self.accepted]
        if any(WINDOW_MS / 1000 - 3 < age < WINDOW_MS / 1000 + 1 for age in ends):
            self.run(asyncio.sleep(4))

    @rule(node=st.integers(0, 1))
    def crash(self, node: int) -> None:
        self.world.crash(node)
        self.run(self.world.start_node(node))
        self.run(self.world.until(self.world.connected))

    @precondition(lambda self: self.sent)
    @rule(queue=st.sampled_from(("c", "p")))
    def receive(self, queue: str) -> None:
        async def work() -> list[bytes]:
            return await bodies(Door(self.world.nodes[0], queue))

        found = self.run(work())
        expected = sorted(
            body for (q, body), count in self.sent.items() for _ in range(count) if q == queue
        )
        assert found == expected
        for place in [place for place in self.sent if place[0] == queue]:
            del self.sent[place]

    @invariant()
    def nothing_waits(self) -> None:
        for node in self.world.nodes.values():
            for driver in node.host.drivers.values():
                assert not driver.duplicates._waiting

    def teardown(self) -> None:
        if hasattr(self, "world"):
            for queue in ("c", "p"):
                self.receive(queue)
            self.run(self.world.stop())
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.run(asyncio.sleep(0))
            self.loop.close()
            self.folder.cleanup()


TestHistoryAgainstList = HistoryAgainstList.TestCase
TestHistoryAgainstList.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_the_history_survives_the_loss_of_a_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite", "x")
    changes = Changes(1, FragmentKey(1, 1, 0, 0), True)
    changes.sighted = [Sighting(Digest(1, 2), 5, Bucket(3, 0))]
    store.commit([changes])
    store.close()
    again = SqliteStore(tmp_path / "s.sqlite", "x")
    assert again.sighted([Digest(1, 2)], 0) == {Digest(1, 2): 5}
    assert again.forget(Bucket(3, 0).forgotten_ms)
    assert again.sighted([Digest(1, 2)], 0) == {}
    again.close()
