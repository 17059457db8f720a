"""The thread of a store: in order, away from the loop, finished before it stops."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

from partibus.runtime.disk import ThreadDisk


def test_calls_run_in_order_in_a_thread_of_their_own_and_answer_on_the_loop() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        disk = ThreadDisk(loop, "store 0")
        finished = loop.create_future()
        ran: list[tuple[int, str]] = []
        answered: list[tuple[Any, threading.Thread]] = []

        def work(number: int) -> int:
            ran.append((number, threading.current_thread().name))
            return number

        def done(result: Any) -> None:
            answered.append((result, threading.current_thread()))
            if len(answered) == 100:
                finished.set_result(None)

        for number in range(100):
            disk.call(partial(work, number), done)
        await finished
        assert ran == [(number, "store 0") for number in range(100)]
        assert answered == [(number, threading.main_thread()) for number in range(100)]
        disk.close()

    asyncio.run(scenario())


def test_what_the_work_raises_is_the_answer() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        disk = ThreadDisk(loop, "store 0")
        answer = loop.create_future()
        disk.call(lambda: 1 // 0, answer.set_result)
        assert isinstance(await answer, ZeroDivisionError)
        disk.close()

    asyncio.run(scenario())


def test_closing_waits_for_everything_that_was_asked() -> None:
    async def scenario() -> None:
        disk = ThreadDisk(asyncio.get_running_loop(), "store 0")
        gate = threading.Event()
        ran: list[int] = []
        disk.call(gate.wait, lambda _: None)
        for number in range(10):
            disk.call(partial(ran.append, number), lambda _: None)
        gate.set()
        disk.close()
        assert ran == list(range(10))

    asyncio.run(scenario())


def test_a_loop_that_is_gone_does_not_keep_the_work_from_being_done() -> None:
    loop = asyncio.new_event_loop()
    disk = ThreadDisk(loop, "store 0")
    loop.close()
    ran: list[int] = []
    for number in range(3):
        disk.call(partial(ran.append, number), lambda _: None)
    disk.close()
    assert ran == [0, 1, 2]
