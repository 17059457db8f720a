"""Forwarding between entities: nothing is lost, nothing is doubled, what cannot go is set aside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import InvalidOperation, Refusal
from partibus.broker.message import Incoming, read_message
from partibus.broker.partitioning import index_of
from partibus.broker.records import FragmentKey, SubQueue
from partibus.broker.settlement import ABANDON, COMPLETE, Outcome, Settlement
from partibus.broker.transactions import Transaction
from partibus.runtime import forwarding
from partibus.runtime.discharging import discharge
from partibus.runtime.sending_via import ViaSender
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop, simulated
from partibus.testing.messages import incoming, payload
from partibus.testing.session_door import SessionInbox
from partibus.testing.world import World

LOCK_MS = 30_000
DEAD_LETTER = Settlement(Outcome.DEAD_LETTER, "why", "because")


def queue(name: str, **properties: object) -> QueueDescription:
    return QueueDescription(name, lock_ms=LOCK_MS, **properties)  # type: ignore[arg-type]


async def two_nodes(loop: VirtualLoop, folder: Path, *queues: QueueDescription) -> World:
    return await World(
        loop, folder, *queues, nodes=2, hop_ms=lambda _: 1, disk_ms=lambda _: 1
    ).start()


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


@pytest.mark.parametrize("source", [False, True], ids=["from conventional", "from partitioned"])
@pytest.mark.parametrize("target", [False, True], ids=["to conventional", "to partitioned"])
def test_F1_messages_are_forwarded_between_all_kinds_of_queues(
    source: bool, target: bool, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await two_nodes(
            loop,
            folder,
            queue("a", enable_partitioning=source, forward_to="b"),
            queue("b", enable_partitioning=target),
        )
        bodies = [b"%d" % each for each in range(60)]
        for node in (0, 1):
            door = Door(world.nodes[node], "a")
            await door.send(*bodies[node * 30 : node * 30 + 20])
            await door.send(*bodies[node * 30 + 20 : node * 30 + 30], key="k")
        got = await received(world, "b", 60)
        assert sorted(each.body for each in got) == sorted(bodies)
        partitions = {each.read.sequence >> 48 for each in got}
        assert len(partitions) > 1 if target else partitions == {0}
        await world.stop()

    run(tmp_path)


@simulated
async def test_F1_the_key_decides_the_fragment_at_the_destination(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(
        loop, folder, queue("a", forward_to="b"), queue("b", enable_partitioning=True)
    )
    door = Door(world.nodes[0], "a")
    for key in "klmn":
        await door.send(b"1" + key.encode(), b"2" + key.encode(), key=key)
    got = await received(world, "b", 8)
    for key in "klmn":
        own = [each for each in got if each.body[1:] == key.encode()]
        assert {each.read.sequence >> 48 for each in own} == {index_of(key, 16) + 1}
        assert [each.body[:1] for each in own] == [b"1", b"2"]
    await world.stop()


@simulated
async def test_F1_a_message_says_where_it_entered_first(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(
        loop, folder, queue("a", forward_to="b"), queue("b", forward_to="c"), queue("c")
    )
    await Door(world.nodes[0], "b").send(b"other")
    await Door(world.nodes[0], "a").send(b"one", b"two")
    got = {each.body: each.read.annotations for each in await received(world, "c", 3)}
    assert got[b"two"]["x-opt-enqueue-sequence-number"] == 2
    assert got[b"two"]["x-opt-sequence-number"] > 1
    assert "x-opt-deadletter-source" not in got[b"two"]
    await world.stop()


@pytest.mark.parametrize(("hops", "arrives"), [(4, True), (5, False)])
def test_F1_a_message_is_forwarded_four_times_at_most(
    hops: int, arrives: bool, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        chain = [queue(f"q{each}", forward_to=f"q{each + 1}") for each in range(hops)]
        world = await two_nodes(loop, folder, *chain, queue(f"q{hops}"))
        await Door(world.nodes[1], "q0").send(b"far")
        if arrives:
            await received(world, f"q{hops}", 1)
        else:
            [got] = await received(world, "q4", 1, SubQueue.TRANSFER_DEAD_LETTER)
            assert got.read.properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"
        await world.stop()

    run(tmp_path)


@simulated
async def test_F1_a_circle_ends_after_four_hops(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(
        loop, folder, queue("a", forward_to="b"), queue("b", forward_to="a"),
        queue("me", forward_to="me"),
    )  # fmt: skip
    await Door(world.nodes[0], "a").send(b"round")
    await Door(world.nodes[0], "me").send(b"round")
    await received(world, "a", 1, SubQueue.TRANSFER_DEAD_LETTER)
    await received(world, "me", 1, SubQueue.TRANSFER_DEAD_LETTER)
    await world.stop()


@simulated
async def test_F1_dead_letters_of_every_kind_are_forwarded(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(
        loop,
        folder,
        queue(
            "a",
            enable_partitioning=True,
            max_delivery_count=1,
            dead_letter_on_expiration=True,
            default_ttl_ms=60_000,
            forward_dead_letters_to="dead",
        ),
        queue("dead"),
    )
    door = Door(world.nodes[0], "a")
    await door.send(b"rejected", b"abandoned", b"lapsed")
    inbox = door.receiver()
    got = {each.body: each for each in await inbox.take(3)}
    inbox.close()
    await door.settle([got[b"rejected"]], DEAD_LETTER)
    await door.settle([got[b"abandoned"]], ABANDON)
    await door.send(b"expired")
    await asyncio.sleep(LOCK_MS / 1000 + 40)
    found = {each.body: each.read for each in await received(world, "dead", 4)}
    reasons = {body: read.properties["DeadLetterReason"] for body, read in found.items()}
    assert reasons == {
        b"rejected": "why",
        b"abandoned": "MaxDeliveryCountExceeded",
        b"lapsed": "MaxDeliveryCountExceeded",
        b"expired": "TTLExpiredException",
    }
    for read in found.values():
        assert read.annotations["x-opt-deadletter-source"] == "a"
        assert read.deliveries == 0
    await world.stop()


@simulated
async def test_F1_what_waits_when_forwarding_begins_is_forwarded_too(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, queue("a"), queue("b"))
    door = Door(world.nodes[0], "a")
    count = forwarding.TRANSFER_MESSAGES_MAX + 1000
    bodies = [b"%d" % each for each in range(count)]
    sending = door.sending([incoming(each) for each in bodies])
    assert await sending.refusals() == [None]
    inbox = door.receiver()
    [held] = await inbox.take(1)
    world.catalog.update_queue("a", {"ForwardTo": "b"}, 0)
    got = await received(world, "b", count - 1)
    assert [each.body for each in got] == bodies[1:]
    # Who received is told, and what was locked follows when its lock ends.
    assert isinstance(inbox.lost[0], InvalidOperation)
    await asyncio.sleep(LOCK_MS / 1000)
    [last] = await received(world, "b", 1)
    assert last.body == held.body
    # Forwarding ends, and the queue is a queue again.
    world.catalog.update_queue("a", {"ForwardTo": ""}, 0)
    await asyncio.sleep(2)
    await door.send(b"mine")
    await received(world, "a", 1)
    await world.stop()


@pytest.mark.parametrize(
    ("properties", "change", "reason"),
    [
        ({}, "delete", "MessagingEntityNotFound"),
        ({}, "disable", "MessagingEntityDisabled"),
        ({"requires_session": True}, "", "Session id is null."),
    ],
    ids=["deleted", "disabled", "sessions"],
)
def test_F1_what_cannot_be_forwarded_is_set_aside_with_the_reason(
    properties: dict[str, object], change: str, reason: str, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await two_nodes(loop, folder, queue("a", forward_to="b"), queue("b", **properties))
        if change == "delete":
            world.catalog.delete_queue("b", 1)
        elif change:
            world.catalog.update_queue("b", {"Status": "SendDisabled"}, 0)
        await asyncio.sleep(2)
        await Door(world.nodes[0], "a").send(b"x" * 2000, b"y" * 2000)
        got = await received(world, "a", 2, SubQueue.TRANSFER_DEAD_LETTER)
        assert [each.body[:1] for each in got] == [b"x", b"y"]
        for each in got:
            assert each.read.properties["DeadLetterReason"] == reason
            assert each.read.properties["DeadLetterErrorDescription"]
        await world.stop()

    run(tmp_path)


@simulated
async def test_F1_what_finds_no_room_is_set_aside_and_the_rest_arrives(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, queue("a", forward_to="b"), queue("b", max_size_mb=1024))
    node = world.nodes[world.store_of("b", 0) % 2]
    await Door(node, "b").send(b"first")
    [fragment] = [
        each
        for driver in node.host.drivers.values()
        for each in driver.fragments.values()
        if each.key.entity == world.entity("b").id
    ]
    # As if it held almost as much as it may.
    fragment.counters.bytes += 1024 * 1024 * 1024 - 20_000
    sending = Door(world.nodes[0], "a").sending([incoming(b"x" * 1000) for _ in range(64)])
    assert await sending.refusals() == [None]
    await asyncio.sleep(5)
    stuck = Door(world.nodes[0], "a").receiver(subqueue=SubQueue.TRANSFER_DEAD_LETTER)
    dead = await stuck.drain(100)
    arrived = await Door(world.nodes[0], "b").receiver().drain(100)
    assert len(dead) + len(arrived) == 65
    assert 10 < len(arrived) < 25
    assert dead[0].read.properties["DeadLetterReason"] == "QuotaExceeded"
    await world.stop()


@simulated
async def test_F1_sessions_at_either_end(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(
        loop,
        folder,
        queue("a", requires_session=True, enable_partitioning=True, forward_to="b"),
        queue("b", requires_session=True, enable_partitioning=True, forward_to="c"),
        queue("c", requires_session=True),
    )
    door = Door(world.nodes[0], "a")
    messages = [
        incoming(b"%s%d" % (name.encode(), each), session=name)
        for name in "st"
        for each in range(9)
    ]
    assert await door.sending(*([each] for each in messages)).refusals() == [None] * 18
    await asyncio.sleep(5)
    for name in "st":
        inbox = SessionInbox(Door(world.nodes[1], "c"), name)
        await inbox.settled(5)
        inbox.credit(20)
        await asyncio.sleep(1)
        assert [each.body for each in inbox.got] == [
            b"%s%d" % (name.encode(), each) for each in range(9)
        ]
        inbox.close()
    await world.stop()


@simulated
async def test_F1_a_session_that_somebody_holds_when_forwarding_begins_is_forwarded(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, queue("a", requires_session=True), queue("b"))
    door = Door(world.nodes[0], "a")
    sent = [incoming(b"%d" % each, session="s") for each in range(5)]
    assert await door.sending(sent).refusals() == [None]
    inbox = SessionInbox(door, "s")
    await inbox.settled(5)
    inbox.credit(2)
    await asyncio.sleep(1)
    assert len(inbox.got) == 2
    world.catalog.update_queue("a", {"ForwardTo": "b"}, 0)
    await asyncio.sleep(3)
    assert inbox.lost
    inbox.close()
    got = await received(world, "b", 5)
    assert sorted(each.body for each in got) == [b"%d" % each for each in range(5)]
    await world.stop()


@simulated
async def test_F1_the_destination_drops_what_it_has_seen(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(
        loop,
        folder,
        queue("a", forward_to="b"),
        queue("b", requires_duplicate_detection=True, enable_partitioning=True),
    )
    door = Door(world.nodes[0], "a")
    for body in (b"first", b"second"):
        sending = door.sending([incoming(body, message_id="same"), incoming(body, message_id="x")])
        assert await sending.refusals() == [None]
    got = await received(world, "b", 2)
    assert [each.body for each in got] == [b"first", b"first"]
    await world.stop()


@simulated
async def test_F1_the_time_to_live_goes_on_at_the_destination(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(
        loop,
        folder,
        queue("a", default_ttl_ms=20_000),
        queue("b", dead_letter_on_expiration=True, default_ttl_ms=60_000),
    )
    await Door(world.nodes[0], "a").send(b"mortal")
    await asyncio.sleep(15)
    world.catalog.update_queue("a", {"ForwardTo": "b"}, 0)
    await asyncio.sleep(3)
    inbox = Door(world.nodes[0], "b").receiver()
    [got] = await inbox.take(1)
    assert got.read.ttl_ms is not None
    assert 19_900 < got.read.ttl_ms < 20_500
    await Door(world.nodes[0], "b").settle([got], Settlement(Outcome.RELEASE))
    inbox.close()
    await asyncio.sleep(5)
    await received(world, "b", 1, SubQueue.DEAD_LETTER)
    await world.stop()


@simulated
async def test_F1_behind_a_destination_that_is_down_messages_stay_and_then_arrive_once(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(loop, folder, queue("a", forward_to="b"), queue("b"))
    home = world.nodes[world.store_of("b", 0) % 2]
    home.host.set_down(world.entity("b").id, 0, True)
    count = forwarding.TRANSFER_MESSAGES_MAX + 500
    door = Door(world.nodes[0], "a")
    for start in range(0, count, 500):
        bodies = [incoming(b"%d" % each) for each in range(start, min(start + 500, count))]
        assert await door.sending(bodies).refusals() == [None]
    await asyncio.sleep(60)
    source = world.entity("a")
    driver = world.nodes[world.store_of("a", 0) % 2].host.drivers[world.store_of("a", 0)]

    def active(subqueue: SubQueue) -> int:
        key = FragmentKey(source.id, source.incarnation, 0, subqueue)
        return driver.fragments[key].counters.active

    # Only so much is on its way; the rest is where it was.
    assert active(SubQueue.TRANSFER) == forwarding.TRANSFER_MESSAGES_MAX
    assert active(SubQueue.ACTIVE) == count - forwarding.TRANSFER_MESSAGES_MAX
    home.host.set_down(world.entity("b").id, 0, False)
    await asyncio.sleep(15)
    inbox = Door(world.nodes[1], "b").receiver()
    got = await inbox.take(count)
    assert [each.body for each in got] == [b"%d" % each for each in range(count)]
    assert await Door(world.nodes[1], "b").settle(got, COMPLETE) == {}
    assert active(SubQueue.TRANSFER) == active(SubQueue.ACTIVE) == 0
    await world.stop()


@simulated
async def test_F1_a_destination_that_is_gone_for_a_while_gets_keyless_messages_elsewhere(
    loop: VirtualLoop, folder: Path
) -> None:
    world = await two_nodes(
        loop, folder, queue("a", forward_to="b"), queue("b", enable_partitioning=True)
    )
    home = world.store_of("a", 0) % 2
    world.crash(1 - home)
    await asyncio.sleep(1)
    door = Door(world.nodes[home], "a")
    for each in range(32):
        await door.send(b"%d" % each)
    inbox = Door(world.nodes[home], "b").receiver()
    await inbox.take(32)
    await world.start_node(1 - home)
    await world.stop()


# Send-via -----------------------------------------------------------------------------------------

VIA = (
    queue("via", enable_partitioning=True),
    queue("target", enable_partitioning=True),
    queue("plain"),
)
FAULTS = ("none", "fail", "crash before", "crash after", "crash node")


class Transfer:
    """A transaction that completes a message and sends another via its queue."""

    def __init__(self, world: World, via: str, target: str) -> None:
        self.world = world
        self.via, self.target = Door(world.nodes[0], via), Door(world.nodes[0], target)

    async def begin(self) -> Transaction:
        sent = incoming(b"old", key="k")
        assert await self.via.sending([sent]).refusals() == [None]
        inbox = self.via.receiver()
        [old] = await inbox.take(1)
        inbox.close()
        transaction = Transaction(self.via.node.stores)
        transaction.settle(self.via.entity, [old.token], COMPLETE, 0)
        transaction.transfer(self.via.entity, self.target.entity, [via_message(b"new")], 0)
        return transaction

    def committing(self, transaction: Transaction) -> asyncio.Future[Refusal | None]:
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        discharge(self.via.node, transaction, done.set_result)
        return done


def via_message(body: bytes) -> Incoming:
    sent = payload(body, message_id=body.decode(), annotations={"x-opt-via-partition-key": "k"})
    return read_message(sent, len(sent), str)


async def left(world: World, name: str) -> list[bytes]:
    """Everything in a queue, when all locks have ended."""
    inbox = Door(world.nodes[0], name).receiver()
    got = await inbox.drain(100)
    inbox.close()
    return sorted(each.body for each in got)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("via", "target"), [("via", "target"), ("plain", "via"), ("via", "plain")])
def test_T5_completing_and_sending_via_are_one(
    via: str, target: str, fault: str, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await two_nodes(loop, folder, *VIA)
        entity = world.entity(via)
        partition = entity.partitions[index_of("k", entity.fragments) if via == "via" else 0]
        store = world.store_of(via, partition)
        transfer = Transfer(world, via, target)
        transaction = await transfer.begin()
        disk = world.disks[store]
        if fault == "fail":
            disk.fail()
        elif fault.startswith("crash") and fault != "crash node":
            disk.crash_in_commit(keeps=fault == "crash after")
        done = transfer.committing(transaction)
        if fault == "crash node":
            await asyncio.sleep(0.0005)
            world.crash(store % 2)
            await asyncio.sleep(1)
            await world.start_node(store % 2)
        await asyncio.sleep(LOCK_MS / 1000 + 15)
        found = await left(world, via), await left(world, target)
        assert found in (([], [b"new"]), ([b"old"], []))
        if fault == "none":
            assert done.result() is None
            assert found == ([], [b"new"])
        elif done.done() and done.result() is None:
            assert found == ([], [b"new"])
        await world.stop()

    run(tmp_path)


@simulated
async def test_T5_a_full_destination_is_waited_for(loop: VirtualLoop, folder: Path) -> None:
    world = await two_nodes(loop, folder, *VIA)
    home = world.nodes[world.store_of("plain", 0) % 2]
    await Door(home, "plain").send(b"first")
    plain = world.entity("plain")
    key = FragmentKey(plain.id, plain.incarnation, 0, SubQueue.ACTIVE)
    fragment = home.host.drivers[world.store_of("plain", 0)].fragments[key]
    fragment.counters.bytes += 1024 * 1024 * 1024
    sender = ViaSender(world.nodes[0], world.entity("via"), plain)
    refusals: list[Refusal | None] = []
    sender.send(
        [(0, [via_message(b"1")]), (1, [via_message(b"2")])], lambda _, r: refusals.append(r)
    )
    await asyncio.sleep(30)
    assert refusals == [None]
    assert await left(world, "plain") == [b"first"]
    fragment.counters.bytes -= 1024 * 1024 * 1024
    await asyncio.sleep(15)
    assert await left(world, "plain") == [b"1", b"2"]
    await world.stop()


@pytest.mark.parametrize("change", ["delete", "disable"])
def test_T5_what_its_destination_does_not_take_is_set_aside_where_it_was_sent_via(
    change: str, tmp_path: Path
) -> None:
    @simulated
    async def run(loop: VirtualLoop, folder: Path) -> None:
        world = await two_nodes(loop, folder, *VIA)
        sender = ViaSender(world.nodes[0], world.entity("via"), world.entity("plain"))
        if change == "delete":
            world.catalog.delete_queue("plain", 1)
        else:
            world.catalog.update_queue("plain", {"Status": "Disabled"}, 1)
        await asyncio.sleep(2)
        sender.send([(0, [via_message(b"1")])], lambda _, refusal: None)
        [got] = await received(world, "via", 1, SubQueue.TRANSFER_DEAD_LETTER)
        reason = "NotFound" if change == "delete" else "Disabled"
        assert got.read.properties["DeadLetterReason"] == f"MessagingEntity{reason}"
        await world.stop()

    run(tmp_path)
