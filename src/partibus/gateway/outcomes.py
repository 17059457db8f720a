"""What a receiver's outcome asks for: AMQP delivery states read as settlements (SPEC 3.12)."""

from __future__ import annotations

from collections.abc import Mapping

from partibus.broker.errors import InvalidArgument
from partibus.broker.settlement import COMPLETE, RELEASE, Outcome, Settlement
from partibus.wire.codec import encode
from partibus.wire.errors import EncodeError
from partibus.wire.performatives import Accepted, Error, Modified, Rejected

DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


def read_outcome(state: object) -> Settlement:
    """The settlement that a delivery state means."""
    if isinstance(state, Accepted):
        return COMPLETE
    if isinstance(state, Rejected):
        return _dead_letter(state.error)
    if isinstance(state, Modified):
        outcome = Outcome.DEFER if state.undeliverable_here else Outcome.ABANDON
        return Settlement(outcome, properties=encode_changes(state.message_annotations or {}))
    # Released, or settled without an outcome: the client did not look at it.
    return RELEASE


def _dead_letter(error: Error | None) -> Settlement:
    """Reason and description stand in the error's info; other keys there change properties."""
    if error is None:
        return Settlement(Outcome.DEAD_LETTER)
    changes = {as_text(key): value for key, value in (error.info or {}).items()}
    reason = as_optional_text(changes.pop(REASON, None))
    description = as_optional_text(changes.pop(DESCRIPTION, None))
    if error.condition != DEAD_LETTER_CONDITION and reason is None:
        # A plain AMQP client says in the error itself why it rejects.
        reason, description = str(error.condition), description or error.description
    return Settlement(Outcome.DEAD_LETTER, reason, description, encode_changes(changes))


def encode_changes(changes: Mapping[object, object] | Mapping[str, object]) -> bytes:
    """Properties to modify as an encoded map with string keys; nothing where there are none."""
    if not changes:
        return b""
    try:
        return encode({as_text(key): value for key, value in changes.items()})
    except EncodeError as error:
        raise InvalidArgument(f"The properties to modify have no plain values: {error}.") from error


def as_text(value: object) -> str:
    """A key or text that came as string, symbol or (from Python clients) as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def as_optional_text(value: object) -> str | None:
    """The same, where there may be none."""
    return None if value is None else as_text(value)
