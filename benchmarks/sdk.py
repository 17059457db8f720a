"""The official Python SDK as load: as many senders or receivers as messages are in flight.

Speaks with its parent as benchmarks.load does. Every sender and receiver of the SDK has a
connection of its own and awaits each message; what limits the rate is the SDK itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from benchmarks.load.latency import Latencies
from benchmarks.load.plan import RATED, SEND, Endpoint, Outcome, Plan

WAIT_S = 10


class Share:
    """The messages that are still to be handled, whoever does it."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self._rest = int(messages * (1 - RATED))
        # When all but the last few had been begun.
        self.rated_at = 0.0

    def take(self) -> bool:
        self._left -= 1
        if self._left == self._rest:
            self.rated_at = time.perf_counter()
        return self._left >= 0


def connection_string(endpoint: Endpoint) -> str:
    return (
        f"Endpoint=sb://{endpoint.host}:{endpoint.port};"
        f"SharedAccessKeyName={endpoint.key_name};SharedAccessKey={endpoint.key};"
        "UseDevelopmentEmulator=true"
    )


async def _send(sender: ServiceBusSender, share: Share, body: bytes, seen: Latencies) -> None:
    while share.take():
        begun = time.perf_counter()
        properties: Any = {"tenant": "contoso", "attempt": 1}
        await sender.send_messages(ServiceBusMessage(body, application_properties=properties))
        seen.add((time.perf_counter() - begun, 1))


async def _receive(receiver: ServiceBusReceiver, share: Share, seen: Latencies) -> None:
    while share.take():
        begun = time.perf_counter()
        (message,) = await receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
        await receiver.complete_message(message)
        seen.add((time.perf_counter() - begun, 1))


async def _run(plan: Plan) -> Outcome:
    seen = Latencies()
    share = Share(plan.messages)
    body = bytes(plan.size)
    async with AsyncExitStack() as stack:
        client = ServiceBusClient.from_connection_string(connection_string(plan.endpoint))
        await stack.enter_async_context(client)
        work = []
        for _ in range(plan.connections):
            if plan.operation == SEND:
                sender = client.get_queue_sender(plan.endpoint.address)
                await stack.enter_async_context(sender)
                work.append(_send(sender, share, body, seen))
            else:
                receiver = client.get_queue_receiver(plan.endpoint.address)
                await stack.enter_async_context(receiver)
                work.append(_receive(receiver, share, seen))
        print("ready", flush=True)
        sys.stdin.readline()
        cpu, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*work)
        end, used = time.perf_counter(), time.process_time() - cpu
    rated_at = share.rated_at or end
    rate = plan.messages * RATED / (rated_at - start)
    p50, p99 = seen.percentiles_ms(0.5, 0.99)
    return Outcome(plan.messages, 0, rate, end - rated_at, used, p50, p99)


def main() -> int:
    plan = Plan.from_json(sys.stdin.readline())
    print(asyncio.run(_run(plan)).to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
