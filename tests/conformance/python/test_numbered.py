"""The vendor's blocking client: peek, deferral, scheduling, times to live, on both kinds of queue.

In this process, so that the clock can be put forward; on disk, so that it can be restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityDisabledError,
    ServiceBusError,
)

from partibus.testing.namespace import Namespace

WAIT_S = 2
SHORT_WAIT_S = 0.3
HOUR = timedelta(hours=1)
DEAD = ServiceBusSubQueue.DEAD_LETTER
ROUNDS_MAX = 400


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace(tmp_path) as namespace:
        yield namespace


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def make_queue(request: pytest.FixtureRequest, namespace: Namespace) -> Callable[..., str]:
    def make(**properties: Any) -> str:
        return namespace.create_queue("q", enable_partitioning=request.param, **properties)

    return make


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    return make_queue()


@pytest.fixture
def client(namespace: Namespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        namespace.connection_string, retry_total=0
    ) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *bodies: str, **properties: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, **properties))


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        batch = receiver.receive_messages(count - len(messages), max_wait_time=WAIT_S)
        if not batch:
            break
        messages += batch
    return messages


def peek_all(receiver: ServiceBusReceiver, count: int = 100) -> list[ServiceBusReceivedMessage]:
    """Peek until nothing comes, as the page asks."""
    found: list[ServiceBusReceivedMessage] = []
    # With 0 the client goes on behind the last message it received.
    cursor = 1
    for _ in range(ROUNDS_MAX):
        batch = receiver.peek_messages(count, sequence_number=cursor)
        if not batch:
            return found
        found += batch
        cursor = batch[-1].sequence_number + 1
    raise AssertionError("peek does not come to an end")


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def at(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


# Peek -----------------------------------------------------------------------------------------


def test_R4_R5_peek_repeated_until_empty_reaches_every_message_in_every_state(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, *(f"m{n}" for n in range(40)))
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), at(3600))
    with client.get_queue_receiver(queue) as receiver:
        assert not receiver.peek_messages(1, sequence_number=1 << 62)
        held = take(receiver, 2)
        receiver.defer_message(held[0])
        found = peek_all(receiver, 7)
        assert sorted(texts(found)) == sorted(["later", *(f"m{n}" for n in range(40))])
        states = {str(message): message.state for message in found}
        assert states.pop("later") is ServiceBusMessageState.SCHEDULED
        assert states.pop(str(held[0])) is ServiceBusMessageState.DEFERRED
        assert set(states.values()) == {ServiceBusMessageState.ACTIVE}
        assert {message.delivery_count for message in found if str(message) in states} == {0}
        assert all(message.locked_until_utc is None for message in found)
        receiver.complete_message(held[1])
    fresh = namespace.create_queue("fresh")
    with client.get_queue_receiver(fresh) as receiver:
        assert receiver.peek_messages(5) == []


def test_R5_a_peek_holds_at_most_256_kilobytes(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, *("x" * 100_000 for _ in range(5)), session_id=None, partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        assert [len(str(each)) for each in receiver.peek_messages(5)] == [100_000] * 2
        assert len(peek_all(receiver)) == 5


def test_R4_peek_steps_over_an_unavailable_fragment(
    namespace: Namespace, client: ServiceBusClient
) -> None:
    queue = namespace.create_queue("q", enable_partitioning=True)
    send(client, queue, *(f"m{n}" for n in range(200)))
    with client.get_queue_receiver(queue) as receiver:
        by_partition: dict[int, set[str]] = {}
        for message in peek_all(receiver):
            by_partition.setdefault(message.sequence_number >> 48, set()).add(str(message))
        assert set(by_partition) == set(range(1, 17))
        namespace.fragment(queue, 1).down()
        namespace.fragment(queue, 9).down()
        rest = set(texts(peek_all(receiver)))
        assert rest == {f"m{n}" for n in range(200)} - by_partition[1] - by_partition[9]


def test_dead_letters_are_peeked_and_deferred_by_their_own_path(
    client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, *(f"m{n}" for n in range(6)))
    with client.get_queue_receiver(queue) as receiver:
        for message in reversed(take(receiver, 6)):
            receiver.dead_letter_message(message, reason="why", error_description="because")
        assert peek_all(receiver) == []
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        found = peek_all(receiver, 2)
        assert sorted(texts(found)) == [f"m{n}" for n in range(6)]
        numbers = [message.sequence_number for message in found]
        assert numbers == sorted(numbers)
        assert found[0].dead_letter_reason == "why"
        deferred = take(receiver, 1)[0]
        receiver.defer_message(deferred)
        (again,) = receiver.receive_deferred_messages(deferred.sequence_number)
        receiver.complete_message(again)
        assert len(peek_all(receiver)) == 5


# Deferral -------------------------------------------------------------------------------------


def test_a_deferred_message_is_had_by_its_number_only_also_after_a_restart(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, "a", "b", partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        first, second = take(receiver, 2)
        receiver.defer_message(first)
        receiver.complete_message(second)
        assert receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S) == []
    namespace.restart()
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S) == []
        (found,) = receiver.receive_deferred_messages(first.sequence_number)
        assert (str(found), found.sequence_number) == ("a", first.sequence_number)
        assert found.delivery_count == 1
        # Nobody else gets it meanwhile.
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(first.sequence_number)
        receiver.renew_message_lock(found)
        receiver.abandon_message(found)
        (found,) = receiver.receive_deferred_messages(first.sequence_number)
        assert found.delivery_count == 2
        receiver.complete_message(found)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(first.sequence_number)
        assert peek_all(receiver) == []


def test_the_lock_of_a_deferred_message_ends_and_it_is_still_deferred(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver, 1)
        receiver.defer_message(message)
        (found,) = receiver.receive_deferred_messages(message.sequence_number)
        namespace.clock.advance(61)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(found)
        (found,) = receiver.receive_deferred_messages(message.sequence_number)
        receiver.dead_letter_message(found, reason="enough")
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        (dead,) = take(receiver, 1)
        assert (str(dead), dead.dead_letter_reason) == ("a", "enough")


def test_receive_and_delete_of_deferred_messages(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "a", "b", partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        numbers = []
        for message in take(receiver, 2):
            receiver.defer_message(message)
            numbers.append(message.sequence_number)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([*numbers, numbers[0] + 77])
        assert texts(receiver.receive_deferred_messages(numbers[::-1])) == ["b", "a"]
        assert peek_all(receiver) == []


def test_numbers_of_different_partitions_are_refused(
    namespace: Namespace, client: ServiceBusClient
) -> None:
    queue = namespace.create_queue("q", enable_partitioning=True)
    send(client, queue, *(f"m{n}" for n in range(40)))
    with client.get_queue_receiver(queue) as receiver:
        found = peek_all(receiver)
        numbers = [found[0].sequence_number, found[-1].sequence_number]
        with pytest.raises(ServiceBusError, match="different partitions"):
            receiver.receive_deferred_messages(numbers)
    with (
        client.get_queue_sender(queue) as sender,
        pytest.raises(ServiceBusError, match="different partitions"),
    ):
        sender.cancel_scheduled_messages(numbers)


# Scheduling -----------------------------------------------------------------------------------


def test_scheduled_messages_come_at_their_time_with_a_new_number_also_after_a_restart(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages(
            [ServiceBusMessage(f"s{n}", partition_key="k") for n in range(3)], at(3600)
        )
        by_note = ServiceBusMessage("noted", partition_key="k")
        by_note.scheduled_enqueue_time_utc = at(3700)
        past = ServiceBusMessage("past", partition_key="k")
        past.scheduled_enqueue_time_utc = at(-10)
        sender.send_messages([by_note, past])
        sender.cancel_scheduled_messages(numbers[1])
        with pytest.raises(MessageNotFoundError, match=str(numbers[1] & (1 << 48) - 1)):
            sender.cancel_scheduled_messages(numbers[1])
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    with client.get_queue_receiver(queue) as receiver:
        assert texts(take(receiver, 1)) == ["past"]
    namespace.restart()
    namespace.clock.advance(3590)
    with client.get_queue_receiver(queue) as receiver:
        states = {str(each): each.state for each in peek_all(receiver)}
        assert states["s0"] is states["s2"] is ServiceBusMessageState.SCHEDULED
    namespace.clock.advance(20)
    with client.get_queue_receiver(queue) as receiver:
        came = {str(each): each for each in take(receiver, 3)}
        assert set(came) == {"past", "s0", "s2"}
        assert came["s0"].sequence_number > numbers[2] + 2
        assert came["s2"].sequence_number == came["s0"].sequence_number + 1
        assert came["s0"].enqueued_time_utc > at(3590)
        for message in came.values():
            receiver.complete_message(message)
        namespace.clock.advance(100)
        (noted,) = take(receiver, 1)
        assert str(noted) == "noted"
    with client.get_queue_sender(queue) as sender, pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(numbers[0])


def test_scheduled_messages_of_many_keys_come_all(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender:
        for n in range(30):
            sender.schedule_messages(ServiceBusMessage(f"s{n}"), at(100 + n))
    namespace.clock.advance(200)
    with client.get_queue_receiver(queue) as receiver:
        assert sorted(texts(take(receiver, 30))) == sorted(f"s{n}" for n in range(30))


def test_scheduled_messages_are_numbered_where_duplicates_are_detected(
    namespace: Namespace, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(requires_duplicate_detection=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("before", message_id="0", partition_key="k"))
        numbers = sender.schedule_messages(
            [ServiceBusMessage(f"s{n}", message_id=n, partition_key="k") for n in "0121"], at(100)
        )
        # Those that were dropped have numbers that name nothing.
        assert [number & (1 << 48) - 1 for number in numbers] == [0, 2, 3, 0]
        for number in (numbers[0], numbers[3]):
            with pytest.raises(MessageNotFoundError):
                sender.cancel_scheduled_messages(number)
        sender.cancel_scheduled_messages(numbers[1])
    namespace.clock.advance(110)
    with client.get_queue_receiver(queue) as receiver:
        assert sorted(texts(take(receiver, 3))) == ["before", "s2"]


# Time to live ---------------------------------------------------------------------------------


def test_a_message_whose_time_is_over_is_gone(
    namespace: Namespace, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(default_message_time_to_live=HOUR)
    send(client, queue, "short", time_to_live=timedelta(seconds=30))
    send(client, queue, "clamped", time_to_live=timedelta(days=3))
    with client.get_queue_receiver(queue) as receiver:
        (clamped,) = [each for each in peek_all(receiver) if str(each) == "clamped"]
        assert clamped.time_to_live == HOUR
        assert clamped.expires_at_utc == clamped.enqueued_time_utc + HOUR
        raw = clamped.raw_amqp_message.properties
        assert raw.absolute_expiry_time == round(clamped.expires_at_utc.timestamp() * 1000)
        namespace.clock.advance(40)
        assert texts(take(receiver, 2)) == ["clamped"]


def test_a_locked_message_does_not_expire_until_its_lock_ends(
    namespace: Namespace, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(
        default_message_time_to_live=timedelta(seconds=20),
        dead_lettering_on_message_expiration=True,
    )
    send(client, queue, "done", "abandoned", "left", partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        done, abandoned, _ = take(receiver, 3)
        namespace.clock.advance(30)
        receiver.complete_message(done)
        receiver.abandon_message(abandoned)
        namespace.clock.advance(40)
        assert receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S) == []
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        dead = take(receiver, 2)
        assert sorted(texts(dead)) == ["abandoned", "left"]
        assert {message.dead_letter_reason for message in dead} == {"TTLExpiredException"}
        for message in dead:
            receiver.complete_message(message)


def test_messages_expire_without_a_receiver_but_not_deferred_scheduled_or_dead_ones(
    namespace: Namespace, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(
        default_message_time_to_live=timedelta(minutes=10),
        dead_lettering_on_message_expiration=True,
    )
    send(client, queue, "deferred", "dead", partition_key="k")
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled", partition_key="k"), at(1000))
    with client.get_queue_receiver(queue) as receiver:
        deferred, dead = take(receiver, 2)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead)
        send(client, queue, *(f"m{n}" for n in range(20)))
        namespace.clock.advance(700)
        eventually(lambda: len(peek_all(receiver)) == 2)
        assert sorted(texts(peek_all(receiver))) == ["deferred", "scheduled"]
        namespace.clock.advance(301)
        eventually(lambda: "scheduled" in texts(take_peek(receiver)))
        assert texts(take(receiver, 1)) == ["scheduled"]
    with client.get_queue_receiver(queue, sub_queue=DEAD) as receiver:
        eventually(lambda: len(peek_all(receiver)) == 21)


# Status -----------------------------------------------------------------------------------------


def test_a_change_of_status_reaches_open_links(
    namespace: Namespace, client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("a"))
        (message,) = take(receiver, 1)
        namespace.update_queue(queue, status="SendDisabled")
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("b"))
        with pytest.raises(MessagingEntityDisabledError):
            sender.schedule_messages(ServiceBusMessage("b"), at(60))
        receiver.abandon_message(message)
        namespace.update_queue(queue, status="ReceiveDisabled")
        sender.send_messages(ServiceBusMessage("b"))
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(1, max_wait_time=WAIT_S)
        namespace.update_queue(queue, status="Disabled")
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("c"))
        namespace.update_queue(queue, status="Active")
        sender.send_messages(ServiceBusMessage("c"))
        assert sorted(texts(take(receiver, 3))) == ["a", "b", "c"]


def test_an_idle_queue_is_deleted(namespace: Namespace, client: ServiceBusClient) -> None:
    queue = namespace.create_queue("idle", auto_delete_on_idle=timedelta(minutes=5))
    send(client, queue, "a")
    namespace.clock.advance(240)
    send(client, queue, "b")
    namespace.clock.advance(240)
    with client.get_queue_receiver(queue) as receiver:
        assert sorted(texts(peek_all(receiver))) == ["a", "b"]
    # Looked at every half minute.
    namespace.clock.advance(301)
    namespace.clock.advance(31)
    with pytest.raises(ServiceBusError), client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("c"))


def take_peek(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    return [m for m in peek_all(receiver) if m.state is ServiceBusMessageState.ACTIVE]


def eventually(true: Callable[[], bool]) -> None:
    """The sweep takes a moment of real time."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
