"""Errors as AMQP clients see them: a condition, and a text that says where and when to look.

The texts are those of runtime.tracking, which the HTTP door uses too. Nothing is decided here.
"""

from __future__ import annotations

from partibus.broker.errors import Refusal
from partibus.gateway.settings import GatewaySettings
from partibus.runtime.entropy import Entropy
from partibus.runtime.tracking import Now, TrackingTexts
from partibus.wire.performatives import Error


class Tracking:
    """Makes errors and tracking ids for one gateway."""

    __slots__ = ("_texts", "container_id", "new_id", "text")

    def __init__(self, settings: GatewaySettings, clock: Now, entropy: Entropy) -> None:
        self._texts = TrackingTexts(settings.namespace, settings.node, clock, entropy)
        self.new_id = self._texts.new_id
        self.container_id = self._texts.container_id
        self.text = self._texts.text

    def error(self, condition: str, sentence: str, entity: str = "") -> Error:
        """An AMQP error with this condition."""
        return Error(condition, self.text(sentence, entity, code=condition), None)

    def of_peer(self, error: Error) -> Error:
        """The error by which the engine ends what a peer has broken, to be found again, too."""
        return self.error(error.condition, error.description or "")

    def error_of(self, refusal: Refusal, entity: str = "") -> Error:
        """The AMQP error that a refusal is told as."""
        return self.error(refusal.condition, str(refusal), entity)
