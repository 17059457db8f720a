"""Sends what waits in one transfer queue to where it goes, in batches, until it is there.

Each destination fragment has a lane, and each lane one batch under way: what comes behind it is
not sent before the destination has answered, so the highest position that a destination has tells
all that it has. A batch that was not answered is sent again, after a pause; the destination drops
what it has already. What it refuses for good goes to the transfer dead-letter queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityDisabled, EntityNotFound, QuotaExceeded, Refusal
from partibus.broker.forwarding import is_final, reason_of
from partibus.broker.message import Incoming
from partibus.broker.passages import moving
from partibus.broker.records import Entry, FragmentKey, SubQueue
from partibus.broker.transfers import TransferFragment, is_sent_via
from partibus.runtime.clock import Clock, Timer
from partibus.runtime.driver import Driver
from partibus.runtime.peers import Peer
from partibus.runtime.requests import Forward, Reply, refused

# Messages and bytes of one batch.
BATCH_MESSAGES_MAX = 256
BATCH_BYTES_MAX = 512 * 1024
# Batches of one transfer queue that are under way, each to another fragment.
BATCHES_UNDER_WAY_MAX = 32
# What of a transfer queue waits in memory.
HELD_MESSAGES_MAX = 2048
HELD_BYTES_MAX = 4 * 1024 * 1024
PULL_MESSAGES = 64
# Between attempts, doubled up to the longest.
PAUSE_MS_MIN = 50
PAUSE_MS_MAX = 10_000


class Routes(Protocol):
    """What must be known of a node: what there is, and where."""

    clock: Clock
    stores: int

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""

    def takes_work(self, store: int) -> bool:
        """Whether a store is there and not stalled."""

    def known(self, entity: int) -> Entity | None:
        """The entity with this id; None where it is gone."""

    def named(self, name: str) -> Entity | None:
        """The entity of this name."""


class _Lane:
    """What goes to one fragment, oldest first."""

    __slots__ = ("is_under_way", "key", "limit", "pause_ms", "timer", "waiting")

    def __init__(self, key: FragmentKey) -> None:
        self.key = key
        self.waiting: deque[tuple[Entry, Incoming]] = deque()
        self.is_under_way = False
        # Messages of the next batch: fewer where the last was too large for what was free.
        self.limit = BATCH_MESSAGES_MAX
        self.pause_ms = 0
        self.timer: Timer | None = None

    @property
    def is_ready(self) -> bool:
        return bool(self.waiting) and not self.is_under_way and self.timer is None

    def batch(self) -> list[tuple[Entry, Incoming]]:
        chosen: list[tuple[Entry, Incoming]] = []
        size = 0
        for pair in islice(self.waiting, self.limit):
            size += pair[0].size
            if chosen and size > BATCH_BYTES_MAX:
                break
            chosen.append(pair)
        return chosen


class Outgoing:
    """The messages of one transfer queue, on their way."""

    def __init__(
        self, node: Routes, driver: Driver, transfer: TransferFragment, left: Callable[[], None]
    ) -> None:
        self._node = node
        self._driver = driver
        self._transfer = transfer
        # Called when messages have left, and others may enter.
        self._left = left
        self._lanes: dict[FragmentKey, _Lane] = {}
        # Of messages that have just entered: where they go, and what they look like.
        self._fresh: dict[int, tuple[FragmentKey, Incoming]] = {}
        self._held = 0
        self._held_bytes = 0
        self._under_way = 0
        self._is_reading = False
        self._is_over = False

    def entered(
        self, entries: list[Entry], destinations: list[FragmentKey], messages: list[Incoming]
    ) -> None:
        """These are being committed; so they need not be read again when they are shown."""
        for entry, key, message in zip(entries, destinations, messages, strict=True):
            if len(self._fresh) < HELD_MESSAGES_MAX:
                self._fresh[entry.position] = key, message

    def close(self) -> None:
        """The transfer queue is gone, or its node stops; what is under way is not waited for."""
        self._is_over = True
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()

    # From the transfer queue into lanes ---------------------------------------------------------

    def pull(self) -> None:
        """Take what is shown, as far as memory allows, and send it."""
        now_ms = self._node.clock.now_ms()
        while not self._is_reading and not self._is_over:
            room = HELD_MESSAGES_MAX - self._held
            if room <= 0 or self._held_bytes >= HELD_BYTES_MAX:
                break
            entries = self._transfer.withdraw(min(room, PULL_MESSAGES), now_ms)
            self._driver.taken(self._transfer)
            if not entries:
                break
            unknown = [e.position for e in entries if e.position not in self._fresh]
            if unknown:
                self._look_up(entries, unknown)
            else:
                self._distribute(entries, {})
        self._send_all()

    def _look_up(self, entries: list[Entry], positions: list[int]) -> None:
        """They are older than this process: the outbox knows where they go."""
        self._is_reading = True
        number = self._transfer.number

        def found(result: Any, refusal: Refusal | None) -> None:
            self._is_reading = False
            if refusal is None and not self._is_over:
                self._distribute(entries, result)
                self.pull()

        self._driver.read(lambda files: files.destinations(number, positions), found)

    def _distribute(self, entries: list[Entry], found: Mapping[int, FragmentKey]) -> None:
        now_ms = self._node.clock.now_ms()
        for entry in entries:
            fresh = self._fresh.pop(entry.position, None)
            key, message = fresh or (found[entry.position], moving(entry, now_ms))
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane(key)
            lane.waiting.append((entry, message))
            self._held += 1
            self._held_bytes += entry.size

    # From lanes to destinations -----------------------------------------------------------------

    def _send_all(self) -> None:
        for lane in [each for each in self._lanes.values() if each.is_ready]:
            self._send(lane)

    def _send(self, lane: _Lane) -> None:
        if self._is_over or not lane.is_ready or self._under_way >= BATCHES_UNDER_WAY_MAX:
            return
        batch = lane.batch()
        entries = [entry for entry, _ in batch]
        lane.is_under_way = True
        self._under_way += 1
        key = lane.key
        entity = self._node.known(key.entity)
        if entity is None or entity.incarnation != key.incarnation:
            gone = EntityNotFound("The messaging entity that it was sent to has been deleted.")
            self._answered(lane, entries, refused(gone))
            return
        store = entity.store_of(key.partition, self._node.stores)
        request = Forward(
            store,
            key.entity,
            key.incarnation,
            key.partition,
            self._transfer.key,
            [entry.position for entry in entries],
            [message for _, message in batch],
        )
        self._node.owner(store).call(request, lambda reply: self._answered(lane, entries, reply))

    def _answered(self, lane: _Lane, batch: list[Entry], reply: Reply) -> None:
        if self._is_over or not self._driver.has(self._transfer):
            # What became of it shows when the transfer queue is read anew.
            return
        lane.is_under_way = False
        self._under_way -= 1
        arrived = [entry for entry in batch if entry.position <= reply.number]
        if arrived:
            lane.pause_ms = 0
            self._leave(lane, arrived)
        rest = batch[len(arrived) :]
        refusal = reply.refusal
        if not rest:
            lane.limit = min(lane.limit * 2, BATCH_MESSAGES_MAX)
        elif refusal is not None and is_final(refusal):
            self._refused(lane, rest, refusal)
        else:
            self._pause(lane)
        if not lane.waiting and not lane.is_under_way and lane.timer is None:
            del self._lanes[lane.key]
        self.pull()
        self._left()

    def _refused(self, lane: _Lane, batch: list[Entry], refusal: Refusal) -> None:
        if len(batch) > 1 and not isinstance(refusal, EntityNotFound | EntityDisabled):
            # Some of them may be taken.
            lane.limit = len(batch) // 2
        elif isinstance(refusal, QuotaExceeded) and is_sent_via(batch[0]):
            self._pause(lane)
        else:
            self._leave(lane, batch)
            dead = self._driver.beside(self._transfer, SubQueue.TRANSFER_DEAD_LETTER)
            dead.receive_dead(batch, *reason_of(refusal))

    def _leave(self, lane: _Lane, entries: list[Entry]) -> None:
        for _ in entries:
            entry, _ = lane.waiting.popleft()
            self._held -= 1
            self._held_bytes -= entry.size
        self._transfer.part_with(entries)
        self._driver.touch(self._transfer)

    def _pause(self, lane: _Lane) -> None:
        lane.pause_ms = min(max(2 * lane.pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)

        def over() -> None:
            lane.timer = None
            self._send(lane)

        lane.timer = self._node.clock.call_at(self._node.clock.now_ms() + lane.pause_ms, over)
