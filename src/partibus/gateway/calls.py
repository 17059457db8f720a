"""One request on `$management` being carried out: what it asks for, and how it is answered.

Reads the parts that several operations have in common and refuses what is not of their type.
Which operations there are, and what they do, stands beside this.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from partibus.broker.descriptions import Entity
from partibus.broker.errors import ArgumentOutOfRange, InvalidArgument, Refusal
from partibus.broker.records import SubQueue
from partibus.gateway.bindings import Carrier
from partibus.gateway.dialogue import Request, RequestLink
from partibus.gateway.outcomes import as_optional_text
from partibus.runtime.spans import Asked
from partibus.wire.values import Int, Symbol

TRACKING_ID = "com.microsoft:tracking-id"
# One request cannot name more messages than this.
TOKENS_MAX = 5_000
# The largest long; a ulong may be larger, and no store could look for it.
WHOLE_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Call:
    """One request being carried out, and the way to answer it."""

    carrier: Carrier
    entity: Entity
    subqueue: SubQueue
    request: Request
    origin: RequestLink
    # Where this process is traced.
    span: Asked | None = None

    def answer(self, body: dict[str, object], status: int = 200, text: str = "OK") -> None:
        """Answer that it was done."""
        self._respond({"statusCode": Int(status), "statusDescription": text}, body)

    def refuse(self, refusal: Refusal) -> None:
        """Answer that it was not done, and why."""
        properties: dict[str, object] = {
            "statusCode": Int(refusal.status),
            "statusDescription": self.carrier.tracking.text(
                str(refusal), self.entity.name, code=refusal.condition
            ),
            "errorCondition": Symbol(refusal.condition),
        }
        self._respond(properties, {})

    def _respond(self, properties: dict[str, object], body: dict[str, object]) -> None:
        if self.span is not None:
            self.span.end(int(properties["statusCode"]))  # type: ignore[call-overload]
        tracking = self.request.text(TRACKING_ID)
        if tracking is not None:
            properties[TRACKING_ID] = tracking
        self.origin.respond(self.request, properties, body)

    @property
    def has_sessions(self) -> bool:
        """Whether messages are had by session here; dead letters are not."""
        return self.entity.description.requires_session and self.subqueue is SubQueue.ACTIVE

    @property
    def body(self) -> dict[object, object]:
        """The map that the request carries."""
        if not isinstance(self.request.body, dict):
            raise InvalidArgument("The body of the request is not a map.")
        return self.request.body

    def tokens(self) -> list[bytes]:
        """The lock tokens named, as delivery tags are spelled."""
        named = self.body.get("lock-tokens")
        if not isinstance(named, list) or not 0 < len(named) <= TOKENS_MAX:
            raise InvalidArgument(f"lock-tokens is not a list of 1 to {TOKENS_MAX} lock tokens.")
        if not all(isinstance(token, UUID) for token in named):
            raise InvalidArgument("lock-tokens holds something that is not a uuid.")
        return [token.bytes_le for token in named]

    def sequences(self) -> list[int]:
        """The sequence numbers named."""
        named = self.body.get("sequence-numbers")
        if not isinstance(named, list) or not 0 < len(named) <= TOKENS_MAX:
            raise InvalidArgument(f"sequence-numbers is not a list of 1 to {TOKENS_MAX} numbers.")
        if not all(_is_whole(number) for number in named):
            raise InvalidArgument("sequence-numbers holds something that is not a number.")
        return [int(number) for number in named]

    def whole(self, name: str, least: int | None = None) -> int:
        """A whole number."""
        value = self.body.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(f"{name} is not a whole number.")
        if least is not None and value < least:
            raise ArgumentOutOfRange(f"{name} is {value}; the least allowed is {least}.")
        if value > WHOLE_MAX:
            raise ArgumentOutOfRange(f"{name} is {value}; the most allowed is {WHOLE_MAX}.")
        return int(value)

    def text(self, name: str) -> str | None:
        """A text; None where it is missing."""
        return as_optional_text(self.body.get(name))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
