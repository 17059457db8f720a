"""Named bulk readers of fragments: where they are is durable before they are told so."""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import QuotaExceeded, Refusal
from partibus.broker.fragment import Fragment
from partibus.runtime.driver import Driver
from partibus.runtime.requests import DONE, MoveCursor, Reply, refused

# What is removed between two commits of a store.
SWEEP_MESSAGES = 1000

Answer = Callable[[Reply], None]


def move_cursor(driver: Driver, fragment: Fragment, request: MoveCursor, answer: Answer) -> None:
    """Note where a reader is, and take back what was kept for it until there."""
    number, reader, position = fragment.number, request.reader, request.position

    def swept(more: bool | None, refusal: Refusal | None) -> None:
        if more and refusal is None:
            driver.read(lambda store: store.sweep(number, SWEEP_MESSAGES), swept)

    def moved(was: bool | None, refusal: Refusal | None) -> None:
        if refusal is None and not was:
            refusal = QuotaExceeded("The fragment has as many named readers as it may have.")
        answer(DONE if refusal is None else refused(refusal))
        swept(True, refusal)

    def move(refusal: Refusal | None) -> None:
        if refusal is not None:
            answer(refused(refusal))
        else:
            driver.read(lambda store: store.move_cursor(number, reader, position), moved)

    fragment.establish()
    if fragment.dirty:
        driver.touch(fragment)
    driver.when_settled(move)
