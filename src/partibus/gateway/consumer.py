"""A link on which a client receives messages of an entity, and settles them.

Credit goes down to the node, messages come up and are written in one call; settlements are
gathered for a turn, handed to the node, and echoed as the clients need it once they are durable
(SPEC 3.12). Which message comes next is the node's business.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import InvalidArgument, Refusal
from partibus.broker.records import SubQueue
from partibus.broker.settlement import COMPLETE, RELEASE, Settlement
from partibus.engine.events import Settlements
from partibus.engine.link import SenderLink
from partibus.gateway.bindings import Binding, Carrier
from partibus.gateway.outcomes import read_outcome
from partibus.runtime.receiving import ReceiveMode, Receiver
from partibus.runtime.requests import Delivered
from partibus.runtime.settling import LOCK_LOST
from partibus.wire.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)

# With more than this written in one turn, deliveries wait until the socket has taken it.
BURST_BYTES_MAX = 1_048_576
# What a settlement on its way to the disk counts as, in bytes held.
SETTLEMENT_BYTES = 64

# Clients ask that the outcome they gave comes back in kind. Dead-lettering comes back as rejected
# without an error, because an error means that it failed.
_ECHOES: dict[type, object] = {
    Accepted: ACCEPTED,
    Modified: Modified(),
    Rejected: Rejected(),
    Released: RELEASED,
}


def _ignore(_: dict[bytes, Refusal]) -> None:
    """Nobody waits for this answer."""


Handed = list[tuple[int, bytes]]


class Consumer(Binding):
    """The sending end of a client's receiver."""

    right = Right.LISTEN
    # What is said of a settlement that comes too late.
    lock_lost: Refusal = LOCK_LOST

    def __init__(
        self, carrier: Carrier, link: SenderLink, path: str, entity: Entity, subqueue: SubQueue
    ) -> None:
        self.path = path
        self.active_ms = carrier.now_ms()
        self._carrier = carrier
        self._link = link
        self._entity = entity
        attach = link.peer_attach
        self._settled = attach is not None and attach.snd_settle_mode == 1
        mode = ReceiveMode.RECEIVE_AND_DELETE if self._settled else ReceiveMode.PEEK_LOCK
        self._spans = carrier.node.spans
        self._receiver = self._receive(entity, subqueue, mode)
        self._surplus: list[tuple[bytes, bytes]] = []
        self._draining = False
        self._is_over = False
        # Completions of this turn: those that wait for an answer, and those that do not.
        self._completed: Handed = []
        self._completed_unasked: Handed = []
        # Answers that are due, by the state they carry.
        self._answers: list[tuple[list[int], object]] = []

    def _receive(self, entity: Entity, subqueue: SubQueue, mode: ReceiveMode) -> Receiver:
        return self._carrier.node.receiver(entity, subqueue, mode, self._deliver, self._lost)

    @property
    def link(self) -> SenderLink:
        """The engine's link."""
        return self._link

    # Deliveries -----------------------------------------------------------------------------

    def flowed(self) -> None:
        """Pass the credit on; a drain is answered after what is there was sent."""
        self.active_ms = self._carrier.now_ms()
        link = self._link
        if not link.is_attached:
            # Its detach came in the same read and is about to be told.
            return
        if self._surplus:
            self._send_surplus()
        sendable = link.sendable
        if link.credit and not sendable:
            self._carrier.wait_for_room(self)
        self._receiver.set_credit(sendable)
        if link.drain and not self._draining:
            self._draining = True
            self._receiver.drain(self._drained)

    def _drained(self) -> None:
        self._draining = False
        if self._link.is_attached:
            self._link.drained()
            self._carrier.wake(self)

    def _deliver(self, messages: list[Delivered]) -> None:
        self.active_ms = self._carrier.now_ms()
        link = self._link
        if not link.is_attached:
            tokens = [message.token for message in messages]
            self._carrier.node.settle(self._entity, tokens, RELEASE, _ignore)
            return
        if self._spans is not None:
            self._spans.delivering(self._entity.name, messages)
        tagged = [(message.token, message.payload) for message in messages]
        if self._surplus or len(tagged) > link.credit:
            self._surplus += tagged
            self._send_surplus()
        else:
            link.send_many(tagged, self._settled)
        if link.session.output.size > BURST_BYTES_MAX:
            self._carrier.throttle()
        self._carrier.wake(self)

    def _send_surplus(self) -> None:
        """Send what came when the client had taken its credit back, as far as there is credit.

        It has happened to messages that were deleted on the way (receive-and-delete): they must
        not be lost while their receiver is there.
        """
        count = min(self._link.credit, len(self._surplus))
        if count:
            self._link.send_many(self._surplus[:count], self._settled)
            del self._surplus[:count]

    def _lost(self, refusal: Refusal) -> None:
        if not self._is_over:
            self._carrier.detach(self, self._carrier.tracking.error_of(refusal, self._entity.name))

    def pause(self) -> None:
        """The socket is full."""
        self._receiver.pause()

    def resume(self) -> None:
        """The socket has room."""
        self._receiver.resume()

    # Settlements ----------------------------------------------------------------------------

    def settlements(self, event: Settlements) -> None:
        """Gather completions, which come in crowds; hand everything else on at once."""
        self.active_ms = self._carrier.now_ms()
        state = event.state
        if type(state) is Accepted:
            (self._completed_unasked if event.settled else self._completed).extend(event.deliveries)
            self._carrier.wake(self)
            return
        if isinstance(state, TransactionalState):
            self._enlist(event, state)
            return
        try:
            settlement = read_outcome(state)
        except Refusal as refusal:
            self._refuse(event, refusal)
            return
        echo = None if event.settled else _ECHOES.get(type(state))
        self._settle(event.deliveries, settlement, echo)

    def _enlist(self, event: Settlements, state: TransactionalState) -> None:
        """Keep what is settled in a transaction until that is discharged; the lock runs on."""
        transactions = self._carrier.transactions
        tokens = [token for _, token in event.deliveries]
        try:
            if state.outcome is None:
                raise InvalidArgument("A settlement in a transaction needs an outcome.")
            transactions.settle(state.txn_id, self._entity, tokens, read_outcome(state.outcome))
        except Refusal as refusal:
            if event.settled:
                # The client takes it for done; so the rest must not be committed without it.
                transactions.fail(state.txn_id, str(refusal))
            self._refuse(event, refusal)
            return
        if not event.settled:
            enlisted = TransactionalState(state.txn_id, _ECHOES.get(type(state.outcome)))
            self._answers.append(([number for number, _ in event.deliveries], enlisted))
            self._carrier.wake(self)

    def _refuse(self, event: Settlements, refusal: Refusal) -> None:
        if not event.settled:
            error = self._carrier.tracking.error_of(refusal, self._entity.name)
            self._answers.append(([number for number, _ in event.deliveries], Rejected(error)))
            self._carrier.wake(self)

    def _settle(self, handed: Handed, settlement: Settlement, echo: object) -> None:
        self._carrier.hold(SETTLEMENT_BYTES * len(handed))
        tokens = [token for _, token in handed]
        done = self._when_settled(handed, echo)
        if self._spans is not None:
            name = settlement.outcome.name.lower()
            done = self._spans.settling(self._entity.name, name, len(tokens), done)
        self._carrier.node.settle(self._entity, tokens, settlement, done, self.lock_lost)

    def _when_settled(self, handed: Handed, echo: object) -> Callable[[dict[bytes, Refusal]], None]:
        def done(refused: dict[bytes, Refusal]) -> None:
            self._carrier.release(SETTLEMENT_BYTES * len(handed))
            self._carrier.wake(self)
            if echo is None or self._is_over:
                return
            if not refused:
                self._answers.append(([number for number, _ in handed], echo))
                return
            self._answers.append(([n for n, token in handed if token not in refused], echo))
            for number, token in handed:
                if token in refused:
                    error = self._carrier.tracking.error_of(refused[token], self._entity.name)
                    self._answers.append(([number], Rejected(error)))

        return done

    def flush(self) -> None:
        """Hand on the completions of this turn, and write the answers that are due."""
        if self._completed:
            completed, self._completed = self._completed, []
            self._settle(completed, COMPLETE, ACCEPTED)
        if self._completed_unasked:
            completed, self._completed_unasked = self._completed_unasked, []
            self._settle(completed, COMPLETE, None)
        if self._answers and not self._is_over:
            answers, self._answers = self._answers, []
            accepted: list[int] = []
            for numbers, state in answers:
                if state is ACCEPTED:
                    accepted += numbers
                elif numbers:
                    self._link.settle(numbers, state)
            if accepted:
                self._link.settle(accepted, ACCEPTED)

    def close(self) -> None:
        """The node takes back what was not delivered; locks of what was run on."""
        self._is_over = True
        self._receiver.close()
