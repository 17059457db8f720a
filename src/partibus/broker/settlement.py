"""What a receiver may do with a message it holds under lock."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Outcome(IntEnum):
    """The five ways to settle."""

    COMPLETE = 0
    # Unlocked, and counted as a failed delivery.
    ABANDON = 1
    # Unlocked, and not counted: the message was never looked at.
    RELEASE = 2
    DEAD_LETTER = 3
    DEFER = 4


class Settlement(msgspec.Struct, array_like=True, frozen=True):
    """An outcome with what the receiver said about it."""

    outcome: Outcome
    reason: str | None = None
    description: str | None = None
    # Properties to modify, as encoded AMQP map: merged into the application properties.
    properties: bytes = b""


COMPLETE = Settlement(Outcome.COMPLETE)
ABANDON = Settlement(Outcome.ABANDON)
RELEASE = Settlement(Outcome.RELEASE)
