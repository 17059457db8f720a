from __future__ import annotations

import pytest

from partibus.client.errors import ServerBusy
from partibus.client.pending import Pending


def test_the_first_answer_counts() -> None:
    pending: Pending[int] = Pending()
    pending.resolve(1)
    pending.fail(ServerBusy("late"))
    assert pending.is_good
    assert pending.result() == 1


def test_an_error_is_raised_for_everybody_who_asks() -> None:
    pending: Pending[int] = Pending()
    pending.fail(ServerBusy("busy"))
    for _ in range(2):
        with pytest.raises(ServerBusy):
            pending.result()


def test_who_waits_is_called_once_also_when_it_is_done_already() -> None:
    pending: Pending[int] = Pending()
    called: list[str] = []
    pending.then(lambda: called.append("before"))
    pending.resolve(1)
    pending.resolve(2)
    pending.then(lambda: called.append("after"))
    assert called == ["before", "after"]


def test_one_who_leaves_does_not_take_the_others_with_it() -> None:
    pending: Pending[int] = Pending()
    called: list[str] = []

    def impatient() -> None:
        called.append("impatient")

    def patient() -> None:
        called.append("patient")

    pending.then(impatient)
    pending.then(patient)
    pending.leave(impatient)
    assert pending.is_wanted
    pending.resolve(1)
    assert called == ["patient"]


def test_when_the_last_has_left_it_is_not_wanted() -> None:
    pending: Pending[int] = Pending()

    def waiter() -> None:
        raise AssertionError

    pending.then(waiter)
    pending.leave(waiter)
    assert not pending.is_wanted
    pending.resolve(1)
