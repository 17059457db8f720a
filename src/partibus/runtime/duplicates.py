"""Duplicate detection: who was here before, asked of the store before anything is staged.

Sends to an entity that detects duplicates wait here for one look into the store's history, many
at a time; those that gather meanwhile are the next look's. What is staged and not durable yet is
remembered in memory, everything else on disk only, so however much a window holds, memory holds
what is under way. A duplicate is answered like the message itself, but not before the message it
repeats is durable. Entities without duplicate detection never come here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from partibus.broker.duplicates import bucket_of, digest_of
from partibus.broker.errors import EntityNotFound, Refusal
from partibus.broker.fragment import Fragment
from partibus.broker.message import Incoming
from partibus.broker.records import Bucket, Digest
from partibus.runtime.clock import Clock
from partibus.store import Store

# Digests that one look asks for; what is more waits for the next.
LOOK_DIGESTS_MAX = 4096

Stage = Callable[[list[Incoming]], None]
Answer = Callable[[Refusal | None], None]


class Committer(Protocol):
    """What is asked of the store's driver."""

    def read(
        self, work: Callable[[Store], Any], done: Callable[[Any, Refusal | None], None]
    ) -> None:
        """Read from the disk, in order with commits; done(result, None) or (None, refusal)."""

    def has(self, fragment: Fragment) -> bool:
        """Whether the fragment is still there."""

    def when_settled(self, done: Answer) -> None:
        """Call done once everything staged so far is on disk, or failed."""


class Question:
    """Messages that wait to be told from those that were here before."""

    __slots__ = ("answer", "digests", "fragment", "messages", "stage")

    def __init__(
        self, fragment: Fragment, messages: list[Incoming], stage: Stage, answer: Answer
    ) -> None:
        self.fragment = fragment
        self.messages = messages
        self.stage = stage
        self.answer = answer
        self.digests = [digest_of(fragment.key, message) for message in messages]


class DuplicateHistory:
    """The history of one store, as its fragments ask for it."""

    def __init__(self, committer: Committer, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock
        self._waiting: list[Question] = []
        self._is_looking = False
        # When what is not durable yet was sighted.
        self._staged: dict[Digest, int] = {}
        # The newest bucket of each length: when the next begins, old ones can go.
        self._newest: dict[int, Bucket] = {}

    def admit(
        self, fragment: Fragment, messages: list[Incoming], stage: Stage, answer: Answer
    ) -> None:
        """Have `stage` take in the messages that are new; answer when all of them are durable.

        `stage` touches the fragment, and may refuse everything by raising a Refusal.
        """
        self._waiting.append(Question(fragment, messages, stage, answer))
        if not self._is_looking:
            self._look()

    def _look(self) -> None:
        questions: list[Question] = []
        digests: list[Digest] = []
        window_ms = 0
        for question in self._waiting:
            if questions and len(digests) + len(question.digests) > LOOK_DIGESTS_MAX:
                break
            questions.append(question)
            digests += question.digests
            window_ms = max(window_ms, question.fragment.settings.duplicate_window_ms)
        del self._waiting[: len(questions)]
        self._is_looking = True
        since_ms = self._clock.now_ms() - window_ms

        def looked(found: dict[Digest, int], refusal: Refusal | None) -> None:
            self._is_looking = False
            for question in questions:
                if refusal is not None:
                    question.answer(refusal)
                else:
                    self._decide(question, found)
            if self._waiting and not self._is_looking:
                self._look()

        self._committer.read(lambda store: store.sighted(digests, since_ms), looked)

    def _decide(self, question: Question, found: dict[Digest, int]) -> None:
        fragment = question.fragment
        if not self._committer.has(fragment):
            question.answer(EntityNotFound("The messaging entity has been deleted."))
            return
        now_ms = self._clock.now_ms()
        since_ms = now_ms - fragment.settings.duplicate_window_ms
        fresh: dict[Digest, Incoming] = {}
        for digest, message in zip(question.digests, question.messages, strict=True):
            seen_ms = max(found.get(digest, since_ms), self._staged.get(digest, since_ms))
            if seen_ms <= since_ms and digest not in fresh:
                fresh[digest] = message
        try:
            question.stage(list(fresh.values()))
        except Refusal as refusal:
            question.answer(refusal)
            return
        if fresh:
            fragment.sight(list(fresh), now_ms)
            self._staged.update(dict.fromkeys(fresh, now_ms))
            self._forget_old(bucket_of(now_ms, fragment.settings.duplicate_window_ms), now_ms)

        def settled(refusal: Refusal | None) -> None:
            for digest in fresh:
                # The same id may have been let in again, after its window and before the disk.
                if self._staged.get(digest) == now_ms:
                    del self._staged[digest]
            question.answer(refusal)

        self._committer.when_settled(settled)

    def _forget_old(self, bucket: Bucket, now_ms: int) -> None:
        if self._newest.get(bucket.exponent) == bucket:
            return
        self._newest[bucket.exponent] = bucket

        def again(more: bool | None, _: Refusal | None) -> None:
            if more:
                self._committer.read(lambda store: store.forget(now_ms), again)

        again(True, None)
