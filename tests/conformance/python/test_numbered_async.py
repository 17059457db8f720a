"""The vendor's asynchronous client: peek, deferral and scheduling over two nodes, both queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageNotFoundError

WAIT_S = 5


@asynccontextmanager
async def client_of(namespace: Any) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        namespace.connection_string, retry_total=0
    ) as client:
        yield client


def test_R4_R5_A1_messages_by_number(live_namespace: Any, queue: str) -> None:
    async def main() -> None:
        async with client_of(live_namespace) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages([ServiceBusMessage(f"m{n}") for n in range(10)])
            async with client.get_queue_receiver(queue) as receiver:
                (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
                await receiver.defer_message(message)
                seen = []
                cursor = 1
                while batch := await receiver.peek_messages(4, sequence_number=cursor):
                    seen += batch
                    cursor = batch[-1].sequence_number + 1
                assert sorted(map(str, seen)) == [f"m{n}" for n in range(10)]
                states = {str(each): each.state for each in seen}
                assert states[str(message)] is ServiceBusMessageState.DEFERRED
                numbers = [message.sequence_number]
                (again,) = await receiver.receive_deferred_messages(numbers)
                await receiver.complete_message(again)
                with pytest.raises(MessageNotFoundError):
                    await receiver.receive_deferred_messages(numbers)

    asyncio.run(main())


def test_A1_a_scheduled_message_comes_on_time_and_a_cancelled_one_never(
    live_namespace: Any, new_queue: Callable[..., str]
) -> None:
    async def main(queue: str) -> None:
        async with client_of(live_namespace) as client:
            due = datetime.now(UTC) + timedelta(seconds=2)
            async with client.get_queue_sender(queue) as sender:
                (number,) = await sender.schedule_messages(ServiceBusMessage("cancelled"), due)
                await sender.schedule_messages(ServiceBusMessage("kept"), due)
                await sender.cancel_scheduled_messages(number)
            async with client.get_queue_receiver(queue) as receiver:
                (message,) = await receiver.receive_messages(2, max_wait_time=WAIT_S)
                assert str(message) == "kept"
                assert due - timedelta(milliseconds=1) <= message.enqueued_time_utc
                assert message.enqueued_time_utc < due + timedelta(seconds=1)
                await receiver.complete_message(message)
                assert await receiver.peek_messages(5, sequence_number=1) == []

    for partitioned in (False, True):
        asyncio.run(main(new_queue(enable_partitioning=partitioned)))
