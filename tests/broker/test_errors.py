"""Refusals: the client learns the condition, another node the same refusal."""

from __future__ import annotations

import inspect

import pytest

from partibus.broker import errors
from partibus.broker.errors import FragmentUnavailable, MessageLockLost, Refusal, refusal

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Refusal) and kind is not Refusal
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_refusal_arrives_at_another_node_as_what_it_was(kind: type[Refusal]) -> None:
    again = refusal(kind.condition, "why")
    assert type(again) is kind
    assert str(again) == "why"


def test_a_condition_nobody_knows_is_still_a_refusal() -> None:
    assert type(refusal("x:unheard-of", "why")) is Refusal


def test_conditions_are_distinct_so_that_clients_can_tell_refusals_apart() -> None:
    assert len({kind.condition for kind in KINDS}) == len(KINDS)


def test_K4_an_unavailable_fragment_is_an_error_that_clients_retry() -> None:
    assert FragmentUnavailable.condition == "com.microsoft:server-busy"
    assert FragmentUnavailable.status == 503


def test_a_lost_lock_is_told_as_such() -> None:
    assert MessageLockLost.condition == "com.microsoft:message-lock-lost"
    assert MessageLockLost.status == 410
