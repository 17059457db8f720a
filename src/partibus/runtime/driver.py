"""What the documents call a message broker: the owner of one store and of its fragments.

Gathers what the fragments staged in a turn and commits it as one; whoever asked is answered when
that is durable, and what became visible is shown then. While one commit runs the next gathers, so
nobody waits for a timer. If the store fails, everything in memory is forgotten and the store is
opened anew: the disk is the truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.fragment_settings import Settings
from partibus.broker.locks import token_prefix
from partibus.broker.records import FragmentKey, FragmentSummary, SubQueue
from partibus.broker.session_fragment import SessionFragment
from partibus.broker.topic_fragment import TopicFragment, kind_of_fragment
from partibus.runtime.agenda import Agenda
from partibus.runtime.clock import Clock
from partibus.runtime.deadlines import Deadlines
from partibus.runtime.disk import Disk
from partibus.runtime.duplicates import DuplicateHistory
from partibus.runtime.gate import Gate
from partibus.runtime.tidying import Tidying
from partibus.store import Store, StoreError

log = logging.getLogger(__name__)

LOAD_MESSAGES = 1024
LOAD_BYTES = 1024 * 1024
# With more operations than this waiting for the disk, receivers are not served (back-pressure).
STAGED_OPERATIONS_MAX = 8192
# Memory for the heads of fragments that nobody receives from, per store.
IDLE_WINDOW_BYTES_MAX = 8 * 1024 * 1024
REOPEN_AFTER_MS = 1000
TRIM_EVERY_COMMITS = 64

Done = Callable[[Refusal | None], None]


class Audience(Protocol):
    """Who wants to know what a driver's fragments have to offer."""

    def shown(self, driver: Driver, fragment: Fragment) -> None:
        """The fragment may have something ready."""

    def wanted(self, fragment: Fragment) -> bool:
        """Whether anybody receives from the fragment."""

    def is_deleted(self, key: FragmentKey) -> bool:
        """Whether the fragment's entity is known to be gone for good."""

    def attend(self, driver: Driver, topic: TopicFragment) -> None:
        """A fragment of a topic is there, which must be told who its subscriptions are."""

    def lost(self, driver: Driver) -> None:
        """All fragments of this driver are gone until `shown` names them again."""


class Driver:
    """One store, its fragments, its commits and its deadlines."""

    def __init__(
        self,
        store: int,
        open_store: Callable[[], Store],
        disk: Disk,
        gate: Gate,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[int], Settings | None],
        audience: Audience,
    ) -> None:
        self.store = store
        self._open_store = open_store
        self._disk = disk
        self._gate = gate
        self._clock = clock
        self._loop = loop
        self._settings = settings
        self._audience = audience
        self._files: Store | None = None
        # How often it was opened: what was promised from memory counts in one of its lives only.
        self.lives = 0
        self.fragments: dict[FragmentKey, Fragment] = {}
        self._by_prefix: dict[bytes, Fragment] = {}
        self._next_number = 1
        # A dict as an ordered set.
        self._dirty: dict[Fragment, None] = {}
        self._waiting: list[Done] = []
        self._in_flight: list[Done] = []
        self._committing = False
        self._commit_due = False
        self.committing_since_ms = 0
        self._loading: set[int] = set()
        self._deadlines = Deadlines(clock, self._due)
        self._closed = False
        self._tidying = Tidying(self, clock)
        # For operators: since the node began.
        self.commits = 0
        self.commit_ms = 0
        self.failures = 0
        self._agenda = Agenda(self, clock)
        # Who waits for the next part of a fragment's backlog, by the fragment's number.
        self._load_waiters: dict[int, list[Callable[[], None]]] = {}
        # Reads that the disk has not answered yet.
        self.reading = 0
        self.duplicates = DuplicateHistory(self, clock)

    # Life -----------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether the store is open and answers."""
        return self._files is not None

    @property
    def congested(self) -> bool:
        """Whether more waits for the disk than should."""
        return self.waiting > STAGED_OPERATIONS_MAX

    @property
    def waiting(self) -> int:
        """How many operations wait for the disk."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return not self._committing and not self._dirty

    def open(self, opened: Callable[[Exception | None], None]) -> None:
        """Open the store; opened(None) once its fragments are known."""
        now_ms = self._clock.now_ms()

        def work() -> tuple[Store, list[FragmentSummary]]:
            store = self._open_store()
            while store.forget(now_ms):
                pass
            return store, store.fragments()

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                opened(result)
                return
            if self._closed:
                result[0].close()
                return
            self._files, summaries = result
            self.lives += 1
            for summary in summaries:
                self._adopt(summary)
            opened(None)
            for fragment in list(self.fragments.values()):
                if fragment.counters.active:
                    self._audience.shown(self, fragment)
            self._agenda.begin()

        self._disk.call(work, done)

    def close(self) -> None:
        """Commit what is staged, then give the store up. Blocks until it is on disk."""
        self._closed = True
        self._agenda.end()
        files, self._files = self._files, None
        if files is not None:
            batch = [fragment.take_changes() for fragment in self._dirty if fragment.dirty]
            self._dirty = {}

            def work() -> None:
                if batch:
                    files.commit(batch)
                files.close()

            self._disk.call(work, lambda _: None)
        self._disk.close()

    def _adopt(self, summary: FragmentSummary) -> None:
        settings = self._settings(summary.key.entity)
        self._next_number = max(self._next_number, summary.number + 1)
        if settings is not None:
            self._make(summary.key, summary.number, settings, summary)
        elif self._audience.is_deleted(summary.key):
            # Its entity went while this store was not there, or before its space was taken back.
            self._tidying.take_back(summary.number)

    def _make(
        self, key: FragmentKey, number: int, settings: Settings, summary: FragmentSummary | None
    ) -> Fragment:
        fragment = kind_of_fragment(key, settings)(
            key,
            number,
            self.store,
            settings,
            summary.counters if summary else None,
            lambda: self._dead_letters(fragment),
        )
        if isinstance(fragment, TopicFragment):
            self._audience.attend(self, fragment)
        self.fragments[key] = fragment
        self._by_prefix[fragment.token_prefix] = fragment
        if key.subqueue == SubQueue.ACTIVE:
            fragment.dead = self.fragments.get(key._replace(subqueue=SubQueue.DEAD_LETTER))
        elif key.subqueue == SubQueue.DEAD_LETTER:
            living = self.fragments.get(key._replace(subqueue=SubQueue.ACTIVE))
            if living is not None:
                living.dead = fragment
        return fragment

    def _dead_letters(self, source: Fragment) -> Fragment:
        return self.beside(source, SubQueue.DEAD_LETTER)

    def beside(self, source: Fragment, subqueue: SubQueue) -> Fragment:
        """Another sub-queue of the same fragment, which is about to stage something."""
        fragment = self.fragment(source.key._replace(subqueue=subqueue), source.settings)
        self.touch(fragment)
        return fragment

    def fragment(self, key: FragmentKey, settings: Settings) -> Fragment:
        """The fragment with this key, made now if it is new to the store."""
        fragment = self.fragments.get(key)
        if fragment is None:
            fragment = self._make(key, self._next_number, settings, None)
            self._next_number += 1
        return fragment

    def fragment_of(self, prefix: bytes) -> Fragment | None:
        """The fragment that lock tokens with this prefix name."""
        return self._by_prefix.get(prefix)

    def numbered(self, number: int) -> Fragment | None:
        """The fragment with this number in the store."""
        return self._by_prefix.get(token_prefix(self.store, number))

    def has(self, fragment: Fragment) -> bool:
        """Whether the fragment is still there: neither deleted, nor lost with the store."""
        return self.fragments.get(fragment.key) is fragment

    def drop(self, fragment: Fragment) -> None:
        """Forget a fragment of a deleted entity and take its space back, bit by bit."""
        self.fragments.pop(fragment.key, None)
        self._by_prefix.pop(fragment.token_prefix, None)
        self._dirty.pop(fragment, None)
        self._tidying.take_back(fragment.number)

    # Commits --------------------------------------------------------------------------------

    def touch(self, fragment: Fragment) -> None:
        """The fragment has staged something, or is about to in this turn."""
        self._dirty[fragment] = None
        if not self._commit_due and not self._committing:
            self._commit_due = True
            self._loop.call_soon(self._gate.enter, self._commit)

    def when_durable(self, done: Done) -> None:
        """Call done once what was staged just now is on disk, or failed."""
        assert self._dirty, "only who has touched a fragment waits"
        self._waiting.append(done)

    def when_settled(self, done: Done) -> None:
        """Call done once everything staged so far is on disk, or failed; at once if it is."""
        if self._dirty:
            self._waiting.append(done)
        elif self._committing:
            self._in_flight.append(done)
        else:
            done(None)

    def _commit(self, number: int) -> bool:
        """Commit all that has gathered; False where there is nothing to commit."""
        self._commit_due = False
        if self._committing or self._closed or self._files is None:
            return False
        fragments = [fragment for fragment in self._dirty if fragment.dirty]
        self._dirty = {}
        self._in_flight, self._waiting = self._waiting, []
        if not fragments:
            self._answer(None)
            return False
        batch = [fragment.take_changes() for fragment in fragments]
        self._committing = True
        was_congested = self.congested
        self.committing_since_ms = self._clock.now_ms()
        files = self._files

        def committed(result: Any) -> None:
            self._committing = False
            self._gate.leave(number)
            if self._closed or self._files is not files:
                # The store was given up meanwhile; what it holds is read when it is opened anew.
                return
            if isinstance(result, Exception):
                self._fail(result)
                return
            # Answers come first: who sent the same elsewhere meanwhile can still take this back.
            self._answer(None)
            for fragment, changes in zip(fragments, batch, strict=True):
                self._show(fragment, fragment.committed(changes))
                if changes.due_ms or changes.expires_ms:
                    self._agenda.committed(changes)
            self._after_commit(was_congested)

        self._disk.call(lambda: files.commit(batch), committed)
        return True

    def _after_commit(self, was_congested: bool) -> None:
        self.commits += 1
        self.commit_ms += self._clock.now_ms() - self.committing_since_ms
        if was_congested and not self.congested:
            for fragment in list(self.fragments.values()):
                self._show(fragment, bool(len(fragment.window)))
        if self.commits % TRIM_EVERY_COMMITS == 0:
            self._trim_idle()
        if (self._dirty or self._waiting) and not self._committing and not self._commit_due:
            self._commit_due = True
            self._gate.enter(self._commit)
        self._tidying.later()

    def _show(self, fragment: Fragment, has_more: bool) -> None:
        if self.fragments.get(fragment.key) is not fragment:
            # Its entity was deleted meanwhile.
            return
        if fragment.dirty:
            self.touch(fragment)
        if has_more:
            self._audience.shown(self, fragment)

    def _answer(self, refusal: Refusal | None) -> None:
        waiters, self._in_flight = self._in_flight, []
        failures: list[Exception] = []
        for done in waiters:
            try:
                done(refusal)
            except Exception as error:  # noqa: BLE001 - raised below, when all were answered
                failures.append(error)
        if failures:
            # We are wrong somewhere; that must not cost the others their answers.
            raise failures[0]

    def _fail(self, error: Exception) -> None:
        """The store failed: what is staged did not happen, and memory may be wrong. Start anew."""
        self.failures += 1
        log.error("store failed store=%d error=%s", self.store, error)
        if not isinstance(error, StoreError):
            log.error("unexpected failure of a store", exc_info=error)
        files, self._files = self._files, None
        self._agenda.end()
        self._audience.lost(self)
        self._in_flight += self._waiting
        self._waiting = []
        self.fragments.clear()
        self._by_prefix.clear()
        self._dirty.clear()
        self._loading.clear()
        self._deadlines.clear()
        self._answer(FragmentUnavailable(f"Store {self.store} is unavailable: {error}"))
        waiters, self._load_waiters = self._load_waiters, {}
        for waiting in waiters.values():
            for here in waiting:
                here()
        if files is not None:
            self._disk.call(files.close, lambda _: None)
        self.reopen_later()

    def reopen_later(self) -> None:
        """Try to open the store again, until it succeeds."""
        self._clock.call_at(self._clock.now_ms() + REOPEN_AFTER_MS, self._reopen)

    def _reopen(self) -> None:
        if self._closed:
            return

        def opened(error: Exception | None) -> None:
            if error is None:
                log.warning("store is back store=%d", self.store)
            elif not self._closed:
                self.reopen_later()

        self.open(opened)

    # Reading --------------------------------------------------------------------------------

    def read(
        self, work: Callable[[Store], Any], done: Callable[[Any, Refusal | None], None]
    ) -> None:
        """Ask the store, in order with its commits; done(result, None) or (None, refusal).

        What is read is durable, and may be older than what the fragments have staged.
        """
        files = self._files
        if files is None:
            done(None, self._unavailable())
            return
        self.reading += 1

        def answered(result: Any) -> None:
            self.reading -= 1
            if self._files is files and not self._closed and isinstance(result, Exception):
                self._fail(result)
            if self._files is files and not self._closed:
                done(result, None)
            else:
                done(None, self._unavailable())

        self._disk.call(lambda: work(files), answered)

    def _unavailable(self) -> Refusal:
        return FragmentUnavailable(f"Store {self.store} is unavailable; try again.")

    # The head in memory ---------------------------------------------------------------------

    def load(self, fragment: Fragment, here: Callable[[], None] | None = None) -> None:
        """Read the next part of a fragment's backlog; shown again when it is here."""
        number = fragment.number
        files = self._files
        if here is not None:
            self._load_waiters.setdefault(number, []).append(here)
        if number in self._loading or files is None:
            return
        self._loading.add(number)
        after = fragment.window.gap_from

        def loaded(result: Any) -> None:
            if self._files is not files or self._closed:
                return
            self._loading.discard(number)
            if isinstance(result, Exception):
                self._fail(result)
                return
            size = sum(entry.size for entry in result)
            fragment.loaded(result, len(result) < LOAD_MESSAGES and size < LOAD_BYTES)
            for here in self._load_waiters.pop(number, ()):
                here()
            self._show(fragment, has_more=True)

        self._disk.call(lambda: files.scan(number, after, LOAD_MESSAGES, LOAD_BYTES), loaded)

    def taken(self, fragment: Fragment) -> None:
        """Messages were taken from the fragment: see to the rest."""
        if fragment.dirty:
            # Some were found to have expired.
            self.touch(fragment)
        if fragment.window.wants_more:
            self.load(fragment)

    def loading(self, fragment: Fragment) -> bool:
        """Whether part of the fragment's backlog is being read."""
        return fragment.number in self._loading

    def _trim_idle(self) -> None:
        """Leave heads that nobody asks for to the disk, when they take much memory together."""
        held = sum(fragment.window.bytes for fragment in self.fragments.values())
        if held <= IDLE_WINDOW_BYTES_MAX:
            return
        for fragment in self.fragments.values():
            if fragment.number not in self._loading and not self._audience.wanted(fragment):
                fragment.window.evict()

    # Deadlines ------------------------------------------------------------------------------

    def watch(self, fragment: Fragment) -> None:
        """The fragment has locks that will end: wake it in time."""
        self._deadlines.watch(fragment)

    def _due(self, fragment: Fragment, now_ms: int) -> None:
        if self._by_prefix.get(fragment.token_prefix) is not fragment:
            return
        if fragment.advance(now_ms):
            self.touch(fragment)
            if isinstance(fragment, SessionFragment):
                self._audience.shown(self, fragment)
        self._deadlines.watch(fragment)
