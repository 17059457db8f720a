"""The same client on asyncio, against our broker: what only who runs on a loop can do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from partibus.client import AsyncClient, Message, OperationTimeout, RetryPolicy
from partibus.testing.namespace import Namespace

QUEUE = "orders"
PATIENCE_S = 20.0
MOMENT_S = 0.3
QUICK = RetryPolicy(attempts=6, delay_s=0.05, busy_delay_s=0.05)

Run = Callable[[Callable[[AsyncClient], Awaitable[None]]], None]


@pytest.fixture(params=["conventional", "partitioned"])
def run(request: pytest.FixtureRequest, servicebus_namespace: Namespace) -> Run:
    """Run something with a client."""
    partitioned = request.param == "partitioned"
    servicebus_namespace.create_queue(QUEUE, enable_partitioning=partitioned)
    text = servicebus_namespace.connection_string

    def run(work: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncClient.from_connection_string(text, retry=QUICK) as client:
                await work(client)

        asyncio.run(main())

    return run


def test_a_message_is_sent_received_and_completed(run: Run) -> None:
    async def work(client: AsyncClient) -> None:
        async with client.sender(QUEUE) as sender, client.receiver(QUEUE) as receiver:
            await sender.send(Message("hello", partition_key="k"))
            (message,) = await receiver.receive(timeout=PATIENCE_S)
            assert (message.text, message.partition_key) == ("hello", "k")
            await receiver.renew_lock(message)
            await receiver.complete(message)
            assert await receiver.receive(timeout=MOMENT_S) == []

    run(work)


def test_a_receive_that_waits_gets_what_is_sent_meanwhile(run: Run) -> None:
    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        waiting = asyncio.create_task(receiver.receive(10, timeout=PATIENCE_S))
        await client.sender(QUEUE).send_batch([Message("a"), Message("b")])
        assert len(await waiting) >= 1

    run(work)


def test_many_tasks_share_one_connection(run: Run) -> None:
    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        await asyncio.gather(*(sender.send(Message(str(n))) for n in range(200)))
        bodies: set[str] = set()
        async with client.receiver(QUEUE, max_wait=MOMENT_S, prefetch=50) as receiver:
            async for message in receiver:
                bodies.add(message.text)
                await receiver.complete(message)
        assert bodies == {str(n) for n in range(200)}

    run(work)


def test_a_receive_that_is_cancelled_takes_no_message_with_it(run: Run) -> None:
    async def work(client: AsyncClient) -> None:
        impatient = client.receiver(QUEUE)
        waiting = asyncio.create_task(impatient.receive(timeout=PATIENCE_S))
        # It waits when a receive of its own that comes after has been answered.
        assert await client.receiver(QUEUE).receive(timeout=MOMENT_S) == []
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await impatient.close()
        await client.sender(QUEUE).send(Message("x"))
        (message,) = await client.receiver(QUEUE).receive(timeout=PATIENCE_S)
        assert message.delivery_count == 0

    run(work)


def test_a_dead_letter_and_an_abandoned_message(run: Run) -> None:
    async def work(client: AsyncClient) -> None:
        await client.sender(QUEUE).send(Message("x"))
        receiver = client.receiver(QUEUE)
        (message,) = await receiver.receive(timeout=PATIENCE_S)
        await receiver.abandon(message)
        (message,) = await receiver.receive(timeout=PATIENCE_S)
        await receiver.dead_letter(message, "reason", "description")
        (dead,) = await client.receiver(QUEUE, sub_queue="dead-letter").receive(timeout=PATIENCE_S)
        assert (dead.dead_letter_reason, dead.dead_letter_description) == ("reason", "description")
        assert dead.delivery_count == 1

    run(work)


def test_an_operation_ends_with_its_time() -> None:
    # The system takes the connection; nobody ever reads from it.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};UseDevelopmentEmulator=true"

        async def main() -> None:
            async with AsyncClient.from_connection_string(text, timeout=0.2) as client:
                with pytest.raises(OperationTimeout, match=r"0\.2 s"):
                    await client.sender(QUEUE).send(Message("x"))

        asyncio.run(main())
