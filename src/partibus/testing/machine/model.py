"""The oracle: what a queue is, in one dict of messages. It knows no fragments, files or nodes.

It says what may be received, what becomes of it, and what time does. Its messages are known by
their bodies, which no two share; the broker's numbers are learned from what it shows. Sessions
and transactions are beside this, each in a file of its own.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

from partibus.broker.descriptions import QueueDescription
from partibus.broker.durations import FOREVER_MS
from partibus.broker.records import State
from partibus.broker.settlement import Outcome

EXPIRED = "TTLExpiredException"
SPENT = "MaxDeliveryCountExceeded"

Self = TypeVar("Self", bound="QueueModel")


@dataclass(slots=True)
class Message:
    """One message, as it was sent and as it is."""

    body: bytes
    message_id: str
    session: str | None = None
    # The partition key, where the sender gave one.
    key: str | None = None
    # As the sender wishes; 0: for ever, at once.
    ttl_ms: int = 0
    due_ms: int = 0
    state: State = State.ACTIVE
    expires_ms: int = 0
    deliveries: int = 0
    # What the broker calls it; 0 as long as we have not seen it.
    sequence: int = 0
    is_dead: bool = False
    reason: str | None = None
    # The lock; a session's end with the session.
    token: bytes = b""
    until_ms: int = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether its time to live has passed; a dead letter's does not."""
        return not self.is_dead and 0 < self.expires_ms <= now_ms


class QueueModel:
    """A queue, and its dead letters."""

    def __init__(self, queue: QueueDescription, fragments: int, now_ms: int) -> None:
        self.queue = queue
        self.is_partitioned = fragments > 1
        self.now_ms = now_ms
        self.messages: dict[bytes, Message] = {}
        # When what duplicates are known by was accepted.
        self.sighted: dict[tuple[str, str], int] = {}

    def copy(self: Self) -> Self:
        """The same, to go another way from here."""
        return deepcopy(self)

    # Sending --------------------------------------------------------------------------------------

    def key_of(self, message: Message) -> str | None:
        """What pins a message to a fragment."""
        if message.session is not None or message.key is not None:
            return message.session or message.key
        return message.message_id if self.queue.requires_duplicate_detection else None

    def refuses(self, batch: list[Message]) -> bool:
        """Whether the messages cannot be sent together."""
        if self.queue.requires_session and any(each.session is None for each in batch):
            return True
        return self.is_partitioned and len({self.key_of(each) for each in batch}) > 1

    def send(self, batch: list[Message]) -> list[Message]:
        """Take messages in; returns those that were not here before."""
        new = [message for message in batch if not self._is_duplicate(message)]
        for message in new:
            if message.due_ms > self.now_ms:
                message.state = State.SCHEDULED
            else:
                self._arrive(message, self.now_ms)
            self.messages[message.body] = message
        return new

    def _is_duplicate(self, message: Message) -> bool:
        if not self.queue.requires_duplicate_detection:
            return False
        name = self.name_of(message)
        since_ms = self.now_ms - self.queue.duplicate_window_ms
        if self.sighted.get(name, since_ms) > since_ms:
            return True
        self.sighted[name] = self.now_ms
        return False

    def name_of(self, message: Message) -> tuple[str, str]:
        """What duplicates of a message are known by."""
        return (self.key_of(message) or "") if self.is_partitioned else "", message.message_id

    def _arrive(self, message: Message, at_ms: int) -> None:
        ttl_ms = min(message.ttl_ms or FOREVER_MS, self.queue.default_ttl_ms)
        message.state, message.due_ms = State.ACTIVE, 0
        message.expires_ms = at_ms + ttl_ms if ttl_ms < FOREVER_MS else 0

    # Receiving ------------------------------------------------------------------------------------

    def ready(self, *, dead: bool = False) -> list[Message]:
        """What a receiver may get now, in the order of the broker's numbers."""
        found = [
            each
            for each in self.messages.values()
            if each.is_dead == dead and each.state == State.ACTIVE and not each.token
        ]
        return sorted(found, key=lambda each: each.sequence)

    def aside(self, state: State) -> list[Message]:
        """What is deferred, or scheduled, and not locked."""
        found = [m for m in self.messages.values() if m.state == state and not m.token]
        return sorted(found, key=lambda each: each.sequence)

    def locked(self) -> list[Message]:
        """What receivers hold."""
        return [message for message in self.messages.values() if message.token]

    def lock(self, message: Message, token: bytes) -> None:
        """A receiver took it."""
        message.token, message.until_ms = token, self.now_ms + self.queue.lock_ms

    def holder(self, token: bytes) -> Message | None:
        """What a token locks."""
        return next((each for each in self.messages.values() if each.token == token), None)

    def settle(self, message: Message, outcome: Outcome, reason: str | None = None) -> None:
        """The receiver is done with it."""
        if outcome is Outcome.ABANDON:
            self.failed(message)
            return
        message.token = b""
        if outcome is Outcome.COMPLETE:
            del self.messages[message.body]
        elif outcome is Outcome.DEAD_LETTER:
            self.bury(message, reason)
        elif outcome is Outcome.DEFER:
            message.state = State.DEFERRED
            message.deliveries += 1
        elif message.state == State.ACTIVE and message.is_over(self.now_ms):
            self.expire(message)

    def failed(self, message: Message) -> None:
        """A delivery came to nothing."""
        message.token = b""
        message.deliveries += 1
        if not message.is_dead and message.deliveries >= self.queue.max_delivery_count:
            self.bury(message, SPENT)
        elif message.state == State.ACTIVE and message.is_over(self.now_ms):
            self.expire(message)

    def bury(self, message: Message, reason: str | None) -> None:
        """It becomes a dead letter."""
        message.is_dead, message.reason = True, reason
        message.state, message.token = State.ACTIVE, b""

    def expire(self, message: Message) -> None:
        """Its time to live is over."""
        if self.queue.dead_letter_on_expiration:
            self.bury(message, EXPIRED)
        else:
            del self.messages[message.body]

    # Time, and the end of it ----------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Time passes: locks end, messages become active, others expire; each at its moment."""
        while (at_ms := min(self.moments(), default=now_ms + 1)) <= now_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.strike()
        self.now_ms = now_ms

    def moments(self) -> list[int]:
        """When something will happen by itself."""
        found = [each.until_ms for each in self.locked() if each.until_ms]
        found += [each.due_ms for each in self.messages.values() if each.due_ms]
        return found + [each.expires_ms for each in self._mortal()]

    def strike(self) -> None:
        """What happens at this moment."""
        now_ms = self.now_ms
        for message in self.locked():
            if 0 < message.until_ms <= now_ms:
                self.failed(message)
        for message in list(self.messages.values()):
            if 0 < message.due_ms <= now_ms:
                # It arrives anew, under another number.
                message.sequence = 0
                self._arrive(message, now_ms)
        for message in self._mortal():
            if message.is_over(now_ms):
                self.expire(message)

    def _mortal(self) -> list[Message]:
        return [each for each in self.ready() if each.expires_ms]

    def crash(self) -> None:
        """The power failed: locks are gone, everything else is as it was."""
        for message in self.locked():
            message.token = b""
            if message.state == State.ACTIVE and message.is_over(self.now_ms):
                self.expire(message)
