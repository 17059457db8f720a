"""Messages are reserved for a bulk reader, completed when it is done, or given back.

What is reserved, for whom, and what is completed is in the same commit as the messages' states, so
whatever ends in the middle leaves a whole reservation behind. The messages stay where they stand;
nobody else is given them or shown them. What the record of it says is in broker.consuming.

A reader that is started anew and has not done what it was given before has been given that in vain,
which counts as a delivery. What was delivered too often is set aside as for any receiver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from partibus.broker.consuming import BEGIN, NOTE, Batch, Consumer, read_consumer, write_consumer
from partibus.broker.errors import FragmentUnavailable, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.records import Entry, State, SubQueue
from partibus.runtime.bulk_requests import Consume, GiveBack
from partibus.runtime.clock import Clock
from partibus.runtime.driver import Driver
from partibus.runtime.requests import DONE, Reply, refused

# What one reservation of a fragment may hold.
BATCH_MESSAGES_MAX = 16_384
BATCH_BYTES_MAX = 64 * 1024 * 1024
# Messages that are reserved, or given back, in one commit.
PART_MESSAGES = 1024
# How often the backlog is read for one reservation.
LOADS_MAX = 64

Answer = Callable[[Reply], None]


class Consumption:
    """What bulk readers ask of this node's fragments: of each, one thing after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: set[tuple[int, int]] = set()

    def begin(
        self, driver: Driver, fragment: Fragment, request: Consume | GiveBack, answer: Answer
    ) -> None:
        """Carry a request out; answered when it is durable."""
        desk = driver.store, fragment.number
        if desk in self._under_way:
            raise FragmentUnavailable("The fragment is being consumed from just now; try again.")
        self._under_way.add(desk)

        def done(reply: Reply) -> None:
            self._under_way.discard(desk)
            answer(reply)

        errand = _Giving if isinstance(request, Consume) else _Returning
        errand(driver, fragment, request, self._clock, done).start()


class _Errand(ABC):
    """One request for one fragment."""

    def __init__(
        self,
        driver: Driver,
        fragment: Fragment,
        request: Consume | GiveBack,
        clock: Clock,
        answer: Answer,
    ) -> None:
        self._driver = driver
        self._fragment = fragment
        self._clock = clock
        self._answer = answer
        self._reader = request.reader
        self._consumer = Consumer(request.reader, 0)

    def start(self) -> None:
        """Read what is reserved."""
        number = self._fragment.number
        self._driver.read(lambda store: store.session_state(number, NOTE), self._known)

    def _known(self, content: bytes | None, refusal: Refusal | None) -> None:
        if content is not None:
            self._consumer = read_consumer(content)
        self._go_on(refusal, lambda: self._act(content is not None))

    @abstractmethod
    def _act(self, is_known: bool) -> None:
        """Do what was asked, now that it is known what is reserved."""

    def _go_on(self, refusal: Refusal | None, act: Callable[[], None]) -> None:
        """Do the next step, unless the last one failed; a refusal is the answer."""
        try:
            if refusal is not None:
                raise refusal
            if not self._driver.has(self._fragment):
                raise FragmentUnavailable("The fragment went away; try again.")
            act()
        except Refusal as error:
            self._answer(refused(error))

    def _fail(self, entries: list[Entry], tries: int) -> None:
        """They were delivered so often in vain: they come back, or are set aside."""
        for entry in entries:
            entry.state = State.ACTIVE
            entry.deliveries += tries - 1
        self._fragment.count_failure(entries, rewritten=False, now_ms=self._clock.now_ms())

    def _commit(self, content: bytes | None, then: Callable[[], None]) -> None:
        """Make what is staged durable together with the record, then go on."""
        self._fragment.note(NOTE, content, self._clock.now_ms())
        self._driver.touch(self._fragment)
        self._driver.when_durable(lambda refusal: self._go_on(refusal, then))


class _Giving(_Errand):
    """Complete what the reader is done with, and give it more."""

    def __init__(
        self,
        driver: Driver,
        fragment: Fragment,
        request: Consume | GiveBack,
        clock: Clock,
        answer: Answer,
    ) -> None:
        super().__init__(driver, fragment, request, clock, answer)
        assert isinstance(request, Consume)
        self._request = request
        self._batch = Batch(0, 0, [])
        self._loads = 0

    def _act(self, is_known: bool) -> None:
        consumer, request = self._consumer, self._request
        if not request.epoch:
            consumer.check_reader(self._reader)
            self._tell()
            return
        is_new = not is_known or request.epoch > consumer.epoch
        consumer.check(self._reader, request.epoch, request.done)
        finished = consumer.finish(request.done)
        for batch in finished:
            self._fragment.complete_reserved(batch.positions(), batch.size)
        # It begins without saying what it is done with, so nothing can be counted yet.
        is_counted = request.done != BEGIN and consumer.count_try()
        then = self._set_aside if request.done != BEGIN else self._give
        if finished or is_new or is_counted:
            self._commit(write_consumer(consumer), then)
        else:
            then()

    # What was given in vain too often -----------------------------------------------------------

    def _set_aside(self) -> None:
        fragment = self._fragment
        most = fragment.settings.max_delivery_count
        is_main = fragment.key.subqueue == SubQueue.ACTIVE
        batch = self._consumer.spent(most) if is_main else None
        if batch is None:
            self._give()
        else:
            self._sift(batch, batch.positions(), 0)

    def _sift(self, batch: Batch, positions: list[int], kept: int) -> None:
        """Look at its messages part by part; `kept` is how often those that stay were delivered."""
        if not positions:
            batch.deliveries = kept
            self._commit(write_consumer(self._consumer), self._set_aside)
            return
        number, part = self._fragment.number, positions[:PART_MESSAGES]

        def found(entries: list[Entry], refusal: Refusal | None) -> None:
            self._go_on(refusal, lambda: sift(entries))

        def sift(entries: list[Entry]) -> None:
            most = self._fragment.settings.max_delivery_count
            spent = [each for each in entries if each.deliveries + batch.tries >= most]
            rest = [each.deliveries for each in entries if each.deliveries + batch.tries < most]
            then = partial(self._sift, batch, positions[PART_MESSAGES:], max([kept, *rest]))
            if not spent:
                then()
                return
            batch.take_out([each.position for each in spent], sum(each.size for each in spent))
            self._fail(spent, batch.tries)
            self._commit(write_consumer(self._consumer), then)

        self._driver.read(lambda store: store.find(number, part), found)

    # More -----------------------------------------------------------------------------------------

    def _give(self) -> None:
        # A reader that asks again is given the same again, and not more.
        if self._request.most and not self._consumer.batches:
            self._take()
        else:
            self._tell()

    def _take(self) -> None:
        fragment, batch = self._fragment, self._batch
        room = min(self._request.most, BATCH_MESSAGES_MAX) - batch.count
        taken: list[Entry] = []
        if room > 0 and batch.size < BATCH_BYTES_MAX:
            taken = fragment.withdraw(min(room, PART_MESSAGES), self._clock.now_ms())
        if taken:
            fragment.reserve(taken)
            if not batch.count:
                self._consumer.batches = [batch]
            batch.add(
                [each.position for each in taken],
                sum(each.size for each in taken),
                max(each.deliveries for each in taken),
            )
            self._commit(write_consumer(self._consumer), self._take)
            self._driver.taken(fragment)
            return
        self._driver.taken(fragment)
        is_full = room <= 0 or batch.size >= BATCH_BYTES_MAX
        if not is_full and fragment.window.has_gap and self._loads < LOADS_MAX:
            self._loads += 1
            self._driver.load(fragment, lambda: self._go_on(None, self._take))
            return
        self._tell()

    def _tell(self) -> None:
        consumer, fragment = self._consumer, self._fragment
        # What is locked counts as well: it may come back.
        free = fragment.counters.active - consumer.reserved
        self._answer(Reply(number=consumer.last, positions=[consumer.done, free, consumer.epoch]))


class _Returning(_Errand):
    """Give back what is reserved for a reader that is no more, part by part.

    It was given that in vain, once more than was counted when it was started anew.
    """

    def _act(self, is_known: bool) -> None:
        self._consumer.check_reader(self._reader)
        if is_known:
            self._next()
        else:
            self._answer(DONE)

    def _next(self) -> None:
        """The last part first: what is left of the record is right after each commit."""
        batches = self._consumer.batches
        if not batches:
            self._commit(None, lambda: self._answer(DONE))
            return
        number, positions = self._fragment.number, batches[-1].positions()[-PART_MESSAGES:]
        self._driver.read(
            lambda store: store.find(number, positions),
            lambda entries, refusal: self._go_on(refusal, lambda: self._give_back(entries)),
        )

    def _give_back(self, entries: list[Entry]) -> None:
        batches = self._consumer.batches
        batch = batches.pop()
        left = batch.positions()[:-PART_MESSAGES]
        if left:
            size = batch.size - sum(each.size for each in entries)
            batches.append(Batch(0, 0, [], batch.tries))
            batches[-1].add(left, size, batch.deliveries)
        self._fail(entries, batch.tries + 1)
        self._commit(write_consumer(self._consumer), self._next)
