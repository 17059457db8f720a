"""Strikes: five for a client that errs, one for each of a crowd that tries keys."""

from __future__ import annotations

from partibus.runtime.wrong_tokens import MANY_PER_S, STRIKES, STRIKES_UNDER_ATTACK, WrongTokens


def test_A4_few_wrong_tokens_leave_five_strikes_to_each_connection() -> None:
    wrong = WrongTokens()
    # As fast as it may be, for a minute.
    assert {wrong.shown(at * 1000 // MANY_PER_S) for at in range(60 * MANY_PER_S)} == {STRIKES}
    assert wrong.total == 60 * MANY_PER_S


def test_A4_many_wrong_tokens_leave_one_and_calm_gives_back_the_others() -> None:
    wrong = WrongTokens()
    allowed = [wrong.shown(10_000 + at) for at in range(1_000)]
    assert allowed[:MANY_PER_S] == [STRIKES] * MANY_PER_S
    assert set(allowed[MANY_PER_S:]) == {STRIKES_UNDER_ATTACK}
    # Still in the next second, from its first one on, and no longer after it.
    assert wrong.shown(11_000) == STRIKES_UNDER_ATTACK
    assert wrong.shown(12_000) == STRIKES
    # After a long silence nothing is remembered.
    for at in range(1_000):
        wrong.shown(20_000 + at)
    assert wrong.shown(30_000) == STRIKES
