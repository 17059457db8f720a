"""The clock that all nodes share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from partibus.runtime.clock import SystemClock, clock_base_ms

LOOPS = [asyncio.new_event_loop]
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS.append(uvloop.new_event_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_callback_comes_once_and_never_early(new_loop: object) -> None:
    loop = new_loop()  # type: ignore[operator]
    clock = SystemClock(loop, clock_base_ms())
    seen: list[int] = []
    wanted = [clock.now_ms() + delay for delay in (0, 1, 5, 20)]

    async def wait() -> None:
        done = loop.create_future()
        for when_ms in wanted[:-1]:
            clock.call_at(when_ms, lambda: seen.append(clock.now_ms()))
        cancelled = clock.call_at(wanted[-1] - 5, lambda: seen.append(0))
        clock.call_at(wanted[-1], lambda: (seen.append(clock.now_ms()), done.set_result(None)))
        cancelled.cancel()
        await done

    loop.run_until_complete(wait())
    loop.close()
    assert len(seen) == len(wanted)
    assert all(at >= when for at, when in zip(seen, wanted, strict=True))


def test_a_deadline_centuries_away_can_be_asked_for() -> None:
    loop = asyncio.new_event_loop()
    clock = SystemClock(loop, clock_base_ms())
    clock.call_at(clock.now_ms() + 922_337_203_685_477, lambda: None).cancel()
    loop.close()


def test_the_clock_starts_at_the_wall_clock() -> None:
    loop = asyncio.new_event_loop()
    assert abs(SystemClock(loop, clock_base_ms()).now_ms() - time.time() * 1000) < 1000
    loop.close()


def test_two_processes_with_the_same_base_have_the_same_time() -> None:
    base_ms = clock_base_ms()
    loop = asyncio.new_event_loop()
    clock = SystemClock(loop, base_ms)
    code = (
        "import asyncio; from partibus.runtime.clock import SystemClock;"
        f"print(SystemClock(asyncio.new_event_loop(), {base_ms}).now_ms())"
    )
    before = clock.now_ms()
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=True, text=True
    )
    loop.close()
    assert before <= int(answer.stdout) <= clock.now_ms()
