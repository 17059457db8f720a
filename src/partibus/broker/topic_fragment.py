"""One fragment of a topic: passes messages on to the subscriptions that want them.

A message gets the topic's sequence number, and for each copy that the rules make an entry in the
subscription's fragment of the same partition, in the same commit: all copies or none. Its content
is kept once. The topic itself holds scheduled messages only; from its copies on, a message is the
business of ordinary fragments. Which subscriptions there are, it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from partibus.broker.descriptions import Description
from partibus.broker.durations import FOREVER_MS
from partibus.broker.errors import QuotaExceeded
from partibus.broker.fragment import MEGABYTE, Fragment
from partibus.broker.fragment_settings import Settings
from partibus.broker.message import Incoming
from partibus.broker.records import (
    Copy,
    Counters,
    Entry,
    FragmentKey,
    Publication,
    State,
    SubQueue,
    earliest,
)
from partibus.broker.rules.actions import Revision
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.rule_set import Outcome, TopicRules
from partibus.broker.session_fragment import kind_of_fragment as kind_of_queue
from partibus.broker.topics import TopicDescription
from partibus.wire.sections import scan

# Copies of the last messages, known until then in case the messages were sent elsewhere as well.
RECENT_COPIES_MAX = 16_384

NO_SESSION_REASON = "Session id is null."
NO_SESSION_TEXT = "The subscription requires sessions and takes no message without a SessionId."


def kind_of_fragment(key: FragmentKey, settings: Settings) -> type[Fragment]:
    """What a fragment is, by what its entity is."""
    if isinstance(settings, TopicDescription) and key.subqueue == SubQueue.ACTIVE:
        return TopicFragment
    return kind_of_queue(key, settings)


class Destination:
    """A subscription, as a fragment of its topic sees it."""

    __slots__ = ("description", "id", "open", "takes_all")

    def __init__(
        self,
        subscription: int,
        description: Description,
        open_fragment: Callable[[], Fragment],
        *,
        takes_all: bool,
    ) -> None:
        self.id = subscription
        self.description = description
        # The fragment that copies go to; whoever asks for it is about to stage something there.
        self.open = open_fragment
        # One copy of every message, as it came: no rule need be asked.
        self.takes_all = takes_all


class Circle:
    """The subscriptions of a topic and their rules, for one of its fragments."""

    __slots__ = ("by_id", "everything", "fragment", "held", "new_id", "rules")

    def __init__(
        self,
        destinations: list[Destination],
        rules: TopicRules[int],
        fragment: Callable[[int], Fragment | None],
        held: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        # Those who take all messages, and those who choose (by the rules).
        self.everything = [each for each in destinations if each.takes_all]
        self.by_id = {each.id: each for each in destinations if not each.takes_all}
        self.rules = rules
        # The fragment with this number, if it is still there; for changing it.
        self.fragment = fragment
        # How many bytes all subscriptions hold in this fragment.
        self.held = held
        self.new_id = new_id


class TopicFragment(Fragment):
    """The scheduled messages of a topic in one store, and the way to its subscriptions."""

    def __init__(
        self,
        key: FragmentKey,
        number: int,
        store: int,
        settings: Settings,
        counters: Counters | None,
        dead_letters: Callable[[], Fragment],
    ) -> None:
        super().__init__(key, number, store, settings, counters, dead_letters)
        # Whoever makes the fragment says who its subscriptions are; asked anew for each send.
        self.circle: Callable[[], Circle] | None = None
        # No less than what topic and subscriptions hold, as far as we know; -1: not known.
        self._held = -1
        # By position: where the copies went.
        self._recent: dict[int, list[tuple[int, int]]] = {}
        self._recent_copies = 0

    def send(self, messages: list[Incoming], now_ms: int) -> int:
        """Take messages in, all or none; returns the position of the first."""
        self.check_room(_size(messages))
        first = self.counters.next_position
        for is_later, group in groupby(messages, lambda each: each.due_ms > now_ms):
            run = list(group)
            if is_later:
                super().send(run, now_ms)
                self._hold(_size(run))
            else:
                self.counters.accepted += len(run)
                self._publish([self._publication(each, now_ms) for each in run], now_ms)
        return first

    def activate(self, stored: list[Entry], now_ms: int) -> bool:
        """Scheduled messages, as the disk has them, whose time has come: they are passed on."""
        due = [each for each in stored if each.state == State.SCHEDULED and self._is_free(each)]
        due = [each for each in due if each.due_ms <= now_ms]
        if not due:
            return False
        changes, counters = self._stage(), self.counters
        publications: list[Publication] = []
        for entry in due:
            self._aside.add(entry.position)
            changes.removed.append(entry.position)
            counters.bytes -= entry.size
            ttl_ms = entry.expires_ms - entry.due_ms if entry.expires_ms else FOREVER_MS
            position = self._next_position()
            origin = entry.origin or self._high | position
            publications.append(
                Publication(
                    position, entry.bare, entry.kept, entry.kept_count, ttl_ms, entry.session,
                    now_ms, origin, entry.hops, entry.source,
                )
            )  # fmt: skip
        counters.scheduled -= len(due)
        self._publish(publications, now_ms)
        return True

    def discard(self, positions: list[int]) -> int:
        """Remove the copies of messages that were sent elsewhere meanwhile."""
        gone: dict[int, list[int]] = {}
        for position in positions:
            for number, copy in self._forget(position):
                gone.setdefault(number, []).append(copy)
        removed = super().discard(positions)
        circle = self._circle()
        for number, copies in gone.items():
            fragment = circle.fragment(number)
            if fragment is not None:
                removed += fragment.discard(copies)
        return removed

    # Room ---------------------------------------------------------------------------------

    def check_room(self, size: int) -> None:
        """Refuse what does not fit. Every copy counts; what went is noticed when it is full."""
        quota = self.settings.max_size_mb * MEGABYTE
        if self._held < 0 or self._held + size > quota:
            self._held = self.held_bytes()
        if self._held + size > quota:
            raise QuotaExceeded(
                f"The fragment of the topic and of its subscriptions holds {self._held} of {quota} "
                f"bytes; {size} more do not fit. Receive messages, or make the topic larger."
            )

    def held_bytes(self) -> int:
        """What the fragment holds with all copies in its subscriptions, of which each counts."""
        return self.counters.bytes + self._circle().held()

    def _hold(self, size: int) -> None:
        if self._held >= 0:
            self._held += size

    # Passing on ---------------------------------------------------------------------------

    def _circle(self) -> Circle:
        assert self.circle is not None, "nobody said who the subscriptions are"
        return self.circle()

    def _next_position(self) -> int:
        position = self.counters.next_position
        self.counters.next_position = position + 1
        return position

    def _publication(self, message: Incoming, now_ms: int) -> Publication:
        ttl_ms = message.ttl_ms
        if not ttl_ms or ttl_ms > self.settings.default_ttl_ms:
            ttl_ms = self.settings.default_ttl_ms
        position = self._next_position()
        publication = Publication(
            position, message.bare, message.kept, message.kept_count, ttl_ms, message.session,
            now_ms, self._high | position,
        )  # fmt: skip
        passage = message.passage
        if passage is not None:
            publication.origin, publication.enqueued_ms = passage.origin, passage.enqueued_ms
            publication.hops, publication.source = passage.hops, passage.source
        return publication

    def _publish(self, publications: list[Publication], now_ms: int) -> None:
        circle = self._circle()
        for destination in circle.everything:
            self._copy_all(destination, publications, now_ms)
        if circle.by_id:
            for publication in publications:
                self._copy_chosen(circle, publication, now_ms)
        published = [each for each in publications if each.copies]
        self._stage().published += published
        self.counters.forwarded += len(published)
        self.counters.discarded += len(publications) - len(published)
        if self.key.partition:
            self._remember(published)

    def _copy_all(
        self, destination: Destination, publications: list[Publication], now_ms: int
    ) -> None:
        fragment = destination.open()
        if destination.description.requires_session:
            for each in publications:
                self._copy(fragment, each, None, None, now_ms)
            return
        high, ttl_ms_max = self._high, destination.description.default_ttl_ms
        changes, counters, number = fragment._stage(), fragment.counters, fragment.number
        position, size, expires = counters.next_position, 0, changes.expires_ms
        for each in publications:
            ttl_ms = each.ttl_ms if each.ttl_ms < ttl_ms_max else ttl_ms_max
            expires_ms = now_ms + ttl_ms if ttl_ms < FOREVER_MS else 0
            entry = Copy(position, high | position, each, expires_ms)
            changes.added.append(entry)
            each.copies.append((number, position))
            size += entry.shared
            if expires_ms:
                expires = earliest(expires, expires_ms)
            position += 1
        changes.expires_ms = expires
        counters.next_position = position
        counters.active += len(publications)
        counters.accepted += len(publications)
        counters.bytes += size
        self._hold(size)

    def _copy_chosen(self, circle: Circle, publication: Publication, now_ms: int) -> None:
        view = MessageView(
            publication.bare,
            publication.kept,
            publication.kept_count,
            ttl_ms=publication.ttl_ms if publication.ttl_ms < FOREVER_MS else 0,
            enqueued_ms=now_ms,
            sequence_number=self._high | publication.position,
            new_id=circle.new_id,
        )
        for subscription, outcome in circle.rules.evaluate(view).items():
            destination = circle.by_id.get(subscription)
            if destination is not None:
                self._carry_out(destination, publication, view, outcome, now_ms)

    def _carry_out(
        self,
        destination: Destination,
        publication: Publication,
        view: MessageView,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        failure = outcome.failure
        keeps_failures = destination.description.dead_letter_on_filter_errors
        if not outcome.copies and not (failure and keeps_failures):
            return
        fragment = destination.open()
        for copy in outcome.copies:
            self._copy(fragment, publication, view, copy.revision, now_ms)
        if failure is not None and keeps_failures:
            entry = self._arrive(fragment, publication, now_ms)
            self._set_aside(fragment, entry, failure.reason, failure.description)

    def _copy(
        self,
        fragment: Fragment,
        publication: Publication,
        view: MessageView | None,
        revision: Revision | None,
        now_ms: int,
    ) -> None:
        entry = self._arrive(fragment, publication, now_ms)
        if revision is not None and view is not None:
            body = publication.bare[view.head.body_offset :]
            entry.bare = revision.head + body
            entry.kept, entry.kept_count = revision.annotations, revision.annotation_count
            entry.shared = len(body)
            # An action may give it another session; it stays in its fragment all the same.
            entry.session = scan(entry.bare).group_id
        if fragment.settings.requires_session and entry.session is None:
            self._set_aside(fragment, entry, NO_SESSION_REASON, NO_SESSION_TEXT)
            return
        changes, counters = fragment._stage(), fragment.counters
        changes.added.append(entry)
        changes.expires_ms = earliest(changes.expires_ms, entry.expires_ms)
        publication.copies.append((fragment.number, entry.position))
        counters.active += 1
        counters.bytes += entry.size
        self._hold(entry.size)

    def _arrive(self, fragment: Fragment, publication: Publication, now_ms: int) -> Copy:
        """A copy with the next number of the subscription's fragment; not staged yet."""
        counters = fragment.counters
        position = counters.next_position
        counters.next_position = position + 1
        counters.accepted += 1
        ttl_ms = min(publication.ttl_ms, fragment.settings.default_ttl_ms)
        expires_ms = now_ms + ttl_ms if ttl_ms < FOREVER_MS else 0
        return Copy(position, self._high | position, publication, expires_ms)

    def _set_aside(self, fragment: Fragment, entry: Copy, reason: str, description: str) -> None:
        """The subscription cannot take it: it goes to its dead letters, with its own contents."""
        fragment._stage()
        fragment.counters.dead_lettered += 1
        self._hold(entry.size)
        fragment._dead_letters().receive_dead([entry], reason, description)

    # What may be taken back ---------------------------------------------------------------

    def _remember(self, published: list[Publication]) -> None:
        recent = self._recent
        for each in published:
            recent[each.position] = each.copies
            self._recent_copies += len(each.copies)
        while self._recent_copies > RECENT_COPIES_MAX:
            self._forget(next(iter(recent)))

    def _forget(self, position: int) -> list[tuple[int, int]]:
        copies = self._recent.pop(position, [])
        self._recent_copies -= len(copies)
        return copies


def _size(messages: list[Incoming]) -> int:
    return sum(len(each.bare) + len(each.kept) for each in messages)
