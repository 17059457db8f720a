"""Our end of a link on which we send: messages wait here for credit, and then for their outcome."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from partibus.client.errors import MessageSizeExceeded, MessagingError, QuotaExceeded
from partibus.client.link_end import LinkEnd, refusal_of
from partibus.client.pending import Pending
from partibus.engine.events import Settlements
from partibus.engine.link import SenderLink

# Messages that wait for credit on one link. Whoever has more under way should wait for some.
SENDS_WAITING_MAX = 10_000
BATCH_SIZE_PROPERTY = "com.microsoft:max-message-batch-size"
# What a batch may hold where the service does not say (SPEC 2.5).
BATCH_BYTES_DEFAULT = 262_144


@dataclass(frozen=True, slots=True)
class _Unsent:
    payload: bytes
    message_format: int
    state: object
    outcome: Pending[object]


class Outbox(LinkEnd):
    """A link on which we send."""

    def __init__(self, link: SenderLink) -> None:
        super().__init__(link)
        self._link = link
        self._waiting: deque[_Unsent] = deque()
        self._unsettled: dict[int, Pending[object]] = {}
        self._sent = 0

    @property
    def message_bytes_max(self) -> int:
        """The largest message the link takes; 0 for no limit, or for one not known yet."""
        attach = self._link.peer_attach
        return 0 if attach is None else attach.max_message_size or 0

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch the link takes."""
        named = (self.answer.properties or {}).get(BATCH_SIZE_PROPERTY)
        if isinstance(named, int) and named > 0:
            return named
        return min(self.message_bytes_max or BATCH_BYTES_DEFAULT, 4 * BATCH_BYTES_DEFAULT)

    def send(
        self, payload: bytes, *, message_format: int = 0, state: object = None
    ) -> Pending[object]:
        """Send a message as soon as there is credit; the answer is its outcome."""
        outcome: Pending[object] = Pending()
        size_max = self.batch_bytes_max if message_format else self.message_bytes_max
        if self.error is not None:
            outcome.fail(self.error)
        elif size_max and len(payload) > size_max:
            what = "a batch" if message_format else "a message"
            outcome.fail(
                MessageSizeExceeded(f"{what} of {len(payload)} bytes; {size_max} are allowed")
            )
        elif len(self._waiting) >= SENDS_WAITING_MAX:
            outcome.fail(QuotaExceeded(f"{SENDS_WAITING_MAX} messages wait for credit already"))
        else:
            self._waiting.append(_Unsent(payload, message_format, state, outcome))
            self.on_flowed()
        return outcome

    def on_flowed(self) -> None:
        """Send what waits, as far as credit and room go."""
        link, waiting = self._link, self._waiting
        while waiting and link.sendable > 0:
            unsent = waiting.popleft()
            if not unsent.outcome.is_wanted:
                continue
            self._sent += 1
            delivery_id = link.send(
                (self._sent & 0xFFFFFFFF).to_bytes(4, "big"),
                unsent.payload,
                message_format=unsent.message_format,
                state=unsent.state,
            )
            self._unsettled[delivery_id] = unsent.outcome
        if link.drain and not waiting:
            link.drained()

    def on_settled(self, event: Settlements) -> None:
        """Tell who waits what became of their messages."""
        if not event.settled:
            self._link.settle([number for number, _ in event.deliveries], event.state)
        for number, _ in event.deliveries:
            outcome = self._unsettled.pop(number, None)
            if outcome is None:
                continue
            refusal = refusal_of(event.state)
            if refusal is not None:
                outcome.fail(refusal)
            else:
                outcome.resolve(event.state)

    def on_ended(self, error: MessagingError) -> None:
        """What has no outcome will not get one."""
        super().on_ended(error)
        waiting, self._waiting = self._waiting, deque()
        unsettled, self._unsettled = self._unsettled, {}
        for unsent in waiting:
            unsent.outcome.fail(error)
        for outcome in unsettled.values():
            outcome.fail(error)
