"""The vendor's asyncio client, unmodified, on both kinds of queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

WAIT_S = 2
SHORT_WAIT_S = 0.3


async def take(receiver: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        batch = await receiver.receive_messages(count - len(messages), max_wait_time=WAIT_S)
        if not batch:
            break
        messages += batch
    return messages


def connect(text: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def test_messages_go_round(live_namespace: Any, queue: str) -> None:
    async def scenario() -> None:
        async with connect(live_namespace.connection_string) as client:
            names = [f"{number:03}" for number in range(120)]
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage(names[0]))
                await sender.send_messages([ServiceBusMessage(name) for name in names[1:60]])
                batch = await sender.create_message_batch()
                for name in names[60:]:
                    batch.add_message(ServiceBusMessage(name))
                await sender.send_messages(batch)
            async with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
                messages = await take(receiver, 120)
                for message in messages:
                    await receiver.complete_message(message)
                assert sorted(str(message) for message in messages) == names
                assert not await receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)

    asyncio.run(scenario())


def test_settlements(live_namespace: Any, queue: str) -> None:
    async def scenario() -> None:
        async with connect(live_namespace.connection_string) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("m"))
            async with client.get_queue_receiver(queue) as receiver:
                (first,) = await take(receiver, 1)
                await receiver.abandon_message(first)
                (second,) = await take(receiver, 1)
                assert second.delivery_count == 1
                await receiver.renew_message_lock(second)
                await receiver.dead_letter_message(second, reason="why", error_description="so")
            dead_letters = ServiceBusSubQueue.DEAD_LETTER
            async with client.get_queue_receiver(queue, sub_queue=dead_letters) as receiver:
                (dead,) = await take(receiver, 1)
                assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
                    "why",
                    "so",
                )
                await receiver.complete_message(dead)

    asyncio.run(scenario())


def test_receive_and_delete(live_namespace: Any, queue: str) -> None:
    async def scenario() -> None:
        async with connect(live_namespace.connection_string) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages([ServiceBusMessage(f"{n}") for n in range(10)])
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            async with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
                messages = await take(receiver, 10)
                assert sorted(str(message) for message in messages) == list("0123456789")
                assert not await receiver.receive_messages(1, max_wait_time=SHORT_WAIT_S)

    asyncio.run(scenario())


def test_many_handlers_at_once(live_namespace: Any, queue: str) -> None:
    async def scenario() -> None:
        async with connect(live_namespace.connection_string) as client:

            async def send(start: int) -> None:
                async with client.get_queue_sender(queue) as sender:
                    for number in range(start, start + 25):
                        await sender.send_messages(ServiceBusMessage(f"{number:03}"))

            seen: list[str] = []

            async def receive() -> None:
                async with client.get_queue_receiver(queue) as receiver:
                    while len(seen) < 100:
                        for message in await receiver.receive_messages(10, max_wait_time=1):
                            await receiver.complete_message(message)
                            seen.append(str(message))

            await asyncio.gather(*(send(start) for start in (0, 25, 50, 75)), receive(), receive())
            assert sorted(seen) == [f"{number:03}" for number in range(100)]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_wrong_key_and_unknown_queue(
    live_namespace: Any, wrong_key_string: str, queue: str
) -> None:
    async def scenario() -> None:
        good = live_namespace.connection_string
        for name, text in ((queue, wrong_key_string), ("no-such-queue", good)):
            async with connect(text) as client:
                with pytest.raises(ServiceBusAuthenticationError):
                    async with client.get_queue_sender(name) as sender:
                        await sender.send_messages(ServiceBusMessage("never"))

    asyncio.run(scenario())
