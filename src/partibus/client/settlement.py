"""The ways to settle a message, each as an outcome on its link and as a word of `$management`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from partibus.client import requests
from partibus.wire.performatives import ACCEPTED, Error, Modified, Rejected
from partibus.wire.values import Symbol

DEAD_LETTER = "com.microsoft:dead-letter"


@dataclass(frozen=True, slots=True)
class Settlement:
    """What becomes of a message. The spelling of `status` is the protocol's."""

    status: str
    outcome: object
    reason: str | None = None
    description: str | None = None
    properties: dict[str, object] | None = None

    def request(self, token: UUID, session_id: str | None) -> requests.Request:
        """The same as a request, for a message that has no link."""
        return requests.settle(
            self.status,
            token,
            reason=self.reason,
            description=self.description,
            properties=self.properties,
            session_id=session_id,
        )


COMPLETE = Settlement("completed", ACCEPTED)


def abandon(properties: Mapping[str, object] | None) -> Settlement:
    """Unlock it for others; it counts as delivered."""
    outcome = Modified(message_annotations=_fields(properties))
    return Settlement("abandoned", outcome, properties=dict(properties or {}))


def defer(properties: Mapping[str, object] | None) -> Settlement:
    """Set it aside, to be received by its sequence number."""
    outcome = Modified(undeliverable_here=True, message_annotations=_fields(properties))
    return Settlement("defered", outcome, properties=dict(properties or {}))


def dead_letter(
    reason: str | None, description: str | None, properties: Mapping[str, object] | None
) -> Settlement:
    """Move it to the dead-letter queue."""
    told: dict[str, object] = dict(properties or {})
    if reason is not None:
        told["DeadLetterReason"] = reason
    if description is not None:
        told["DeadLetterErrorDescription"] = description
    outcome = Rejected(Error(DEAD_LETTER, None, _fields(told)))
    return Settlement("suspended", outcome, reason, description, dict(properties or {}))


def _fields(properties: Mapping[str, object] | None) -> dict[object, object] | None:
    return {Symbol(name): value for name, value in properties.items()} if properties else None
