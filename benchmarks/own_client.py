"""partibus.client as load: sends and receives with and without transactions and sessions.

Speaks with its parent as benchmarks.load does. `connections` clients each handle `window` messages
at a time, in the same way whether or not there is a transaction or a session around them: what
the broker spends more is the price of these.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from benchmarks.load.plan import SEND, Outcome, Plan
from benchmarks.sdk import Share, connection_string

from partibus.client import AsyncClient, AsyncReceiver, Message, ServiceTimeout

TRANSACT = "send in transactions"
RECEIVE_TRANSACTED = "receive, complete in transactions"
RECEIVE_SESSIONS = "receive sessions"
WAIT_S = 10.0
ACCEPT_S = 2.0

Work = Callable[[AsyncClient, Plan, Share], Awaitable[None]]


async def _send(client: AsyncClient, plan: Plan, share: Share) -> None:
    async with client.sender(plan.endpoint.address) as sender:
        while batch := _batch(plan, share):
            if plan.operation == TRANSACT:
                async with client.transaction():
                    await sender.send(batch)
            else:
                await sender.send(batch)


def _batch(plan: Plan, share: Share) -> list[Message]:
    taken = sum(share.take() for _ in range(plan.window))
    return [Message(bytes(plan.size), partition_key="one") for _ in range(taken)]


async def _receive(client: AsyncClient, plan: Plan, share: Share) -> None:
    async with client.receiver(plan.endpoint.address) as receiver:
        while wanted := sum(share.take() for _ in range(plan.window)):
            while wanted > 0:
                wanted -= await _complete(client, receiver, plan, wanted)


async def _complete(client: AsyncClient, receiver: AsyncReceiver, plan: Plan, count: int) -> int:
    messages = await receiver.receive(count, timeout=WAIT_S)
    if not messages:
        raise RuntimeError(f"nothing came from {plan.endpoint.address}")
    if plan.operation == RECEIVE_TRANSACTED:
        async with client.transaction():
            await asyncio.gather(*map(receiver.complete, messages))
    else:
        await asyncio.gather(*map(receiver.complete, messages))
    return len(messages)


async def _receive_sessions(client: AsyncClient, plan: Plan, share: Share) -> None:
    """Take the next session that has messages, and all of its messages, until there is none."""
    while True:
        try:
            session = await client.accept_session(plan.endpoint.address, timeout=ACCEPT_S)
        except ServiceTimeout:
            return
        async with session:
            while messages := await session.receive(plan.window, timeout=0.01):
                for _ in messages:
                    share.take()
                await asyncio.gather(*map(session.complete, messages))


WORK: dict[str, Work] = {SEND: _send, TRANSACT: _send, RECEIVE_SESSIONS: _receive_sessions}


async def _run(plan: Plan) -> Outcome:
    share = Share(plan.messages)
    work = WORK.get(plan.operation, _receive)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                AsyncClient.from_connection_string(connection_string(plan.endpoint))
            )
            for _ in range(plan.connections)
        ]
        print("ready", flush=True)
        sys.stdin.readline()
        cpu, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*(work(client, plan, share) for client in clients))
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
    return Outcome(plan.messages, 0, plan.messages / seconds, 0, used, 0, 0)


def main() -> int:
    plan = Plan.from_json(sys.stdin.readline())
    print(asyncio.run(_run(plan)).to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
