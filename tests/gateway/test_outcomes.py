"""Delivery states read as settlements."""

from __future__ import annotations

import pytest

from partibus.broker.settlement import COMPLETE, RELEASE, Outcome, Settlement
from partibus.gateway.outcomes import read_outcome
from partibus.wire.codec import encode
from partibus.wire.performatives import (
    Accepted,
    Error,
    Modified,
    Rejected,
    Released,
)
from partibus.wire.values import Symbol

DEAD_LETTER = "com.microsoft:dead-letter"


@pytest.mark.parametrize(
    ("state", "settlement"),
    [
        (Accepted(), COMPLETE),
        (Released(), RELEASE),
        (None, RELEASE),
        (Modified(), Settlement(Outcome.ABANDON)),
        (Modified(delivery_failed=False), Settlement(Outcome.ABANDON)),
        (Modified(undeliverable_here=True), Settlement(Outcome.DEFER)),
        (
            Modified(message_annotations={Symbol("a"): 1}),
            Settlement(Outcome.ABANDON, properties=encode({"a": 1})),
        ),
        (Rejected(), Settlement(Outcome.DEAD_LETTER)),
        (Rejected(Error(DEAD_LETTER)), Settlement(Outcome.DEAD_LETTER)),
        (
            Rejected(Error(DEAD_LETTER, "d", {b"DeadLetterReason": b"r", "k": "v"})),
            Settlement(Outcome.DEAD_LETTER, "r", None, encode({"k": "v"})),
        ),
        (
            Rejected(Error("app:broken", "says the application")),
            Settlement(Outcome.DEAD_LETTER, "app:broken", "says the application"),
        ),
    ],
)
def test_a_state_asks_for_a_settlement(state: object, settlement: Settlement) -> None:
    assert read_outcome(state) == settlement
