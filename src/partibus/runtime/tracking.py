"""Texts of errors that say where and when to look, for both doors.

Every text ends with a tracking id, the system tracker and a timestamp, as the service's do;
support tools and people search for them. Nothing is decided here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from partibus.runtime.entropy import Entropy


class Now(Protocol):
    """The part of the clock that is used here."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class TrackingTexts:
    """Makes tracking ids and texts for the doors of one node."""

    __slots__ = ("_clock", "_entropy", "_namespace", "_node")

    def __init__(self, namespace: str, node: int, clock: Now, entropy: Entropy) -> None:
        self._namespace = namespace
        self._node = node
        self._clock = clock
        self._entropy = entropy

    def new_id(self) -> str:
        """A tracking id of its own: `<guid>_G<node>`."""
        unique = UUID(bytes=self._entropy.take(16), version=4)
        return f"{unique}_G{self._node}"

    def container_id(self) -> str:
        """The name under which a connection's end is known to its peer."""
        return f"{self._entropy.take(16).hex()}_G{self._node}"

    def text(self, sentence: str, entity: str = "") -> str:
        """The sentence with what is needed to find its occasion again."""
        system = f"{self._namespace}:Queue:{entity}" if entity else "gateway"
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return (
            f"{sentence} TrackingId:{self.new_id()}, SystemTracker:{system}, "
            f"Timestamp:{at:%Y-%m-%dT%H:%M:%S}"
        )
