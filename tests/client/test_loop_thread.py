from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import pytest

from partibus.client.loop_thread import LoopThread

NAME: ContextVar[str] = ContextVar("name", default="nobody")


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


def test_work_runs_elsewhere_in_the_caller_s_context(thread: LoopThread) -> None:
    async def who() -> tuple[str, int]:
        return NAME.get(), threading.get_ident()

    token = NAME.set("caller")
    name, ident = thread.wait(who())
    NAME.reset(token)
    assert name == "caller"
    assert ident != threading.get_ident()


def test_an_error_comes_back_to_who_waits(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        thread.wait(fail())


def test_iteration_steps_only_when_it_is_asked(thread: LoopThread) -> None:
    steps: list[int] = []

    async def count() -> AsyncIterator[int]:
        for number in range(3):
            steps.append(number)
            yield number

    items = thread.iterate(count())
    assert next(items) == 0
    assert steps == [0]
    assert list(items) == [1, 2]


def test_after_the_end_nothing_runs(thread: LoopThread) -> None:
    thread.stop()
    thread.stop()
    with pytest.raises(ValueError, match="closed"):
        thread.wait(asyncio.sleep(0))
