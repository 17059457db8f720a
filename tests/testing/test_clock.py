"""Time in a test's hand."""

from __future__ import annotations

from partibus.testing.clock import ManualClock


def test_due_callbacks_run_in_order_each_at_its_own_time() -> None:
    clock = ManualClock(1000)
    seen: list[tuple[str, int]] = []
    clock.call_at(1030, lambda: seen.append(("c", clock.now_ms())))
    clock.call_at(1010, lambda: seen.append(("a", clock.now_ms())))
    clock.call_at(1010, lambda: seen.append(("b", clock.now_ms())))
    clock.advance(20)
    assert seen == [("a", 1010), ("b", 1010)]
    assert clock.now_ms() == 1020
    clock.advance_to(1030)
    assert seen[-1] == ("c", 1030)


def test_a_callback_may_ask_for_the_next() -> None:
    clock = ManualClock(0)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(clock.now_ms())
        clock.call_at(clock.now_ms() + 10, tick)

    clock.call_at(10, tick)
    clock.advance(35)
    assert ticks == [10, 20, 30]
    assert clock.next_due_ms() == 40


def test_a_cancelled_callback_does_not_run() -> None:
    clock = ManualClock(0)
    clock.call_at(5, lambda: 1 / 0).cancel()
    assert clock.next_due_ms() is None
    clock.advance(10)


def test_a_callback_for_the_past_runs_at_the_next_move() -> None:
    clock = ManualClock(100)
    seen: list[int] = []
    clock.call_at(50, lambda: seen.append(clock.now_ms()))
    clock.advance(0)
    assert seen == [100]
