"""Messages as applications see them: what they send, and what they get back.

Plain values in the words of the Service Bus documents. How they become AMQP sections is in
`encoding`; a message knows nothing of links.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

MessageId: TypeAlias = str | int | bytes | UUID


class MessageState(IntEnum):
    """What becomes of a message that was peeked or received."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(slots=True)
class Message:
    """A message to be sent.

    The body is bytes or text (sent as data), or any other AMQP value. A message without an id gets
    one when it is sent. A partition key pins the message to one fragment, as a session id does;
    leave it out unless you need it.
    """

    body: object = b""
    _: KW_ONLY
    message_id: MessageId | None = None
    session_id: str | None = None
    partition_key: str | None = None
    # The key that decides in the entity a message is sent via; `partition_key` decides behind it.
    via_partition_key: str | None = None
    subject: str | None = None
    correlation_id: MessageId | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_time: datetime | None = None
    properties: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode() if isinstance(self.body, bytes) else str(self.body)


@dataclass(slots=True)
class ReceivedMessage(Message):
    """A message that came: what its sender said, and what the broker says of it.

    It can be sent again as it is; what the broker said stays behind.
    """

    _: KW_ONLY
    sequence_number: int | None = None
    enqueued_sequence_number: int | None = None
    enqueued_time: datetime | None = None
    expires_at: datetime | None = None
    # Deliveries that failed before this one.
    delivery_count: int = 0
    lock_token: UUID | None = None
    locked_until: datetime | None = None
    partition_id: int | None = None
    dead_letter_source: str | None = None
    state: MessageState = MessageState.ACTIVE
    # Where it came from, for the receiver that settles it.
    origin: object = field(default=None, repr=False, compare=False)

    @property
    def dead_letter_reason(self) -> str | None:
        """Why the message was set aside."""
        reason = self.properties.get("DeadLetterReason")
        return None if reason is None else str(reason)

    @property
    def dead_letter_description(self) -> str | None:
        """What was said about it then."""
        description = self.properties.get("DeadLetterErrorDescription")
        return None if description is None else str(description)
