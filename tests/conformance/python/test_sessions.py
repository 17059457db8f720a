"""Message sessions with the vendor's client, on queues of both kinds (T6, P4, A1)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from partibus.client import Client, Message

LOCK_S = 5
WAIT_S = 10
SHORT_WAIT_S = 0.3


@pytest.fixture
def client(live_namespace: Any) -> Iterator[ServiceBusClient]:
    text = live_namespace.connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def sessions(request: pytest.FixtureRequest, new_queue: Callable[..., str]) -> str:
    """A queue of either kind that requires sessions, with the shortest locks there are."""
    return new_queue(
        requires_session=True,
        lock_duration=timedelta(seconds=LOCK_S),
        enable_partitioning=request.param,
    )


def send(client: ServiceBusClient, queue: str, session: str, *bodies: str) -> None:
    send_all(client, queue, *((session, body) for body in bodies))


def send_all(client: ServiceBusClient, queue: str, *messages: tuple[str, str]) -> None:
    """Send messages of these sessions, one by one."""
    with client.get_queue_sender(queue) as sender:
        for session, body in messages:
            sender.send_messages(ServiceBusMessage(body, session_id=session))


def take(
    receiver: ServiceBusReceiver, count: int, wait_s: float = WAIT_S
) -> list[ServiceBusReceivedMessage]:
    taken: list[ServiceBusReceivedMessage] = []
    while len(taken) < count:
        batch = receiver.receive_messages(count - len(taken), max_wait_time=wait_s)
        assert batch, f"{len(taken)} of {count} came"
        taken += batch
    return taken


def test_T6_a_session_comes_in_order_to_who_named_it(
    client: ServiceBusClient, sessions: str
) -> None:
    send_all(client, sessions, *((name, f"{name}{n}") for n in range(10) for name in "ab"))
    with client.get_queue_receiver(sessions, session_id="a") as receiver:
        assert receiver.session.session_id == "a"
        messages = take(receiver, 10)
        assert [str(message) for message in messages] == [f"a{n}" for n in range(10)]
        assert {message.session_id for message in messages} == {"a"}
        for message in messages:
            receiver.complete_message(message)
        assert not receiver.receive_messages(max_wait_time=SHORT_WAIT_S)


def test_T6_the_next_available_session_is_the_one_that_waits_longest(
    client: ServiceBusClient, sessions: str
) -> None:
    names = ("first", "second", "third")
    send_all(client, sessions, *((name, f"of {name}") for name in names))
    receivers = []
    for session in names:
        receiver = client.get_queue_receiver(sessions, session_id=NEXT_AVAILABLE_SESSION)
        receivers.append(receiver)
        (message,) = take(receiver, 1)
        assert receiver.session.session_id == session
        assert str(message) == f"of {session}"
        left_s = (receiver.session.locked_until_utc - message.enqueued_time_utc).total_seconds()
        assert 0 < left_s <= LOCK_S + WAIT_S
        receiver.complete_message(message)
    for receiver in receivers:
        receiver.close()


def test_a_receiver_waits_for_a_session_to_come(client: ServiceBusClient, sessions: str) -> None:
    late = threading.Timer(1.0, send, (client, sessions, "late", "hello"))
    late.start()
    with client.get_queue_receiver(sessions, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "late"
        (message,) = take(receiver, 1)
        receiver.complete_message(message)
    late.join()


def test_a_session_is_one_receivers_and_free_again_uncounted_after_a_clean_close(
    client: ServiceBusClient, sessions: str
) -> None:
    send(client, sessions, "s", "1", "2")
    with client.get_queue_receiver(sessions, session_id="s") as first:
        assert [str(message) for message in take(first, 2)] == ["1", "2"]
        with pytest.raises(SessionCannotBeLockedError):
            client.get_queue_receiver(sessions, session_id="s").__enter__()
    with client.get_queue_receiver(sessions, session_id=NEXT_AVAILABLE_SESSION) as second:
        messages = take(second, 2)
        assert [(str(m), m.delivery_count) for m in messages] == [("1", 0), ("2", 0)]
        for message in messages:
            second.complete_message(message)


def test_a_lost_session_ends_its_link_and_counts_what_was_outstanding(
    client: ServiceBusClient, sessions: str
) -> None:
    send(client, sessions, "s", "held", "never seen")
    with client.get_queue_receiver(sessions, session_id="s") as first:
        (held,) = first.receive_messages(1, max_wait_time=WAIT_S)
        time.sleep(1.3 * LOCK_S)
        with pytest.raises(SessionLockLostError):
            first.complete_message(held)
        with pytest.raises(SessionLockLostError):
            first.session.renew_lock()
        with pytest.raises(ServiceBusError):
            first.receive_messages(max_wait_time=1)
        with client.get_queue_receiver(sessions, session_id="s") as second:
            messages = take(second, 2)
            assert [(str(m), m.delivery_count) for m in messages] == [
                ("held", 1),
                ("never seen", 0),
            ]


def test_a_renewed_session_lasts(client: ServiceBusClient, sessions: str) -> None:
    send(client, sessions, "s", "slow work")
    with (
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(sessions, session_id="s") as receiver,
    ):
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
        (message,) = take(receiver, 1)
        time.sleep(1.4 * LOCK_S)
        receiver.complete_message(message)


def test_T6_state_is_kept_with_the_session_until_it_is_cleared(
    client: ServiceBusClient, sessions: str
) -> None:
    with client.get_queue_receiver(sessions, session_id="s") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"page 7")
        assert receiver.session.get_state() == b"page 7"
        receiver.session.set_state("page 8")
        with pytest.raises(ServiceBusError, match="larger"):
            receiver.session.set_state(bytes(300_000))
    with client.get_queue_receiver(sessions, session_id="s") as receiver:
        assert receiver.session.get_state() == b"page 8"
        receiver.session.set_state(b"")
        assert receiver.session.get_state() == b""
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_an_abandoned_message_comes_again_next_and_dies_after_its_last_chance(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    queue = new_queue(requires_session=True, max_delivery_count=3, enable_partitioning=True)
    send(client, queue, "s", "poison", "after")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        for count in range(3):
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert (str(message), message.delivery_count) == ("poison", count)
            receiver.abandon_message(message)
        (message,) = take(receiver, 1)
        assert str(message) == "after"
        receiver.dead_letter_message(message, reason="seen enough")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        reasons = {str(m): m.dead_letter_reason for m in take(dead, 2)}
        assert reasons == {"poison": "MaxDeliveryCountExceeded", "after": "seen enough"}


def test_a_session_can_be_received_and_deleted(client: ServiceBusClient, sessions: str) -> None:
    send(client, sessions, "s", *(str(n) for n in range(20)))
    with client.get_queue_receiver(
        sessions, session_id="s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert [str(m) for m in take(receiver, 20)] == [str(n) for n in range(20)]
    with client.get_queue_receiver(sessions, session_id="s") as receiver:
        assert not receiver.receive_messages(max_wait_time=SHORT_WAIT_S)


def test_a_long_session_comes_whole_and_in_order(client: ServiceBusClient, sessions: str) -> None:
    with client.get_queue_sender(sessions) as sender:
        for start in range(0, 1000, 100):
            bodies = [str(n) for n in range(start, start + 100)]
            sender.send_messages([ServiceBusMessage(body, session_id="long") for body in bodies])
    with client.get_queue_receiver(sessions, session_id="long", prefetch_count=50) as receiver:
        got: list[str] = []
        while len(got) < 1000:
            batch = take(receiver, 1)
            got += [str(m) for m in batch]
            for message in batch:
                receiver.complete_message(message)
        assert got == [str(n) for n in range(1000)]


def test_messages_and_receivers_must_say_their_session(
    client: ServiceBusClient, sessions: str, queue: str
) -> None:
    with client.get_queue_sender(sessions) as sender:
        with pytest.raises(ServiceBusError, match="SessionId") as refused:
            sender.send_messages(ServiceBusMessage("no session"))
        assert "not-allowed" in str(refused.value)
        sender.send_messages(ServiceBusMessage("fine", session_id="s"))
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        client.get_queue_receiver(sessions).__enter__()
    with pytest.raises(ServiceBusError, match="sessionful"):
        client.get_queue_receiver(queue, session_id="s").__enter__()


def test_many_sessions_many_receivers_nothing_lost_and_all_in_order(
    client: ServiceBusClient, live_namespace: Any, sessions: str
) -> None:
    names = [f"session {n}" for n in range(30)]
    send_all(client, sessions, *((name, str(n)) for n in range(5) for name in names))

    def work(_: int) -> dict[str, list[str]]:
        mine: dict[str, list[str]] = {}
        text = live_namespace.connection_string
        with ServiceBusClient.from_connection_string(text, retry_total=0) as own:
            for _ in range(len(names) // 6):
                with own.get_queue_receiver(
                    sessions, session_id=NEXT_AVAILABLE_SESSION
                ) as receiver:
                    messages = take(receiver, 5)
                    mine[str(receiver.session.session_id)] = [str(m) for m in messages]
                    for message in messages:
                        receiver.complete_message(message)
        return mine

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))
    seen = {name: bodies for result in results for name, bodies in result.items()}
    assert sorted(seen) == sorted(names)
    assert sum(len(result) for result in results) == len(names)
    assert all(bodies == [str(n) for n in range(5)] for bodies in seen.values())


def test_T6_the_asynchronous_client_accepts_keeps_state_and_renews(
    live_namespace: Any, sessions: str
) -> None:
    async def scenario() -> None:
        async with AsyncClient.from_connection_string(
            live_namespace.connection_string, retry_total=0
        ) as client:
            async with client.get_queue_sender(sessions) as sender:
                for session in ("a", "b"):
                    await sender.send_messages(
                        [ServiceBusMessage(str(n), session_id=session) for n in range(20)]
                    )
            seen = set()
            for _ in range(2):
                async with client.get_queue_receiver(
                    sessions, session_id=NEXT_AVAILABLE_SESSION, prefetch_count=10
                ) as receiver:
                    session = receiver.session
                    assert session.session_id is not None
                    seen.add(session.session_id)
                    before = session.locked_until_utc
                    assert await session.renew_lock() >= before
                    assert await session.get_state() is None
                    await session.set_state(session.session_id)
                    bodies: list[str] = []
                    while len(bodies) < 20:
                        batch = await receiver.receive_messages(20, max_wait_time=WAIT_S)
                        assert batch
                        for message in batch:
                            bodies.append(str(message))
                            await receiver.complete_message(message)
                    assert bodies == [str(n) for n in range(20)]
            assert seen == {"a", "b"}
            async with client.get_queue_receiver(sessions, session_id="b") as receiver:
                assert await receiver.session.get_state() == b"b"
                with pytest.raises(SessionCannotBeLockedError):
                    await client.get_queue_receiver(sessions, session_id="b").__aenter__()

    asyncio.run(scenario())


def test_A1_our_own_client_lists_sessions(live_namespace: Any, sessions: str) -> None:
    with Client.from_connection_string(live_namespace.connection_string) as client:
        names = [f"session {n}" for n in range(150)]
        with client.sender(sessions) as sender:
            for name in names:
                sender.send(Message(b"x", session_id=name))
        assert sorted(client.list_sessions(sessions)) == sorted(names)
        with client.accept_session(sessions, "session 7") as session:
            (message,) = session.receive(1)
            session.complete(message)
            session.set_state(b"done")
            assert session.state() == b"done"
            session.renew()
        assert sorted(client.list_sessions(sessions)) == sorted(names)
