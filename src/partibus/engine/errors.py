"""What can go wrong between two AMQP peers, and how much of the connection it ends."""

from __future__ import annotations

from enum import Enum

from partibus.wire.performatives import Error


class Scope(Enum):
    """What a protocol error ends: AMQP answers it with detach, end or close."""

    LINK = "link"
    SESSION = "session"
    CONNECTION = "connection"


class ProtocolError(Exception):
    """The peer broke AMQP. Raised and answered inside the engine; the driver sees an event."""

    def __init__(self, scope: Scope, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.scope = scope
        self.condition = condition
        self.description = description

    @property
    def error(self) -> Error:
        """What is told to the peer."""
        return Error(self.condition, self.description)


class LocalProtocolError(Exception):
    """Our own side asked for what AMQP does not allow now, as sending without credit."""
