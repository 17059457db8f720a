"""A door in a test's hand: sends, receives and settles through one node, without a protocol.

What a gateway does with callbacks is here something to await. It knows nothing of AMQP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from partibus.broker.errors import Refusal
from partibus.broker.message import Incoming
from partibus.broker.records import SubQueue
from partibus.broker.settlement import COMPLETE, Settlement
from partibus.runtime.node import Node
from partibus.runtime.receiving import ReceiveMode
from partibus.runtime.requests import Delivered
from partibus.runtime.sending import Item, Sent
from partibus.testing.messages import Read, incoming, read

Answer = asyncio.Future[Refusal | None]


@dataclass
class Sending:
    """Sends under way, by the caller's number."""

    answers: dict[int, Answer]

    @property
    def done(self) -> bool:
        """Whether all were answered."""
        return all(answer.done() for answer in self.answers.values())

    async def refusals(self) -> list[Refusal | None]:
        """What became of each, in the order of sending."""
        return await asyncio.gather(*self.answers.values())


class Door:
    """A node, as one queue's clients see it."""

    def __init__(self, node: Node, queue: str) -> None:
        self.node = node
        self.queue = queue
        self.entity, _ = node.resolve(queue)

    def sending(self, *batches: list[Incoming]) -> Sending:
        """Send batches (of one message or more) in one turn."""
        loop = asyncio.get_running_loop()
        answers: dict[int, Answer] = {at: loop.create_future() for at in range(len(batches))}

        def sent(numbers: list[int], refusal: Refusal | None) -> None:
            for number in numbers:
                answers[number].set_result(refusal)

        self.hand_over(list(enumerate(batches)), sent)
        return Sending(answers)

    def hand_over(self, items: list[Item], sent: Sent) -> None:
        """Give messages to the node."""
        self.node.sender(self.entity).send(items, sent)

    async def send(self, *bodies: bytes, key: str | None = None) -> None:
        """Send messages, each by itself; all must be accepted."""
        sending = self.sending(*([incoming(body, key=key)] for body in bodies))
        assert await sending.refusals() == [None] * len(bodies)

    def receiver(
        self,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        subqueue: SubQueue = SubQueue.ACTIVE,
        seen: Callable[[Got], object] = lambda _: None,
    ) -> Inbox:
        """Begin to receive; `seen` is told of each message as it comes."""
        return Inbox(self, mode, subqueue, seen)

    async def settle(
        self, messages: list[Got], settlement: Settlement = COMPLETE
    ) -> dict[bytes, Refusal]:
        """Settle; returns what was refused, by token."""
        settled: asyncio.Future[dict[bytes, Refusal]] = asyncio.get_running_loop().create_future()
        tokens = [message.token for message in messages]
        self.node.settle(self.entity, tokens, settlement, settled.set_result)
        return await settled

    async def renew(self, messages: list[Got]) -> tuple[dict[bytes, Refusal], int]:
        """Renew locks; returns what was refused, and the new end."""
        renewed: asyncio.Future[tuple[dict[bytes, Refusal], int]]
        renewed = asyncio.get_running_loop().create_future()
        tokens = [message.token for message in messages]
        self.node.renew(self.entity, tokens, lambda lost, until: renewed.set_result((lost, until)))
        return await renewed


@dataclass(frozen=True, slots=True)
class Got:
    """A message in a receiver's hand."""

    token: bytes
    read: Read

    @property
    def body(self) -> bytes:
        """What the sender sent."""
        return self.read.body


@dataclass
class Inbox:
    """A receiver, and what it got."""

    door: Door
    mode: ReceiveMode
    subqueue: SubQueue
    seen: Callable[[Got], object] = lambda _: None
    got: list[Got] = field(default_factory=list)
    lost: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._credit = 0
        self.receiver = self.door.node.receiver(
            self.door.entity, self.subqueue, self.mode, self._deliver, self.lost.append
        )

    def _deliver(self, messages: list[Delivered]) -> None:
        self._credit -= len(messages)
        assert self._credit >= 0, "more than there was credit for"
        for message in messages:
            got = Got(message.token, read(message.payload))
            self.got.append(got)
            self.seen(got)

    def credit(self, count: int) -> None:
        """How many messages we take from now on."""
        self._credit = count
        self.receiver.set_credit(count)

    async def take(self, count: int, seconds: float = 10) -> list[Got]:
        """Receive so many; fails where they do not come in time."""
        before = len(self.got)
        self.credit(count)
        end_s = asyncio.get_running_loop().time() + seconds
        while len(self.got) < before + count:
            assert asyncio.get_running_loop().time() < end_s, f"only {self.bodies} came"
            await asyncio.sleep(0.001)
        return self.got[before:]

    async def drain(self, credit: int) -> list[Got]:
        """Receive what is there, up to this credit, and no more."""
        before = len(self.got)
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.credit(credit)
        self.receiver.drain(lambda: drained.set_result(None))
        await drained
        self._credit = 0
        return self.got[before:]

    @property
    def bodies(self) -> list[bytes]:
        """What came, in order."""
        return [each.body for each in self.got]

    def close(self) -> None:
        """Stop receiving."""
        self.receiver.close()
