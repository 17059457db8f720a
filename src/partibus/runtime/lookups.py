"""Requests that name messages by sequence number or age, carried out on one fragment.

The messages are read from disk, where deferred and scheduled ones live; the fragment decides
whether they may be had. Everything is answered when it is durable. Which fragment is asked was
decided by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from partibus.broker.errors import FragmentUnavailable, MessageNotFound, Refusal
from partibus.broker.fragment import COUNTER_MASK, Fragment
from partibus.broker.records import Entry
from partibus.broker.session_fragment import SessionFragment
from partibus.runtime.clock import Clock
from partibus.runtime.driver import Driver
from partibus.runtime.rendering import browsed, received
from partibus.runtime.requests import (
    DONE,
    CancelScheduled,
    DeleteReady,
    Delivered,
    Lookup,
    Peek,
    Purge,
    ReceiveDeferred,
    Reply,
    refused,
)
from partibus.store import Store

# Contents of all messages that one peek shows.
PEEK_BYTES_MAX = 256 * 1024
# Contents of all messages that one step of a purge reads.
PURGE_BYTES_MAX = 4 * 1024 * 1024
# With more reads than this waiting for a disk, the next is refused.
READS_WAITING_MAX = 1024
# How often the backlog is read for one request to delete messages.
LOADS_MAX = 4

Answer = Callable[[Reply], None]


@dataclass(frozen=True, slots=True)
class Errand:
    """Where a request is carried out: a fragment, its driver, and what all of them need."""

    driver: Driver
    fragment: Fragment
    clock: Clock
    entropy: Callable[[int], bytes]
    # Refuses who does not hold the session of what was found.
    check: Callable[[ReceiveDeferred], None]

    def find(self, work: Callable[[Store], list[Entry]], answer: Answer, then: Found) -> None:
        """Read, then carry on with what was found; refusals on the way are answered."""
        driver, fragment = self.driver, self.fragment

        def found(entries: list[Entry], refusal: Refusal | None) -> None:
            try:
                if refusal is not None:
                    raise refusal
                if driver.numbered(fragment.number) is not fragment:
                    raise FragmentUnavailable("The fragment went away; try again.")
                then(entries)
            except Refusal as error:
                answer(refused(error))
            if fragment.dirty:
                driver.touch(fragment)

        driver.read(work, found)

    def answer_durable(self, answer: Answer, reply: Reply) -> None:
        """Answer once what was staged just now is on disk."""
        self.driver.touch(self.fragment)
        self.driver.when_durable(
            lambda refusal: answer(reply if refusal is None else refused(refusal))
        )


Found = Callable[[list[Entry]], None]


def look_up(errand: Errand, request: Lookup, answer: Answer) -> None:
    """Carry out a request on the fragment it names, and answer it."""
    if errand.driver.reading >= READS_WAITING_MAX:
        raise FragmentUnavailable(f"Store {errand.driver.store} is busy; try again.")
    number = errand.fragment.number
    if isinstance(request, DeleteReady):
        _delete(errand, request, answer, LOADS_MAX)
    elif isinstance(request, Peek):
        span = request.sequence, request.count, PEEK_BYTES_MAX, request.session
        errand.find(
            lambda files: files.browse(number, *span),
            answer,
            lambda entries: answer(Reply(messages=_peeked(errand.fragment, entries, request))),
        )
    elif isinstance(request, Purge):
        part = request.sequence, request.count, PURGE_BYTES_MAX
        errand.find(
            lambda files: files.browse(number, *part),
            answer,
            lambda entries: _purge(errand, request, entries, answer),
        )
    else:
        sequences = request.sequences

        def act(entries: list[Entry]) -> None:
            if isinstance(request, ReceiveDeferred):
                _receive(errand, request, entries, answer)
            else:
                _cancel(errand, request, entries, answer)

        errand.find(
            lambda files: files.find_sequences(number, sequences),
            answer,
            act,
        )


def nothing_found(request: Lookup) -> Reply:
    """The reply where there is no such fragment."""
    if isinstance(request, ReceiveDeferred | CancelScheduled):
        counter = request.sequences[0] & COUNTER_MASK
        return refused(MessageNotFound(f"There is no message with the number {counter} here."))
    return DONE


def _peeked(fragment: Fragment, entries: list[Entry], request: Peek) -> list[Delivered]:
    partition = fragment.key.partition
    shown: list[Delivered] = []
    size = 0
    for entry in entries:
        size += entry.size
        if shown and size > PEEK_BYTES_MAX:
            break
        if fragment.shows(entry):
            payload = browsed(entry, partition, omit_body=request.omit_body)
            shown.append(Delivered(b"", payload))
    return shown


def _receive(errand: Errand, request: ReceiveDeferred, stored: list[Entry], answer: Answer) -> None:
    fragment = errand.fragment
    if isinstance(fragment, SessionFragment):
        # Now that it has been read: the session may have been lost meanwhile.
        errand.check(request)
    if request.session is not None and any(each.session != request.session for each in stored):
        raise MessageNotFound(f"The session '{request.session}' has no such message.")
    entries = fragment.receive_deferred(
        request.sequences, stored, errand.clock.now_ms(), errand.entropy, delete=request.delete
    )
    partition = fragment.key.partition
    reply = Reply(messages=[Delivered(each.token, received(each, partition)) for each in entries])
    if request.delete:
        errand.answer_durable(answer, reply)
    else:
        errand.driver.watch(fragment)
        answer(reply)


def _cancel(errand: Errand, request: CancelScheduled, stored: list[Entry], answer: Answer) -> None:
    errand.fragment.cancel_scheduled(request.sequences, stored)
    errand.answer_durable(answer, DONE)


def _purge(errand: Errand, request: Purge, stored: list[Entry], answer: Answer) -> None:
    fragment = errand.fragment
    deleted = fragment.delete_ready(request.count, request.until_ms)
    old = [each for each in stored if each.enqueued_ms <= request.until_ms]
    deleted += fragment.discard_stored(old)
    reply = Reply(number=deleted, positions=[stored[-1].sequence + 1 if stored else 0])
    if deleted:
        errand.answer_durable(answer, reply)
    else:
        answer(reply)


def _delete(
    errand: Errand, request: DeleteReady, answer: Answer, loads: int, deleted: int = 0
) -> None:
    driver, window = errand.driver, errand.fragment.window
    if driver.numbered(errand.fragment.number) is not errand.fragment:
        # The store failed while the backlog was read: nothing of its former life is of use.
        answer(refused(FragmentUnavailable("The fragment went away; try again.")))
        return
    deleted += errand.fragment.delete_ready(request.count - deleted, request.until_ms)
    if errand.fragment.dirty:
        driver.touch(errand.fragment)
    if deleted < request.count and loads and window.has_gap and not len(window):
        driver.load(errand.fragment, lambda: _delete(errand, request, answer, loads - 1, deleted))
    elif deleted:
        errand.answer_durable(answer, Reply(number=deleted))
    else:
        answer(Reply())
