"""Forwarding at its destination: messages from other entities' transfer queues, each taken once.

A fragment remembers, for each transfer queue that sends to it, the highest position it has taken;
that mark is written in the same commit as the messages. What comes again is answered like the
first time and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from partibus.broker.descriptions import Description
from partibus.broker.errors import EntityDisabled, FragmentUnavailable, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming
from partibus.runtime.clock import Clock
from partibus.runtime.driver import Driver
from partibus.runtime.requests import Forward, Reply, refused

Answer = Callable[[Reply], None]
Done = Callable[[Refusal | None], None]


class Destinations(Protocol):
    """What must be known of the host: its fragments, and how they take messages in."""

    def target(self, request: Forward, partition: int) -> tuple[Driver, Fragment]:
        """The fragment that a request names; refused where it is not to be had."""

    def settings(self, entity_id: int) -> Description | None:
        """The settings of an entity; None where it does not exist any more."""

    def used(self, entity: int) -> None:
        """Something was sent to an entity."""


class Arrivals:
    """The host's hand for what is forwarded to its fragments."""

    def __init__(self, host: Destinations, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def handle(self, request: Forward, answer: Answer) -> None:
        """Take in what is new; the answer's number is the position up to which all is here."""
        driver, fragment = self._host.target(request, request.partition)
        if fragment.marks is not None:
            self._arrive(driver, fragment, request, answer)
            return
        number = fragment.number

        def read(found: Any, refusal: Refusal | None) -> None:
            if refusal is not None or not driver.has(fragment):
                answer(
                    refused(refusal or FragmentUnavailable("The fragment went away; try again."))
                )
                return
            if fragment.marks is None:
                fragment.marks = found
            self._arrive(driver, fragment, request, answer)

        driver.read(lambda files: files.marks(number), read)

    def _arrive(self, driver: Driver, fragment: Fragment, request: Forward, answer: Answer) -> None:
        marks, source = fragment.marks, request.source
        assert marks is not None
        high, last = marks.get(source, 0), request.positions[-1]
        pairs = zip(request.positions, request.messages, strict=True)
        fresh = [message for position, message in pairs if position > high]

        def staged() -> None:
            fragment.mark(source, max(marks.get(source, 0), last))

        def done(refusal: Refusal | None) -> None:
            if refusal is None:
                answer(Reply(number=last))
            elif isinstance(refusal, FragmentUnavailable):
                answer(refused(refusal))
            else:
                _when_settled(driver, answer, Reply(refusal.condition, str(refusal), high))

        if not fresh:
            _when_settled(driver, answer, Reply(number=high))
        else:
            try:
                self._check(request.entity)
                self._take_in(driver, fragment, fresh, staged, done)
            except Refusal as refusal:
                done(refusal)

    def _check(self, entity: int) -> None:
        settings = self._host.settings(entity)
        if settings is None or not settings.allows_send:
            raise EntityDisabled("The messaging entity is disabled for sending.")
        self._host.used(entity)

    def _take_in(
        self,
        driver: Driver,
        fragment: Fragment,
        messages: list[Incoming],
        staged: Callable[[], None],
        done: Done,
    ) -> None:
        """Send to the fragment, as a client would; `staged` adds to the same commit."""

        def stage(fresh: list[Incoming]) -> None:
            fragment.send(fresh, self._clock.now_ms())
            staged()
            driver.touch(fragment)

        if fragment.settings.requires_duplicate_detection:
            driver.duplicates.admit(fragment, messages, stage, done)
        else:
            stage(messages)
            driver.when_durable(done)


def _when_settled(driver: Driver, answer: Answer, reply: Reply) -> None:
    """What came earlier may still be on its way to the disk."""
    driver.when_settled(lambda failed: answer(refused(failed) if failed else reply))
