"""Texts of errors that say where and when to look, for both doors.

Every text ends with a tracking id, the system tracker and a timestamp, as the service's do;
support tools and people search for them. The same id stands in the log line of the refusal.
Nothing is decided here.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Protocol

from partibus.runtime.entropy import Entropy
from partibus.telemetry import Rationed

log = logging.getLogger(__name__)

_VARIANTS = "89ab"


class Now(Protocol):
    """The part of the clock that is used here."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class TrackingTexts:
    """Makes tracking ids and texts for the doors of one node."""

    __slots__ = ("_clock", "_entropy", "_log", "_namespace", "_node", "_second", "_written")

    def __init__(self, namespace: str, node: int, clock: Now, entropy: Entropy) -> None:
        self._namespace = namespace
        self._node = node
        self._clock = clock
        self._entropy = entropy
        self._log = Rationed(log)
        # The second that was written last, and how: refusals come in crowds.
        self._second = -1
        self._written = ""

    def new_id(self) -> str:
        """A tracking id of its own: `<guid>_G<node>`."""
        digits = self._entropy.take(16).hex()
        # Version 4, as UUID writes it; a wrong token must not cost more than it has to.
        variant = _VARIANTS[int(digits[16], 16) & 3]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
            f"_G{self._node}"
        )

    def container_id(self) -> str:
        """The name under which a connection's end is known to its peer."""
        return f"{self._entropy.take(16).hex()}_G{self._node}"

    def text(self, sentence: str, entity: str = "", *, code: str | int = "") -> str:
        """The sentence of a refusal with what is needed to find it again, in the log, too."""
        tracking_id = self.new_id()
        system = f"{self._namespace}:Queue:{entity}" if entity else "gateway"
        self._log.info(
            "request refused tracking_id=%s code=%s entity=%s: %s",
            tracking_id, code, entity, sentence,
        )  # fmt: skip
        return (
            f"{sentence} TrackingId:{tracking_id}, SystemTracker:{system}, "
            f"Timestamp:{self._timestamp()}"
        )

    def _timestamp(self) -> str:
        second = self._clock.now_ms() // 1000
        if second != self._second:
            self._second = second
            self._written = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        return self._written
