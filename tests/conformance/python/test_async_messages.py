"""What else the vendor's asynchronous client does: batches, iterators, waiting, large, renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageSizeExceededError

WAIT_S = 5
SHORT_WAIT_S = 0.3
LOCK_S = 5

Work = Callable[[ServiceBusClient], Awaitable[None]]
Run = Callable[[Work], None]


@pytest.fixture
def run(live_namespace: Any) -> Run:
    """Runs a test's work with an open client."""

    async def with_client(work: Work) -> None:
        text = live_namespace.connection_string
        async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            await work(client)

    return lambda work: asyncio.run(with_client(work))


async def take(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    """Receive until there are so many, or none come."""
    messages: list[Any] = []
    while len(messages) < count:
        batch = await receiver.receive_messages(count - len(messages), max_wait_time=WAIT_S)
        if not batch:
            break
        messages += batch
    return messages


def test_what_is_sent_alone_as_a_list_and_as_a_batch_comes_back_once(run: Run, queue: str) -> None:
    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("alone"))
            await sender.send_messages([ServiceBusMessage(f"list {n:02}") for n in range(20)])
            batch = await sender.create_message_batch()
            for n in range(20):
                batch.add_message(ServiceBusMessage(f"batch {n:02}"))
            await sender.send_messages(batch)
        async with client.get_queue_receiver(queue, prefetch_count=10) as receiver:
            messages = await take(receiver, 41)
            await asyncio.gather(*(receiver.complete_message(message) for message in messages))
            assert not await receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)
        expected = ["alone", *(f"{kind} {n:02}" for kind in ("batch", "list") for n in range(20))]
        assert sorted(map(str, messages)) == sorted(expected)

    run(work)


def test_an_iterator_gives_each_message_once_as_it_comes(run: Run, queue: str) -> None:
    async def work(client: ServiceBusClient) -> None:
        seen: list[str] = []
        async with (
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue, max_wait_time=1) as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("0"))
            async for message in receiver:
                seen.append(str(message))
                await receiver.complete_message(message)
                if len(seen) < 10:
                    # The receiver is waiting when the next one is sent.
                    await sender.send_messages(ServiceBusMessage(str(len(seen))))
        assert seen == [str(number) for number in range(10)]

    run(work)


def test_large_messages_go_both_ways_and_too_large_ones_are_refused(run: Run, queue: str) -> None:
    body = bytes(range(256)) * 1000

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(body))
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(body * 2))
        async with client.get_queue_receiver(queue) as receiver:
            (message,) = await take(receiver, 1)
            assert b"".join(message.body) == body
            await receiver.complete_message(message)

    run(work)


def test_a_renewer_keeps_a_lock_alive(run: Run, new_queue: Callable[..., str]) -> None:
    queue = new_queue(lock_duration=f"PT{LOCK_S}S", enable_partitioning=True)

    async def work(client: ServiceBusClient) -> None:
        async with (
            AutoLockRenewer() as renewer,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
            client.get_queue_receiver(queue) as other,
        ):
            await sender.send_messages(ServiceBusMessage("slow work"))
            (message,) = await take(receiver, 1)
            renewer.register(receiver, message, max_lock_renewal_duration=30)
            # Longer than the lock: nobody else gets the message meanwhile.
            assert not await other.receive_messages(1, max_wait_time=1.2 * LOCK_S)
            await receiver.complete_message(message)

    run(work)
