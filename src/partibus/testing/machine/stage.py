"""The real thing, for a state machine: two nodes in a simulated world, asked one thing at a time.

Every call runs the world until it is answered, or until the power fails in it. Time moves by
ticks: what clients do happens at the beginning of a tick, and every span is chosen so that what
it leads to happens later in one. So no answer depends on a millisecond.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import Refusal
from partibus.broker.partitioning import index_of
from partibus.broker.records import Counters, State, SubQueue
from partibus.broker.settlement import Settlement
from partibus.broker.transactions import Transaction
from partibus.runtime import numbered
from partibus.runtime.discharging import discharge
from partibus.runtime.node import Node
from partibus.runtime.receiving import ReceiveMode
from partibus.runtime.requests import Delivered
from partibus.testing.clock import START_MS
from partibus.testing.disk import SimulatedDisk
from partibus.testing.door import Door, Got
from partibus.testing.loop import VirtualLoop
from partibus.testing.messages import read
from partibus.testing.session_door import SessionInbox
from partibus.testing.world import World

T = TypeVar("T")

QUEUE = "q"
NODES = 2
STORES = 5
TICK_S = 20
# Nothing begins later than this in a tick, and nothing takes longer.
BUSY_S = 2
# A receiver that takes any session waits so long for one.
ACCEPT_MS = 1_000
# What happens without being waited for has happened by then.
MOMENT_S = 0.02
PEEK_MESSAGES = 100
SESSIONS_MAX = 1_000
# Later than any message.
_FAR_MS = 1 << 50

Refused = Callable[[Refusal | None], None]
MakeDisks = Callable[[Path, int], Sequence[SimulatedDisk]]


class PowerCut(Exception):
    """The power failed: before there was an answer, or just after (`answered`)."""

    def __init__(self, *, answered: bool) -> None:
        super().__init__()
        self.answered = answered


@dataclass(frozen=True, slots=True)
class Seen:
    """A message, as a browser sees it."""

    body: bytes
    sequence: int
    state: State
    deliveries: int
    is_dead: bool
    reason: str | None


class Stage:
    """A queue in a world of its own."""

    def __init__(self, queue: QueueDescription, make_disks: MakeDisks) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="partibus-machine-")
        folder = Path(self._folder.name)
        self.loop = VirtualLoop()
        self.loop.stops_at_failure = True
        self.disks = make_disks(folder, STORES)
        self.world = World(
            self.loop,
            folder,
            queue,
            nodes=NODES,
            stores=STORES,
            hop_ms=lambda _: 1,
            disks=self.disks,
        )
        for disk in self.disks:
            disk.crashed = self._cut
        self._is_cut = asyncio.Event()
        self._turn = 0
        self._run(self.world.start())
        self.entity = self.world.entity(QUEUE)

    def close(self) -> None:
        """Put everything away."""
        self.world.cut_power()
        self.world.catalog.close()
        self.loop.stops_at_failure = False
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self._folder.cleanup()

    # Time and power -------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The beginning of this tick."""
        return START_MS + int(self.loop.time() // TICK_S * TICK_S * 1000)

    @property
    def is_late(self) -> bool:
        """Whether this tick is too old to begin something."""
        return self.loop.time() % TICK_S > BUSY_S

    def tick(self, count: int) -> None:
        """Let time pass until the beginning of a tick to come."""
        ticks = self.loop.time() // TICK_S + count
        self._run(asyncio.sleep(ticks * TICK_S - self.loop.time() + 0.001))

    def arm(self, *, keeps: bool) -> None:
        """The power fails in the next commit, wherever that is: before it holds, or after."""
        for disk in self.disks:
            disk.crash_in_commit(keeps=keeps)

    def disarm(self) -> None:
        """The power does not fail after all."""
        for disk in self.disks:
            disk.calm()

    def cut_power(self) -> None:
        """The power fails now."""
        self.world.cut_power()

    def restart(self) -> None:
        """The power is back."""
        self._is_cut.clear()
        self.disarm()
        self._run(self.world.start())
        # What should have happened meanwhile happens first.
        self._run(asyncio.sleep(MOMENT_S))

    def _cut(self) -> None:
        self.world.cut_power()
        self._is_cut.set()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        running = self.loop.create_task(work)
        running.add_done_callback(lambda _: self.loop.stop())
        self.loop.run_forever()
        if self.loop.failures:
            running.cancel()
            raise self.loop.failures[0]
        result = running.result()
        assert self.loop.time() % TICK_S < 2 * BUSY_S, "that took too long"
        return result

    def _answer(self, work: Awaitable[T]) -> T:
        """The answer, unless the power fails."""

        async def first() -> T:
            asked = asyncio.ensure_future(work)
            cut = asyncio.ensure_future(self._is_cut.wait())
            await asyncio.wait((asked, cut), return_when=asyncio.FIRST_COMPLETED)
            # What a dying node still says is heard by nobody.
            answered = asked.done() and not self._is_cut.is_set()
            if answered:
                await asyncio.sleep(MOMENT_S)
            for task in (asked, cut):
                task.cancel()
            if self._is_cut.is_set():
                raise PowerCut(answered=answered and asked.exception() is None)
            return await asked

        return self._run(first())

    def _ask(self, ask: Callable[[Node, Callable[[T], None]], None]) -> T:
        """Ask one node after the other; a Refusal that is raised is raised."""

        async def asked() -> T:
            answer: asyncio.Future[T] = self.loop.create_future()
            ask(self.node, answer.set_result)
            return await answer

        return self._answer(asked())

    def _do(self, ask: Callable[[Node, Refused], None]) -> None:
        """Ask for what has no answer but a refusal, which is raised."""
        refusal: Refusal | None = self._ask(ask)
        if refusal is not None:
            raise refusal

    @property
    def node(self) -> Node:
        """The node whose turn it is."""
        self._turn += 1
        return self.world.nodes[self._turn % NODES]

    # What clients do ------------------------------------------------------------------------------

    def send(self, batches: list[list[Any]]) -> list[Refusal | None]:
        """Send batches in one turn; what was refused, in their order."""

        async def sent() -> list[Refusal | None]:
            return await Door(self.node, QUEUE).sending(*batches).refusals()

        return self._answer(sent())

    def schedule(self, messages: list[Any]) -> list[int]:
        """Send messages to one fragment; their numbers."""
        numbers: list[int] = []
        entity = self.entity

        def ask(node: Node, answer: Refused) -> None:
            node.sender(entity).place(messages, numbers.extend, lambda _, refusal: answer(refusal))

        self._do(ask)
        return numbers

    def receive(self, count: int, *, dead: bool = False, delete: bool = False) -> list[Got]:
        """Receive up to so many of what is there."""

        async def received() -> list[Got]:
            mode = ReceiveMode.RECEIVE_AND_DELETE if delete else ReceiveMode.PEEK_LOCK
            inbox = Door(self.node, QUEUE).receiver(mode, _subqueue(dead))
            got = await inbox.drain(count)
            inbox.close()
            return got

        return self._answer(received())

    def settle(self, tokens: list[bytes], settlement: Settlement) -> dict[bytes, Refusal]:
        """Settle; what was refused, by token."""
        return self._ask(lambda node, answer: node.settle(self.entity, tokens, settlement, answer))

    def renew(self, tokens: list[bytes]) -> dict[bytes, Refusal]:
        """Renew locks; what was refused, by token."""
        return self._ask(
            lambda node, answer: node.renew(self.entity, tokens, lambda lost, _: answer(lost))
        )

    def receive_deferred(
        self, sequences: list[int], *, dead: bool, delete: bool, holder: SessionInbox | None
    ) -> list[Got]:
        """Lock deferred messages, or delete them; those of a session as its holder."""
        receiver = holder.receiver if holder is not None else None
        return self._numbered(
            lambda node, answer: numbered.receive_deferred(
                holder.door.node if holder is not None else node,
                self.entity, _subqueue(dead), sequences, answer, delete=delete, holder=receiver,
            )
        )  # fmt: skip

    def _numbered(
        self, ask: Callable[[Node, Callable[[list[Delivered], Refusal | None], None]], None]
    ) -> list[Got]:
        found: list[Delivered] = []

        def asked(node: Node, answer: Refused) -> None:
            def done(messages: list[Delivered], refusal: Refusal | None) -> None:
                found.extend(messages)
                answer(refusal)

            ask(node, done)

        self._do(asked)
        return [Got(each.token, read(each.payload)) for each in found]

    def cancel(self, sequences: list[int]) -> None:
        """Cancel scheduled messages."""

        def ask(node: Node, answer: Refused) -> None:
            numbered.cancel_scheduled(node, self.entity, sequences, answer)

        self._do(ask)

    def delete(self, count: int) -> int:
        """Delete the oldest messages that nobody holds; how many."""
        count_deleted = 0

        def ask(node: Node, answer: Refused) -> None:
            def done(deleted: int, refusal: Refusal | None) -> None:
                nonlocal count_deleted
                count_deleted = deleted
                answer(refusal)

            numbered.delete_messages(node, self.entity, SubQueue.ACTIVE, count, _FAR_MS, done)

        self._do(ask)
        return count_deleted

    def discharge(self, transaction: Transaction) -> Refusal | None:
        """Commit a transaction."""

        def ask(node: Node, answer: Refused) -> None:
            discharge(node, transaction, answer)

        return self._ask(ask)

    def accept(self, session: str | None) -> SessionInbox:
        """Accept a session: it is held, or `lost` says why not."""

        async def accepted() -> SessionInbox:
            inbox = SessionInbox(Door(self.node, QUEUE), session, ACCEPT_MS)
            return await inbox.settled()

        return self._answer(accepted())

    def receive_of(self, inbox: SessionInbox, count: int) -> list[Got]:
        """Receive up to so many messages of a session."""

        async def received() -> list[Got]:
            inbox.credit(count)
            await asyncio.sleep(MOMENT_S)
            inbox.credit(0)
            got, inbox.got = inbox.got, []
            return got

        return self._answer(received())

    def leave(self, inbox: SessionInbox) -> None:
        """Give a session up."""
        inbox.close()
        self._answer(asyncio.sleep(MOMENT_S))

    def ask_holder(self, inbox: SessionInbox, question: Any) -> Any:
        """Renew a session, or get or set its state."""
        return self._answer(inbox.ask(question))

    # What everybody can see -----------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """Where messages with a key lie."""
        return self.entity.partitions[index_of(key, self.entity.fragments)]

    def peek(self) -> dict[bytes, Seen]:
        """All messages and dead letters there are, by their bodies."""
        found: dict[bytes, Seen] = {}
        for dead in (False, True):
            sequence = 0
            while shown := self._peek_from(sequence, dead):
                for each in shown:
                    assert each.body not in found, f"{each.body!r} is there twice"
                    found[each.body] = each
                sequence = shown[-1].sequence + 1
        return found

    def _peek_from(self, sequence: int, dead: bool) -> list[Seen]:
        view = numbered.View(sequence, PEEK_MESSAGES)
        messages = self._numbered(
            lambda node, answer: numbered.peek(node, self.entity, _subqueue(dead), view, answer)
        )
        return [_seen(each, dead) for each in messages]

    def counters(self) -> list[tuple[bool, Counters]]:
        """What the fragments count, and whether it is dead letters."""
        drivers = [
            each for node in self.world.nodes.values() for each in node.host.drivers.values()
        ]
        fragments = [fragment for driver in drivers for fragment in driver.fragments.values()]
        return [(each.key.subqueue != SubQueue.ACTIVE, each.counters) for each in fragments]

    def sessions(self) -> set[str]:
        """The names of sessions that have messages or a state."""
        names: list[str] = []

        def ask(node: Node, answer: Refused) -> None:
            def done(found: list[str], refusal: Refusal | None) -> None:
                names.extend(found)
                answer(refusal)

            node.session_lists.page(self.entity, -1, 0, SESSIONS_MAX, done)

        self._do(ask)
        assert len(set(names)) == len(names)
        return set(names)


def _seen(message: Got, dead: bool) -> Seen:
    notes = message.read.annotations
    reason = message.read.properties.get("DeadLetterReason")
    state = State(notes["x-opt-message-state"])
    seen = message.read
    return Seen(seen.body, seen.sequence, state, seen.deliveries, dead, reason)


def _subqueue(dead: bool) -> SubQueue:
    return SubQueue.DEAD_LETTER if dead else SubQueue.ACTIVE
