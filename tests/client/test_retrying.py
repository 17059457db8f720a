from __future__ import annotations

import pytest

from partibus.client.errors import ConnectionLost, MessageLockLost, ServerBusy
from partibus.client.retrying import RetryPolicy


def test_pauses_double_until_the_attempts_are_used_up() -> None:
    policy = RetryPolicy(attempts=4, delay_s=1)
    lost = ConnectionLost("lost")
    assert [policy.pause_s(lost, attempt) for attempt in range(4)] == [1, 2, 4, None]


def test_no_pause_is_longer_than_its_limit() -> None:
    policy = RetryPolicy(attempts=100, delay_s=1, delay_s_max=5)
    assert policy.pause_s(ConnectionLost("lost"), 50) == 5


def test_a_busy_service_is_left_alone_for_longer() -> None:
    assert RetryPolicy().pause_s(ServerBusy("busy"), 0) == 4


def test_what_cannot_be_helped_is_not_tried_again() -> None:
    assert RetryPolicy().pause_s(MessageLockLost("lost"), 0) is None


def test_a_policy_makes_sense() -> None:
    with pytest.raises(ValueError, match="attempt"):
        RetryPolicy(attempts=0)
