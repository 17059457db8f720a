"""One fragment's state machine: ready, locked, settled, dead.

Decides, and never waits: each operation changes the state in memory and writes down what the
store must commit. Nothing becomes visible before `committed` says that it is durable, and whoever
asked is answered only then. Locks are not written: a crash makes locked messages available again.
The fragment does not know files, nodes or links; it is told the time and given entropy.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

from partibus.broker.duplicates import bucket_of
from partibus.broker.durations import FOREVER_MS
from partibus.broker.errors import InvalidArgument, InvalidOperation, QuotaExceeded
from partibus.broker.message import Incoming
from partibus.broker.records import (
    Changes,
    Counters,
    Digest,
    Entry,
    FragmentKey,
    Sighting,
    State,
    SubQueue,
)
from partibus.broker.settlement import Outcome, Settlement
from partibus.broker.window import Window
from partibus.wire.codec import decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.sections import with_application_properties

TOKEN_PREFIX_BYTES = 6
TOKEN_RANDOM_BYTES = 10
# Locked messages stay in memory; over this, the fragment hands out no more until some come back.
LOCKED_BYTES_MAX = 64 * 1024 * 1024
LOCKED_MESSAGES_MAX = 50_000
# Settled entries leave the runs that wait for the end of locks once they are more than this.
SETTLED_ENTRIES_MAX = 4096
PARTITION_SHIFT = 48
MEGABYTE = 1024 * 1024

MAX_DELIVERIES_REASON = "MaxDeliveryCountExceeded"


class Settings(Protocol):
    """What a fragment must know of its entity's description."""

    @property
    def lock_ms(self) -> int: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def default_ttl_ms(self) -> int: ...
    @property
    def max_size_mb(self) -> int: ...
    @property
    def requires_duplicate_detection(self) -> bool: ...
    @property
    def duplicate_window_ms(self) -> int: ...


class Fragment:
    """The messages of one entity that live in one store, in one sub-queue."""

    def __init__(
        self,
        key: FragmentKey,
        number: int,
        store: int,
        settings: Settings,
        counters: Counters | None,
        dead_letters: Callable[[], Fragment],
    ) -> None:
        self.key = key
        self.number = number
        self.settings = settings
        # A fragment without counters is new: the first commit makes its row.
        self._created = counters is None
        self.counters = counters if counters is not None else Counters()
        last = self.counters.next_position - 1 if self.counters.active else 0
        self.window = Window(gap_to=last)
        # A token names its store and fragment, because a settlement may arrive at any node.
        self.token_prefix = store.to_bytes(2, "big") + number.to_bytes(4, "big")
        self._dead_letters = dead_letters
        self._high = key.partition << PARTITION_SHIFT
        self._changes: Changes | None = None
        self._locked: dict[bytes, Entry] = {}
        self._locked_bytes = 0
        # A heap of when locks end, with the runs of entries that were locked together.
        self._expiries: list[tuple[int, int, list[Entry]]] = []
        self._runs = 0
        # Entries in those runs, settled ones and those renewed later included.
        self.awaited = 0
        # Positions of copies to be removed when they are seen, and whether that is staged.
        self._unwanted: dict[int, bool] = {}

    # What is staged for the store ---------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether something waits to be committed."""
        return self._changes is not None

    def take_changes(self) -> Changes:
        """What the next commit writes; later operations gather in a new set."""
        changes = self._changes
        assert changes is not None
        changes.counters = self.counters.copy()
        self._changes = None
        self._created = False
        return changes

    def committed(self, changes: Changes) -> bool:
        """These changes are durable: show what they made visible. True if there is any."""
        shown = False
        added = changes.added
        if self._unwanted:
            for position in changes.removed:
                self._unwanted.pop(position, None)
            added = self._without_unwanted(added)
        if added:
            self.window.arrived(added)
            shown = True
        for entries in (changes.updated, changes.rewritten):
            for entry in entries:
                if entry.state == State.ACTIVE:
                    self.window.give_back(entry)
                    shown = True
        return shown

    def loaded(self, entries: list[Entry], complete: bool) -> None:
        """The next part of the backlog was read; `complete` where nothing lies behind it."""
        last = entries[-1].position if entries else 0
        self.window.loaded(self._without_unwanted(entries), complete, last)

    def _without_unwanted(self, entries: list[Entry]) -> list[Entry]:
        unwanted = self._unwanted
        if not unwanted:
            return entries
        found = [entry for entry in entries if unwanted.get(entry.position) is False]
        if found:
            unwanted.update((entry.position, True) for entry in found)
            self._discard(found)
        return [entry for entry in entries if entry.position not in unwanted]

    def _stage(self) -> Changes:
        if self._changes is None:
            self._changes = Changes(self.number, self.key, self._created)
        return self._changes

    # Sending ------------------------------------------------------------------------------

    def send(self, messages: list[Incoming], now_ms: int) -> int:
        """Take messages in, all or none; returns the position of the first."""
        counters = self.counters
        size = 0
        for message in messages:
            size += len(message.bare) + len(message.kept)
        quota = self.settings.max_size_mb * MEGABYTE
        if counters.bytes + size > quota:
            raise QuotaExceeded(
                f"The fragment holds {counters.bytes} of {quota} bytes; {size} more do not fit. "
                "Receive messages, or make the entity larger."
            )
        first = position = counters.next_position
        default_ttl_ms = self.settings.default_ttl_ms
        high = self._high
        added = self._stage().added
        for message in messages:
            ttl_ms = message.ttl_ms
            if not ttl_ms or ttl_ms > default_ttl_ms:
                ttl_ms = default_ttl_ms
            added.append(
                Entry(
                    position,
                    high | position,
                    message.bare,
                    message.kept,
                    message.kept_count,
                    now_ms,
                    now_ms + ttl_ms if ttl_ms < FOREVER_MS else 0,
                    0,
                    0,
                    message.session,
                )
            )
            position += 1
        count = len(messages)
        counters.next_position = position
        counters.active += count
        counters.accepted += count
        counters.bytes += size
        return first

    def sight(self, digests: list[Digest], now_ms: int) -> None:
        """Messages with these digests were taken in just now: keep that, with them."""
        bucket = bucket_of(now_ms, self.settings.duplicate_window_ms)
        self._stage().sighted += [Sighting(digest, now_ms, bucket) for digest in digests]

    # Receiving ----------------------------------------------------------------------------

    def take(self, count: int, now_ms: int, entropy: Callable[[int], bytes]) -> list[Entry]:
        """Lock up to `count` messages, the oldest first."""
        taken: list[Entry] = []
        if len(self._locked) >= LOCKED_MESSAGES_MAX or self._locked_bytes >= LOCKED_BYTES_MAX:
            return taken
        pop = self.window.pop
        entry = pop()
        while entry is not None:
            taken.append(entry)
            if len(taken) >= count:
                break
            entry = pop()
        if not taken:
            return taken
        until_ms = now_ms + self.settings.lock_ms
        prefix, locked = self.token_prefix, self._locked
        pool = entropy(TOKEN_RANDOM_BYTES * len(taken))
        start = size = 0
        for entry in taken:
            end = start + TOKEN_RANDOM_BYTES
            entry.token = token = prefix + pool[start:end]
            start = end
            entry.locked_until_ms = until_ms
            locked[token] = entry
            size += len(entry.bare)
        self._locked_bytes += size
        self._await(until_ms, taken)
        return taken

    def _await(self, until_ms: int, entries: list[Entry]) -> None:
        self._runs += 1
        heappush(self._expiries, (until_ms, self._runs, entries))
        self.awaited += len(entries)
        if self.awaited > 2 * len(self._locked) + SETTLED_ENTRIES_MAX:
            self._forget_settled()

    def _forget_settled(self) -> None:
        """Let go of the content of messages that are gone: their locks may have been long."""
        held = [
            (until_ms, number, [e for e in run if e.token and e.locked_until_ms == until_ms])
            for until_ms, number, run in self._expiries
        ]
        self._expiries = [run for run in held if run[2]]
        heapify(self._expiries)
        self.awaited = sum(len(run) for _, _, run in self._expiries)

    def renew(self, tokens: list[bytes], now_ms: int) -> tuple[int, list[bytes]]:
        """Extend locks; returns their new end, and the tokens whose lock was lost."""
        until_ms = now_ms + self.settings.lock_ms
        renewed: list[Entry] = []
        lost: list[bytes] = []
        for token in tokens:
            entry = self._locked.get(token)
            if entry is None or entry.locked_until_ms <= now_ms:
                lost.append(token)
                continue
            entry.locked_until_ms = until_ms
            renewed.append(entry)
        if renewed:
            self._await(until_ms, renewed)
        return until_ms, lost

    def holds(self, tokens: list[bytes], now_ms: int) -> bool:
        """Whether all of these tokens lock something here."""
        locked = self._locked
        return all(token in locked and locked[token].locked_until_ms > now_ms for token in tokens)

    def check(self, settlement: Settlement) -> dict[str, object] | None:
        """Refuse what cannot be done here; else the properties to modify, where there are any."""
        is_dead_letter = settlement.outcome == Outcome.DEAD_LETTER
        if is_dead_letter and self.key.subqueue != SubQueue.ACTIVE:
            raise InvalidOperation("A message cannot be dead-lettered from a dead-letter queue.")
        return _read_properties(settlement.properties) if settlement.properties else None

    def settle(self, tokens: list[bytes], settlement: Settlement, now_ms: int) -> list[bytes]:
        """Settle what these tokens lock; returns the tokens whose lock was lost."""
        outcome = settlement.outcome
        modified = self.check(settlement)
        lost: list[bytes] = []
        held: list[Entry] = []
        for token in tokens:
            entry = self._locked.get(token)
            if entry is None or entry.locked_until_ms <= now_ms:
                lost.append(token)
            else:
                held.append(entry)
                self._unlock(entry)
        if not held:
            return lost
        if outcome == Outcome.COMPLETE:
            self._remove(held)
            self.counters.completed += len(held)
        elif outcome == Outcome.RELEASE:
            for entry in held:
                self.window.give_back(entry)
        elif outcome == Outcome.DEAD_LETTER:
            self._modify(held, modified)
            self._dead_letter(held, settlement.reason, settlement.description)
        else:
            rewritten = self._modify(held, modified)
            if outcome == Outcome.DEFER:
                self._defer(held, rewritten)
            else:
                self._count_failure(held, rewritten)
        return lost

    def discard(self, positions: list[int]) -> int:
        """Remove copies that were sent elsewhere meanwhile, unless somebody holds them.

        Those that are not in memory are removed when they would become visible.
        """
        wanted = set(positions) - self._unwanted.keys()
        last = max(wanted, default=0)
        kept: list[Entry] = []
        found: list[Entry] = []
        at = 0
        while at < last and (entry := self.window.pop()) is not None:
            at = entry.position
            (found if at in wanted else kept).append(entry)
        for entry in kept:
            self.window.give_back(entry)
        for position in wanted.difference(entry.position for entry in found):
            if position > self.window.gap_from:
                self._unwanted[position] = False
        if found:
            self._discard(found)
        return len(found)

    # Time ---------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When the oldest lock ends, or may end."""
        return self._expiries[0][0] if self._expiries else None

    def advance(self, now_ms: int) -> bool:
        """End locks whose time is over; True if something changed."""
        expired: list[Entry] = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, _, entries = heappop(self._expiries)
            self.awaited -= len(entries)
            for entry in entries:
                # A renewed lock stands in a later run, a settled one has no token.
                if entry.token and entry.locked_until_ms <= now_ms:
                    expired.append(entry)
                    self._unlock(entry)
        if expired:
            self._count_failure(expired, rewritten=False)
        return bool(expired)

    # Steps of the above -------------------------------------------------------------------

    def _unlock(self, entry: Entry) -> None:
        del self._locked[entry.token]
        self._locked_bytes -= len(entry.bare)
        entry.token = b""
        entry.locked_until_ms = 0

    def _remove(self, entries: list[Entry]) -> None:
        removed = self._stage().removed
        size = 0
        for entry in entries:
            removed.append(entry.position)
            size += len(entry.bare) + len(entry.kept)
        self.counters.active -= len(entries)
        self.counters.bytes -= size

    def _discard(self, entries: list[Entry]) -> None:
        self._remove(entries)
        self.counters.discarded += len(entries)

    def _modify(self, entries: list[Entry], changes: dict[str, object] | None) -> bool:
        if not changes:
            return False
        for entry in entries:
            before = len(entry.bare)
            entry.bare = _merged(entry.bare, changes)
            self.counters.bytes += len(entry.bare) - before
        return True

    def _update(self, entries: list[Entry], rewritten: bool) -> None:
        changes = self._stage()
        (changes.rewritten if rewritten else changes.updated).extend(entries)

    def _defer(self, entries: list[Entry], rewritten: bool) -> None:
        for entry in entries:
            entry.state = State.DEFERRED
        self.counters.active -= len(entries)
        self.counters.deferred += len(entries)
        self._update(entries, rewritten)

    def _count_failure(self, entries: list[Entry], rewritten: bool) -> None:
        """A delivery failed: the message comes back, or is set aside after its last chance."""
        again: list[Entry] = []
        spent: list[Entry] = []
        deliveries_max = self.settings.max_delivery_count
        in_main = self.key.subqueue == SubQueue.ACTIVE
        for entry in entries:
            entry.deliveries += 1
            exhausted = in_main and entry.deliveries >= deliveries_max
            (spent if exhausted else again).append(entry)
        if again:
            self._update(again, rewritten)
        if spent:
            self._dead_letter(
                spent,
                MAX_DELIVERIES_REASON,
                f"Message could not be consumed after {deliveries_max} delivery attempts.",
            )

    def _dead_letter(
        self, entries: list[Entry], reason: str | None, description: str | None
    ) -> None:
        self._remove(entries)
        self.counters.dead_lettered += len(entries)
        self._dead_letters().receive_dead(entries, reason, description)

    def receive_dead(
        self, entries: list[Entry], reason: str | None, description: str | None
    ) -> None:
        """As a dead-letter sub-queue: take these in, each with its old sequence number."""
        notes: dict[str, object] = {}
        if reason is not None:
            notes["DeadLetterReason"] = reason
        if description is not None:
            notes["DeadLetterErrorDescription"] = description
        counters = self.counters
        added = self._stage().added
        for entry in entries:
            dead = Entry(
                counters.next_position,
                entry.sequence,
                _merged(entry.bare, notes),
                entry.kept,
                entry.kept_count,
                entry.enqueued_ms,
                entry.expires_ms,
                entry.deliveries,
                State.ACTIVE,
                entry.session,
                0,
                entry.origin,
                entry.hops,
                entry.source,
            )
            added.append(dead)
            counters.next_position += 1
            counters.bytes += dead.size
        counters.active += len(entries)
        counters.accepted += len(entries)


def _read_properties(encoded: bytes) -> dict[str, object]:
    """The properties that a receiver wants to modify; read before anything is changed."""
    try:
        found = decode_all(encoded)
    except DecodeError as error:
        raise InvalidArgument(f"The properties to modify cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InvalidArgument("The properties to modify are no map with names for keys.")
    return found


def _merged(bare: bytes, changes: dict[str, object]) -> bytes:
    """The message with these application properties; one whose own are unreadable stays so."""
    if not changes:
        return bare
    try:
        return with_application_properties(bare, changes)
    except DecodeError:
        return bare
