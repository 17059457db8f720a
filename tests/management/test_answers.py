"""Answers that come by callbacks, to handlers that wait."""

from __future__ import annotations

import asyncio

import pytest

from partibus.broker.errors import InvalidArgument
from partibus.management.answers import Answer


def test_who_waits_gets_the_value_or_the_refusal() -> None:
    async def run() -> None:
        good: Answer[int] = Answer()
        bad: Answer[int] = Answer()
        good.give(7)
        bad.give(0, InvalidArgument("no"))
        assert await good == 7
        with pytest.raises(InvalidArgument, match="no"):
            await bad

    asyncio.run(run())


def test_what_is_said_to_who_has_left_is_dropped() -> None:
    async def run() -> None:
        answer: Answer[int] = Answer()

        async def handler() -> int:
            return await answer

        waiting = asyncio.create_task(handler())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        answer.give(7)
        answer.give(0, InvalidArgument("too late"))

    asyncio.run(run())
