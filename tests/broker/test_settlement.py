"""Settlements travel between nodes as they are."""

from __future__ import annotations

import msgspec
import pytest

from partibus.broker.settlement import Outcome, Settlement


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_settlement_is_the_same_at_the_other_node(outcome: Outcome) -> None:
    settlement = Settlement(outcome, "reason", "description", b"\xc1\x01\x00")
    sent = msgspec.msgpack.encode(settlement)
    assert msgspec.msgpack.decode(sent, type=Settlement) == settlement
