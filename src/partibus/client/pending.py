"""Something that was asked for and has no answer yet.

What a future is to asyncio, without a loop: the protocol gives the answer, and whoever waits, in
whatever way, is called once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from partibus.client.errors import MessagingError

T = TypeVar("T")


class Pending(Generic[T]):
    """An answer to come, or the error that came instead. The first one counts."""

    __slots__ = ("_error", "_then", "_value", "is_done", "is_wanted")

    def __init__(self) -> None:
        self.is_done = False
        # Whether somebody still waits: what has not been sent need not be any more.
        self.is_wanted = True
        self._value: T | None = None
        self._error: MessagingError | None = None
        self._then: list[Callable[[], None]] = []

    def resolve(self, value: T) -> None:
        """Give the answer."""
        if not self.is_done:
            self._value = value
            self._finish()

    def fail(self, error: MessagingError) -> None:
        """Say why there is none."""
        if not self.is_done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._then = self._then, []
        for callback in callbacks:
            callback()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when it is done; at once where it is."""
        if self.is_done:
            callback()
        else:
            self._then.append(callback)

    def leave(self, callback: Callable[[], None]) -> None:
        """Do not call back; others that wait still are."""
        self._then = [each for each in self._then if each is not callback]
        if not self._then:
            self.is_wanted = False

    def forget(self) -> None:
        """Nobody waits any more."""
        self._then = []
        self.is_wanted = False

    @property
    def error(self) -> MessagingError | None:
        """What went wrong; None where nothing did, or where it is not done."""
        return self._error

    @property
    def is_good(self) -> bool:
        """Whether there is an answer, and it is no error."""
        return self.is_done and self._error is None

    def result(self) -> T:
        """The answer. Raises the error that came instead."""
        assert self.is_done
        if self._error is not None:
            raise self._error.with_traceback(None)
        return cast(T, self._value)
