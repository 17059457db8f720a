"""One fragment's state machine: scheduled, ready, locked, deferred, settled, expired, dead.

Decides, and never waits: each operation changes the state in memory and writes down what the
store must commit. Nothing becomes visible before `committed` says that it is durable, and whoever
asked is answered only then. Locks are not written: a crash makes locked messages available again.
The fragment does not know files, nodes or links; it is told the time and given entropy.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.appending import leave_to_disk, place
from partibus.broker.blocks import Block
from partibus.broker.deadletter import (
    EXPIRED_REASON,
    EXPIRED_TEXT,
    MAX_DELIVERIES_REASON,
    dead_letter,
    merged,
    read_modifications,
)
from partibus.broker.duplicates import bucket_of
from partibus.broker.durations import FOREVER_MS
from partibus.broker.errors import (
    FragmentUnavailable,
    InvalidOperation,
    MessageNotFound,
    QuotaExceeded,
)
from partibus.broker.fragment_settings import Settings
from partibus.broker.locks import Locks, token_prefix
from partibus.broker.message import Incoming
from partibus.broker.passages import note_passages
from partibus.broker.records import (
    Changes,
    Counters,
    Digest,
    Entry,
    FragmentKey,
    Sighting,
    State,
    SubQueue,
    earliest,
)
from partibus.broker.settlement import Outcome, Settlement
from partibus.broker.window import Window

PARTITION_SHIFT = 48
MEGABYTE = 1024 * 1024

COUNTER_MASK = (1 << PARTITION_SHIFT) - 1


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
        self._shares = settings.shares_contents and key.subqueue == SubQueue.ACTIVE
        # A fragment without counters is new: the first commit makes its row.
        self._created = counters is None
        self.counters = counters if counters is not None else Counters()
        last = self.counters.next_position - 1 if self.counters.active else 0
        self.window = Window(gap_to=last)
        # A token names its store and fragment, because a settlement may arrive at any node.
        self.token_prefix = token_prefix(store, number)
        self._dead_letters = dead_letters
        self._high = key.partition << PARTITION_SHIFT
        self._changes: Changes | None = None
        self.locks = Locks(self.token_prefix)
        # Positions of copies to be removed when they are seen, and whether that is staged.
        self._unwanted: dict[int, bool] = {}
        # Positions whose entries are read from disk when they are needed and must not be taken a
        # second time: they are locked, or what became of them is on its way to the disk.
        self._aside: set[int] = set()
        # The dead letters of the same fragment, which count towards its quota.
        self.dead: Fragment | None = None
        # Up to where messages were taken from transfer queues; None: not read yet.
        self.marks: dict[FragmentKey, int] | None = {} if counters is None else None

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
        added = changes.added
        if self._aside:
            self._aside.difference_update(changes.removed)
            changed = changes.updated + changes.rewritten
            self._aside.difference_update(entry.position for entry in changed)
        if self._unwanted:
            for position in changes.removed:
                self._unwanted.pop(position, None)
            added = self._without_unwanted(added)
        if changes.due_ms:
            # Scheduled messages wait on disk for their time.
            added = [entry for entry in added if entry.state == State.ACTIVE]
        if changes.blocks:
            leave_to_disk(self.window, added, changes.blocks)
        elif added:
            self.window.arrived(added)
        shown = bool(added or changes.blocks)
        for entries in (changes.updated, changes.rewritten):
            for entry in entries:
                if entry.state == State.ACTIVE:
                    self.window.give_back(entry)
                    shown = True
                    changes.expires_ms = earliest(changes.expires_ms, entry.expires_ms)
        return shown

    def loaded(self, entries: list[Entry], complete: bool) -> None:
        """The next part of the backlog was read; `complete` where nothing lies behind it."""
        last = entries[-1].position if entries else 0
        if self._aside:
            entries = [entry for entry in entries if entry.position not in self._aside]
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
            self._changes.shares = self._shares
        return self._changes

    # Sending ------------------------------------------------------------------------------

    def send(self, messages: list[Incoming], now_ms: int) -> int:
        """Take messages in, all or none; returns the position of the first."""
        if self._shares:
            raise InvalidOperation("A subscription takes copies only: send to its topic.")
        counters = self.counters
        size = sum([len(message.bare) + len(message.kept) for message in messages])
        self.check_room(size)
        first = position = counters.next_position
        default_ttl_ms = self.settings.default_ttl_ms
        high = self._high
        changes = self._stage()
        added = changes.added
        scheduled = 0
        for message in messages:
            ttl_ms = message.ttl_ms
            if not ttl_ms or ttl_ms > default_ttl_ms:
                ttl_ms = default_ttl_ms
            expires_ms = now_ms + ttl_ms if ttl_ms < FOREVER_MS else 0
            entry = Entry(
                position, high | position, message.bare, message.kept, message.kept_count, now_ms,
                expires_ms, 0, 0, message.session,
            )  # fmt: skip
            added.append(entry)
            position += 1
            if message.due_ms > now_ms:
                entry.schedule(message.due_ms)
                changes.due_ms = earliest(changes.due_ms, message.due_ms)
                scheduled += 1
            elif expires_ms:
                changes.expires_ms = earliest(changes.expires_ms, expires_ms)
        count = len(messages)
        counters.next_position = position
        counters.active += count - scheduled
        counters.scheduled += scheduled
        counters.accepted += count
        counters.bytes += size
        if messages and messages[0].passage is not None:
            note_passages(messages, added)
        return first

    def append(self, block: Block, now_ms: int) -> None:
        """Take in messages that were written in bulk; they stay on disk until they are wanted."""
        self.check_room(len(block.content))
        place(block, self._stage(), self.counters, self.settings.default_ttl_ms, now_ms)

    def check_room(self, size: int) -> None:
        """Refuse what does not fit: dead letters take room as well."""
        quota = self.settings.max_size_mb * MEGABYTE
        held = self.counters.bytes + (self.dead.counters.bytes if self.dead else 0)
        if held + size > quota:
            raise QuotaExceeded(
                f"The fragment holds {held} of {quota} bytes; {size} more do not fit. "
                "Receive messages, or make the entity larger."
            )

    def mark(self, source: FragmentKey, high: int) -> None:
        """With what is staged now, all up to a position of a transfer queue has been taken."""
        assert self.marks is not None, "they are read before they are changed"
        self.marks[source] = self._stage().marks[source] = high

    def establish(self) -> None:
        """Exist durably, also without messages."""
        if self._created:
            self._stage()

    def produce(self, writer: str, batch: int, published: int) -> None:
        """With what is staged now, so many messages of a bulk writer's batch are published."""
        self._stage().produced[writer] = batch, published

    def note(self, name: str, content: bytes | None, now_ms: int) -> None:
        """Keep this with what is staged now, under a name; None: nothing any more."""
        self._stage().states[name] = content, now_ms

    def sight(self, digests: list[Digest], now_ms: int) -> None:
        """Messages with these digests were taken in just now: keep that, with them."""
        bucket = bucket_of(now_ms, self.settings.duplicate_window_ms)
        self._stage().sighted += [Sighting(digest, now_ms, bucket) for digest in digests]

    # Receiving ----------------------------------------------------------------------------

    def take(self, count: int, now_ms: int, entropy: Callable[[int], bytes]) -> list[Entry]:
        """Lock up to `count` messages, the oldest first."""
        taken = [] if self.locks.full else self.withdraw(count, now_ms)
        if taken:
            self._lock(taken, now_ms, entropy)
        return taken

    def withdraw(self, count: int, now_ms: int) -> list[Entry]:
        """Take up to `count` messages out of memory, the oldest first; what is expired leaves."""
        taken: list[Entry] = []
        expired: list[Entry] = []
        pop = self.window.pop
        entry = pop()
        while entry is not None:
            if entry.expires_ms and self._is_over(entry, now_ms):
                expired.append(entry)
            else:
                taken.append(entry)
                if len(taken) >= count:
                    break
            entry = pop()
        if expired:
            self._expire(expired)
        return taken

    def part_with(self, entries: list[Entry]) -> None:
        """Messages that were withdrawn go elsewhere, in the same commit."""
        self._remove(entries)
        self.counters.forwarded += len(entries)

    def _lock(self, taken: list[Entry], now_ms: int, entropy: Callable[[int], bytes]) -> None:
        self.locks.lock(taken, now_ms + self.settings.lock_ms, entropy)

    def renew(self, tokens: list[bytes], now_ms: int) -> tuple[int, list[bytes]]:
        """Extend locks; returns their new end, and the tokens whose lock was lost."""
        until_ms = now_ms + self.settings.lock_ms
        return until_ms, self.locks.renew(tokens, now_ms, until_ms)

    def holds(self, tokens: list[bytes], now_ms: int) -> bool:
        """Whether all of these tokens lock something here."""
        return all(self.locks.find(token, now_ms) is not None for token in tokens)

    def check(self, settlement: Settlement) -> dict[str, object] | None:
        """Refuse what cannot be done here; else the properties to modify, where there are any."""
        is_dead_letter = settlement.outcome == Outcome.DEAD_LETTER
        if is_dead_letter and self.key.subqueue != SubQueue.ACTIVE:
            raise InvalidOperation("A message cannot be dead-lettered from a dead-letter queue.")
        return read_modifications(settlement.properties) if settlement.properties else None

    def settle(self, tokens: list[bytes], settlement: Settlement, now_ms: int) -> list[bytes]:
        """Settle what these tokens lock; returns the tokens whose lock was lost."""
        outcome = settlement.outcome
        modified = self.check(settlement)
        lost: list[bytes] = []
        held: list[Entry] = []
        for token in tokens:
            entry = self.locks.find(token, now_ms)
            if entry is None:
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
            self._release(held, now_ms)
        elif outcome == Outcome.DEAD_LETTER:
            self._modify(held, modified)
            self._dead_letter(held, settlement.reason, settlement.description)
        else:
            rewritten = self._modify(held, modified)
            if outcome == Outcome.DEFER:
                self._defer(held, rewritten)
            else:
                self.count_failure(held, rewritten, now_ms)
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

    def reserve(self, entries: list[Entry]) -> None:
        """Set withdrawn messages aside for a bulk reader."""
        for entry in entries:
            entry.state = State.RESERVED
        self._update(entries, rewritten=False)

    def complete_reserved(self, positions: list[int], size: int) -> None:
        """A bulk reader is done with these."""
        self._stage().removed.extend(positions)
        self.counters.active -= len(positions)
        self.counters.bytes -= size
        self.counters.completed += len(positions)

    # Time ---------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When the oldest lock ends, or may end."""
        return self.locks.next_end_ms()

    def advance(self, now_ms: int) -> bool:
        """End locks whose time is over; True if something changed."""
        expired = self.locks.ended(now_ms)
        for entry in expired:
            self._unlock(entry)
        if expired:
            self.count_failure(expired, rewritten=False, now_ms=now_ms)
        return bool(expired)

    def activate(self, stored: list[Entry], now_ms: int) -> bool:
        """Scheduled messages, as the disk has them, whose time has come: they arrive anew.

        Each gets the next sequence number, and its time to live begins.
        """
        counters = self.counters
        due = [each for each in stored if each.state == State.SCHEDULED and self._is_free(each)]
        due = [each for each in due if each.due_ms <= now_ms]
        if not due:
            return False
        changes = self._stage()
        for entry in due:
            self._aside.add(entry.position)
            changes.removed.append(entry.position)
            entry.position = counters.next_position
            entry.sequence = self._high | entry.position
            counters.next_position += 1
            if entry.expires_ms:
                entry.expires_ms += now_ms - entry.due_ms
            entry.enqueued_ms, entry.due_ms, entry.state = now_ms, 0, State.ACTIVE
            changes.added.append(entry)
            changes.expires_ms = earliest(changes.expires_ms, entry.expires_ms)
        counters.scheduled -= len(due)
        counters.active += len(due)
        return True

    def expire(self, stored: list[Entry], now_ms: int) -> bool:
        """Messages whose time to live is over leave: those in memory, and of those that the disk
        has, which are `stored`, what is only there. Whoever is locked or deferred stays.
        """
        expired = self.window.take_expired(now_ms)
        over = [each for each in stored if self._is_over(each, now_ms) and self._is_free(each)]
        expired += [e for e in over if e.state == State.ACTIVE and self.window.is_on_disk_only(e)]
        if expired:
            self._aside.update(entry.position for entry in expired)
            self._expire(expired)
        return bool(expired)

    # By sequence number -------------------------------------------------------------------

    def shows(self, entry: Entry) -> bool:
        """Whether a browser may see what the disk has: not a copy that is to be removed."""
        return entry.position not in self._unwanted

    def receive_deferred(
        self,
        sequences: list[int],
        stored: list[Entry],
        now_ms: int,
        entropy: Callable[[int], bytes],
        *,
        delete: bool,
    ) -> list[Entry]:
        """Lock deferred messages, or delete them: all that were asked for, or none.

        `stored` is what the disk has under these numbers.
        """
        over = [each for each in stored if self._is_over(each, now_ms)]
        over = [each for each in over if each.state == State.DEFERRED and self._is_free(each)]
        if over:
            # A deferred message expires only now, when somebody asks for it.
            self._aside.update(entry.position for entry in over)
            self._expire(over)
        entries = self._all_free(sequences, stored, State.DEFERRED)
        if delete:
            self._aside.update(entry.position for entry in entries)
            self._remove(entries)
            self.counters.completed += len(entries)
        elif self.locks.full:
            raise FragmentUnavailable("Too many messages are locked; settle some, and try again.")
        else:
            self._aside.update(entry.position for entry in entries)
            self._lock(entries, now_ms, entropy)
        return entries

    def cancel_scheduled(self, sequences: list[int], stored: list[Entry]) -> None:
        """Remove scheduled messages before their time: all that were asked for, or none."""
        self.discard_stored(self._all_free(sequences, stored, State.SCHEDULED))

    def discard_stored(self, stored: list[Entry]) -> int:
        """Remove what only the disk has, in any state, unless somebody holds it."""
        free = [each for each in stored if self._is_free(each)]
        gone = [e for e in free if e.state != State.ACTIVE or self.window.is_on_disk_only(e)]
        if gone:
            self._aside.update(entry.position for entry in gone)
            self._discard(gone)
        return len(gone)

    def delete_ready(self, count: int, until_ms: int) -> int:
        """Remove messages that wait in memory and were enqueued up to a time, the oldest first."""
        found: list[Entry] = []
        while len(found) < count and (entry := self.window.pop()) is not None:
            if entry.enqueued_ms > until_ms:
                self.window.give_back(entry)
                break
            found.append(entry)
        if found:
            self._discard(found)
        return len(found)

    def _all_free(self, sequences: list[int], stored: list[Entry], state: State) -> list[Entry]:
        found = {each.sequence: each for each in stored if each.state == state}
        for sequence in sequences:
            entry = found.get(sequence)
            if entry is None or not self._is_free(entry):
                raise MessageNotFound(
                    f"There is no {state.name.lower()} message with the sequence number "
                    f"{sequence & COUNTER_MASK} that could be had."
                )
        return [found[sequence] for sequence in dict.fromkeys(sequences)]

    def _is_free(self, entry: Entry) -> bool:
        return entry.position not in self._aside and entry.position not in self._unwanted

    def _is_over(self, entry: Entry, now_ms: int) -> bool:
        """Whether its time to live has passed; dead letters live for ever."""
        return 0 < entry.expires_ms <= now_ms and self.key.subqueue == SubQueue.ACTIVE

    # Steps of the above -------------------------------------------------------------------

    def _unlock(self, entry: Entry) -> None:
        self.locks.unlock(entry)

    def _remove(self, entries: list[Entry]) -> None:
        removed = self._stage().removed
        size = 0
        for entry in entries:
            removed.append(entry.position)
            size += len(entry.bare) + len(entry.kept)
        counters = self.counters
        counters.bytes -= size
        counters.active -= len(entries)
        for entry in [entry for entry in entries if entry.state]:
            counters.active += 1
            if entry.state == State.DEFERRED:
                counters.deferred -= 1
            else:
                counters.scheduled -= 1

    def _expire(self, entries: list[Entry]) -> None:
        if self.settings.dead_letter_on_expiration:
            self._dead_letter(entries, EXPIRED_REASON, EXPIRED_TEXT)
        else:
            self._remove(entries)
            self.counters.expired += len(entries)

    def _release(self, entries: list[Entry], now_ms: int) -> None:
        expired: list[Entry] = []
        for entry in entries:
            if entry.state == State.DEFERRED:
                self._aside.discard(entry.position)
            elif entry.expires_ms and self._is_over(entry, now_ms):
                expired.append(entry)
            else:
                self.window.give_back(entry)
        if expired:
            self._expire(expired)

    def _discard(self, entries: list[Entry]) -> None:
        self._remove(entries)
        self.counters.discarded += len(entries)

    def _modify(self, entries: list[Entry], changes: dict[str, object] | None) -> bool:
        if not changes:
            return False
        for entry in entries:
            before = len(entry.bare)
            entry.bare = merged(entry.bare, changes)
            self.counters.bytes += len(entry.bare) - before
        return True

    def _update(self, entries: list[Entry], rewritten: bool) -> None:
        changes = self._stage()
        (changes.rewritten if rewritten else changes.updated).extend(entries)

    def _defer(self, entries: list[Entry], rewritten: bool) -> None:
        for entry in entries:
            entry.deliveries += 1
            if entry.state == State.ACTIVE:
                entry.state = State.DEFERRED
                self.counters.active -= 1
                self.counters.deferred += 1
        self._update(entries, rewritten)

    def count_failure(self, entries: list[Entry], rewritten: bool, now_ms: int) -> None:
        """A delivery failed: the message comes back, or is set aside after its last chance."""
        again: list[Entry] = []
        spent: list[Entry] = []
        over: list[Entry] = []
        deliveries_max = self.settings.max_delivery_count
        in_main = self.key.subqueue == SubQueue.ACTIVE
        for entry in entries:
            entry.deliveries += 1
            if in_main and entry.deliveries >= deliveries_max:
                spent.append(entry)
            elif entry.state == State.ACTIVE and self._is_over(entry, now_ms):
                over.append(entry)
            else:
                again.append(entry)
        if again:
            self._update(again, rewritten)
        if over:
            self._expire(over)
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
        counters = self.counters
        added = self._stage().added
        for entry in entries:
            dead = dead_letter(entry, counters.next_position, reason, description)
            added.append(dead)
            counters.next_position += 1
            counters.bytes += dead.size
        counters.active += len(entries)
        counters.accepted += len(entries)
