"""Errors as clients see them: a condition, and a text that says where and when to look.

Every text ends with a tracking id, the system tracker and a timestamp, as the service's do;
support tools and people search for them. Nothing is decided here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from partibus.broker.errors import Refusal
from partibus.gateway.settings import GatewaySettings
from partibus.runtime.entropy import Entropy
from partibus.wire.performatives import Error


class Now(Protocol):
    """The part of the clock that is used here."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class Tracking:
    """Makes errors and tracking ids for one gateway."""

    __slots__ = ("_clock", "_entropy", "_settings")

    def __init__(self, settings: GatewaySettings, clock: Now, entropy: Entropy) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy

    def new_id(self) -> str:
        """A tracking id of its own: `<guid>_G<node>`."""
        unique = UUID(bytes=self._entropy.take(16), version=4)
        return f"{unique}_G{self._settings.node}"

    def container_id(self) -> str:
        """The name under which this connection's end is known to its peer."""
        return f"{self._entropy.take(16).hex()}_G{self._settings.node}"

    def text(self, sentence: str, entity: str = "") -> str:
        """The sentence with what is needed to find its occasion again."""
        system = f"{self._settings.namespace}:Queue:{entity}" if entity else "gateway"
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return (
            f"{sentence} TrackingId:{self.new_id()}, SystemTracker:{system}, "
            f"Timestamp:{at:%Y-%m-%dT%H:%M:%S}"
        )

    def error(self, condition: str, sentence: str, entity: str = "") -> Error:
        """An AMQP error with this condition."""
        return Error(condition, self.text(sentence, entity), None)

    def error_of(self, refusal: Refusal, entity: str = "") -> Error:
        """The AMQP error that a refusal is told as."""
        return self.error(refusal.condition, str(refusal), entity)
