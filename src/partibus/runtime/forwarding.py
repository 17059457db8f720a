"""Forwarding at its source: messages leave their queue for its transfer queue, and then the node.

Looks after the fragments of this node whose messages go elsewhere. What is ready moves to the
transfer queue of the same fragment, with the fragment of the destination it goes to, in one
commit; from there `outgoing` sends it. Only so much waits in a transfer queue: behind a
destination that does not answer, messages stay where they are. What may be forwarded is decided
in broker.forwarding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partibus.broker.descriptions import Entity
from partibus.broker.errors import Refusal
from partibus.broker.forwarding import Reason, obstacle, target_of
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming
from partibus.broker.partitioning import KEYLESS_RUN_MAX, Spread, index_of, key_of
from partibus.broker.passages import moving, transferred
from partibus.broker.records import Entry, FragmentKey, SubQueue
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.transfers import TransferFragment
from partibus.runtime.driver import Driver
from partibus.runtime.outgoing import Outgoing, Routes
from partibus.runtime.requests import DONE, Reply, SendVia, refused

# What may wait in one transfer queue of what is forwarded from its queue.
TRANSFER_MESSAGES_MAX = 2048
TRANSFER_BYTES_MAX = 4 * 1024 * 1024
# Messages that are moved to it, or read for it, at once.
MOVE_MESSAGES = 256
READ_BYTES = 1024 * 1024


class Forwarder:
    """All that leaves the fragments of one node for other entities."""

    def __init__(self, node: Routes) -> None:
        self._node = node
        # By the transfer queue: what sends it, and who waits for room in it.
        self._outgoing: dict[TransferFragment, tuple[Driver, Outgoing]] = {}
        self._blocked: dict[FragmentKey, dict[Fragment, Driver]] = {}
        self._spreads: dict[int, Spread] = {}
        # Fragments with sessions whose messages are being read.
        self._reading: set[Fragment] = set()
        self._is_over = False

    def takes(self, fragment: Fragment) -> bool:
        """Whether what the fragment shows is for us, and for no receiver."""
        return fragment.key.subqueue == SubQueue.TRANSFER or bool(self._target(fragment))

    def shown(self, driver: Driver, fragment: Fragment) -> None:
        """A fragment whose messages go elsewhere may have something ready."""
        if self._is_over:
            return
        if isinstance(fragment, TransferFragment):
            self._of(driver, fragment).pull()
        elif isinstance(fragment, SessionFragment):
            self._read_on(driver, fragment, 0)
        else:
            self._collect(driver, fragment)

    def lost(self, driver: Driver) -> None:
        """The driver's fragments are gone until they are shown again."""
        self._close(lambda each, _: each is driver)
        self._reading = {each for each in self._reading if not driver.has(each)}

    def entities_changed(self) -> None:
        """Forget what belongs to deleted entities."""
        self._close(lambda driver, transfer: not driver.has(transfer))
        self._spreads = {
            each: spread for each, spread in self._spreads.items() if self._node.known(each)
        }

    def stop(self) -> None:
        """Send nothing any more: what has not arrived is sent after the next start."""
        self._is_over = True
        self._close(lambda _, __: True)

    def handle(
        self, driver: Driver, via: Fragment, request: SendVia, answer: Callable[[Reply], None]
    ) -> None:
        """Take in messages that are sent via a fragment of this node."""
        self.check_room(driver, via, request.messages)
        self.send_via(driver, via, request.destination, request.messages)
        driver.when_durable(lambda refusal: answer(refused(refusal) if refusal else DONE))

    def check_room(self, driver: Driver, via: Fragment, messages: list[Incoming]) -> None:
        """Refuse what does not fit into a fragment's transfer queue."""
        transfer = driver.beside(via, SubQueue.TRANSFER)
        assert isinstance(transfer, TransferFragment)
        transfer.check_room(sum(len(each.bare) + len(each.kept) for each in messages))

    def send_via(
        self, driver: Driver, via: Fragment, destination: tuple[int, int], messages: list[Incoming]
    ) -> None:
        """Stage messages for another entity in a fragment's transfer queue."""
        now_ms = self._node.clock.now_ms()
        transfer = driver.beside(via, SubQueue.TRANSFER)
        assert isinstance(transfer, TransferFragment)
        entity = self._node.known(destination[0])
        # Where the destination is gone, that is found out when they are sent.
        nowhere = FragmentKey(*destination, 0, SubQueue.ACTIVE)
        keys = self._routes(entity, messages) if entity else [nowhere] * len(messages)
        transfer.take_in([transferred(each, now_ms) for each in messages], keys, None)

    # From a queue to its transfer queue -------------------------------------------------------

    def _collect(self, driver: Driver, fragment: Fragment) -> None:
        """Move the next messages; others have their turn before those behind them."""
        count = self._room(driver, fragment)
        if not count:
            return
        entries = fragment.withdraw(count, self._node.clock.now_ms())
        driver.taken(fragment)
        if not entries:
            return
        self._move(driver, fragment, entries)

        def durable(refusal: Refusal | None) -> None:
            if refusal is None and driver.has(fragment) and self._target(fragment):
                self.shown(driver, fragment)

        if len(entries) == count:
            driver.when_durable(durable)

    def _read_on(self, driver: Driver, fragment: SessionFragment, after: int) -> None:
        """Messages of sessions are read from the disk: nobody may hold a session here."""
        count = self._room(driver, fragment)
        if not count or fragment in self._reading:
            return
        self._reading.add(fragment)
        number = fragment.number

        def found(entries: Any, refusal: Refusal | None) -> None:
            self._reading.discard(fragment)
            if refusal is not None or self._is_over or not driver.has(fragment):
                return
            if self._target(fragment):
                free = fragment.withdraw_stored(entries, self._node.clock.now_ms())
                if free:
                    self._move(driver, fragment, free)
                elif fragment.dirty:
                    driver.touch(fragment)
                if entries:
                    self._read_on(driver, fragment, entries[-1].position)

        driver.read(lambda files: files.scan(number, after, count, READ_BYTES), found)

    def _room(self, driver: Driver, fragment: Fragment) -> int:
        """How many messages may be moved now; whoever finds no room is called when there is."""
        transfer = driver.fragments.get(fragment.key._replace(subqueue=SubQueue.TRANSFER))
        if transfer is None:
            return MOVE_MESSAGES
        held = transfer.counters
        room = TRANSFER_MESSAGES_MAX - held.active
        if room > 0 and held.bytes < TRANSFER_BYTES_MAX:
            return min(room, MOVE_MESSAGES)
        self._blocked.setdefault(transfer.key, {})[fragment] = driver
        return 0

    def _move(self, driver: Driver, fragment: Fragment, entries: list[Entry]) -> None:
        name = self._target(fragment)
        source = self._node.known(fragment.key.entity)
        destination = self._node.named(name)
        is_dead = fragment.key.subqueue == SubQueue.DEAD_LETTER
        now_ms = self._node.clock.now_ms()
        able: list[Entry] = []
        messages: list[Incoming] = []
        unable: dict[Reason, list[Entry]] = {}
        for entry in entries:
            message = moving(entry, now_ms)
            reason = obstacle(message, destination, name)
            if reason is not None:
                unable.setdefault(reason, []).append(entry)
                continue
            if is_dead and source is not None and message.passage is not None:
                message.passage.source = source.name
                # It lives on in another queue, whatever it died of.
                message.ttl_ms = entry.expires_ms = 0
            able.append(entry)
            messages.append(message)
        fragment.part_with(entries)
        driver.touch(fragment)
        for reason, stuck in unable.items():
            driver.beside(fragment, SubQueue.TRANSFER_DEAD_LETTER).receive_dead(stuck, *reason)
        if able and destination is not None:
            transfer = driver.beside(fragment, SubQueue.TRANSFER)
            assert isinstance(transfer, TransferFragment)
            keys = self._routes(destination, messages)
            origin = source.name if is_dead and source is not None else None
            moved = transfer.take_in(able, keys, origin)
            self._of(driver, transfer).entered(moved, keys, messages)

    def _routes(self, destination: Entity, messages: list[Incoming]) -> list[FragmentKey]:
        """The fragments of the destination: by key, else any that is available, for runs."""
        life = destination.id, destination.incarnation
        if not destination.partitioned:
            return [FragmentKey(*life, 0, SubQueue.ACTIVE)] * len(messages)
        detects = destination.description.requires_duplicate_detection
        keys = [key_of(message, detects) for message in messages]
        keyless = keys.count(None)
        indexes: list[int] = []
        run = index = 0
        for key in keys:
            if key is not None:
                indexes.append(index_of(key, destination.fragments))
                continue
            if not run:
                run = min(keyless, KEYLESS_RUN_MAX)
                index = self._choose(destination, run)
            indexes.append(index)
            run -= 1
            keyless -= 1
        partitions = destination.partitions
        return [FragmentKey(*life, partitions[each], SubQueue.ACTIVE) for each in indexes]

    def _choose(self, destination: Entity, count: int) -> int:
        spread = self._spreads.get(destination.id)
        if spread is None:
            spread = self._spreads[destination.id] = Spread(destination.fragments)
        node, stores = self._node, self._node.stores

        def available(index: int) -> bool:
            return node.takes_work(destination.store_of(destination.partitions[index], stores))

        index = spread.choose(count, available)
        # Where none is available, they wait for whichever it would have been.
        return index if index is not None else spread.choose(count, lambda _: True) or 0

    # Transfer queues ----------------------------------------------------------------------------

    def _target(self, fragment: Fragment) -> str:
        key = fragment.key
        entity = self._node.known(key.entity)
        return target_of(entity.description, key.subqueue) if entity is not None else ""

    def _of(self, driver: Driver, transfer: TransferFragment) -> Outgoing:
        found = self._outgoing.get(transfer)
        if found is None:
            outgoing = Outgoing(self._node, driver, transfer, lambda: self._unblock(transfer.key))
            found = self._outgoing[transfer] = driver, outgoing
        return found[1]

    def _unblock(self, key: FragmentKey) -> None:
        for fragment, driver in self._blocked.pop(key, {}).items():
            if driver.has(fragment) and self._target(fragment):
                self.shown(driver, fragment)

    def _close(self, is_gone: Callable[[Driver, Fragment], bool]) -> None:
        for transfer, (driver, outgoing) in list(self._outgoing.items()):
            if is_gone(driver, transfer):
                outgoing.close()
                del self._outgoing[transfer]
                self._blocked.pop(transfer.key, None)
