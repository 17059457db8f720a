from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from partibus.pipeline.ahead import ahead


def numbers(upto: int, log: list[Any], error: Exception | None = None) -> Generator[Any]:
    try:
        for each in range(upto):
            log.append(each)
            yield each
        if error is not None:
            raise error
    finally:
        log.append(threading.current_thread().name)


def test_S1_batches_come_in_order_and_one_is_fetched_ahead() -> None:
    log: list[Any] = []
    found = list(ahead(numbers(5, log)))
    assert found == [0, 1, 2, 3, 4]
    assert log[:5] == found


def test_S1_what_fails_on_the_way_is_told_behind_what_came() -> None:
    came: list[Any] = []
    with pytest.raises(ValueError, match="broken"):
        came.extend(ahead(numbers(3, [], ValueError("broken"))))
    assert came == [0, 1, 2]


def test_S1_who_stops_early_leaves_nothing_open() -> None:
    log: list[Any] = []
    reading = ahead(numbers(100, log))
    assert next(reading) == 0
    reading.close()
    assert log[-1].startswith("ahead")
    assert len(log) <= 3
