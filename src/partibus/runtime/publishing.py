"""Messages that were staged in bulk are published into their fragment, each exactly once.

The messages go in chunk by chunk, and each commit says besides how far the writer's batch has come;
so whatever ends in the middle, the next publication of the same batch goes on from there, and one
that is over does nothing. What is published is in the file that the request names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from partibus.broker.blocks import Block
from partibus.broker.errors import FragmentUnavailable, InvalidOperation, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming
from partibus.runtime.clock import Clock
from partibus.runtime.driver import Driver
from partibus.runtime.requests import Publish, Reply, refused
from partibus.store import Store, StoreError
from partibus.store.staging import Staged, StagedReader

# Publications that a node carries out at a time.
PUBLICATIONS_MAX = 64
# Blocks are left to the disk; what is small goes where receivers find it without a look there.
BLOCK_MIN = 256

Answer = Callable[[Reply], None]
# A writer's batches go into a fragment one after the other.
Desk = tuple[int, int, str]


class Publications:
    """The publications under way on this node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: set[Desk] = set()

    def begin(self, driver: Driver, fragment: Fragment, request: Publish, answer: Answer) -> None:
        """Publish what a request names; answered when all of it is durable."""
        desk = (driver.store, fragment.number, request.writer)
        if desk in self._under_way or len(self._under_way) >= PUBLICATIONS_MAX:
            raise FragmentUnavailable("The fragment is being published to; try again.")
        self._under_way.add(desk)

        def done(reply: Reply) -> None:
            self._under_way.discard(desk)
            answer(reply)

        _Publication(driver, fragment, request, self._clock, done).start()


class _Publication:
    """One batch on its way into one fragment."""

    def __init__(
        self, driver: Driver, fragment: Fragment, request: Publish, clock: Clock, answer: Answer
    ) -> None:
        self._driver = driver
        self._fragment = fragment
        self._request = request
        self._clock = clock
        self._answer = answer
        self._published = 0
        self._files: list[StagedReader] = []

    def start(self) -> None:
        """Ask how far the batch has come before."""
        number, writer = self._fragment.number, self._request.writer
        self._driver.read(lambda store: store.produced(number, writer), self._resume)

    def _resume(self, found: tuple[int, int] | None, refusal: Refusal | None) -> None:
        request = self._request
        total = sum(count for _, count in request.files)
        if refusal is not None:
            self._answer(refused(refusal))
            return
        batch, published = found or (-1, 0)
        if batch > request.batch or (batch == request.batch and published >= total):
            self._answer(Reply(number=0))
            return
        self._published = published if batch == request.batch else 0
        skip = self._published
        for path, count in request.files:
            self._files.append(StagedReader(Path(path), request.partition, min(skip, count)))
            skip -= min(skip, count)
        self._next()

    def _next(self) -> None:
        def work(_: Store) -> Staged | str:
            try:
                while self._files:
                    messages = self._files[0].next()
                    if messages:
                        return messages
                    self._files.pop(0)
            except StoreError as error:
                # The staged file is at fault, not the store: it is no failure of the disk's work.
                return f"A staged file cannot be read: {error}"
            return []

        self._driver.read(work, self._stage)

    def _stage(self, found: Staged | str, refusal: Refusal | None) -> None:
        if isinstance(found, str):
            refusal = FragmentUnavailable(found)
        elif refusal is None and not self._driver.has(self._fragment):
            refusal = FragmentUnavailable("The fragment went away; try again.")
        if refusal is not None:
            self._answer(refused(refusal))
            return
        assert not isinstance(found, str)
        if not found:
            self._answer(Reply(number=self._published))
            return
        try:
            self._take_in(found)
        except Refusal as error:
            self._answer(refused(error))

    def _take_in(self, found: Staged) -> None:
        driver, fragment, request = self._driver, self._fragment, self._request
        progress = self._published + len(found)

        def stage(fresh: list[Incoming]) -> None:
            if fresh:
                fragment.send(fresh, self._clock.now_ms())
            fragment.produce(request.writer, request.batch, progress)
            driver.touch(fragment)

        def durable(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._answer(refused(refusal))
                return
            self._published = progress
            self._next()

        if isinstance(found, Block):
            if type(fragment) is not Fragment or fragment.settings.requires_duplicate_detection:
                raise InvalidOperation("Only a plain queue takes messages that nobody looks at.")
            if len(found) < BLOCK_MIN:
                found = found.messages()
        if isinstance(found, Block):
            fragment.append(found, self._clock.now_ms())
            stage([])
            driver.when_durable(durable)
        elif fragment.settings.requires_duplicate_detection:
            driver.duplicates.admit(fragment, found, stage, durable)
        else:
            stage(found)
            driver.when_durable(durable)
