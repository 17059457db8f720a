"""A link on which a client sends messages to an entity.

Messages are read (not decoded), handed to the node in one call a turn, and answered when they
are durable. Credit comes back as commits finish, not as messages arrive: a slow disk slows its
senders. Where a message goes is the node's business.
"""

from __future__ import annotations

from typing import Protocol

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityDisabled, EntityNotFound, InvalidArgument, Refusal
from partibus.broker.message import BATCH_FORMAT, Incoming, read_batch, read_message
from partibus.engine.delivery import Delivery
from partibus.engine.link import ReceiverLink
from partibus.gateway.bindings import Binding, Carrier
from partibus.runtime.sending import Sent
from partibus.wire.performatives import ACCEPTED, Rejected, TransactionalState

# How many messages a client may have on the way on one link, answered or not.
CREDIT = 1_000
# Credit is topped up in steps of this, so that a flow frame serves many messages.
CREDIT_STEP = CREDIT // 4

Item = tuple[int, list[Incoming]]


class Sends(Protocol):
    """Who takes the messages of a link further."""

    @property
    def entity(self) -> Entity | None:
        """The entity as it is now; None where it is gone."""

    def send(self, items: list[Item], sent: Sent) -> None:
        """Send messages and batches; sent(ids, refusal) for each group, when it is durable."""


class Publisher(Binding):
    """The receiving end of a client's sender."""

    right = Right.SEND

    def __init__(
        self,
        carrier: Carrier,
        link: ReceiverLink,
        path: str,
        entity: Entity,
        sender: Sends | None = None,
    ) -> None:
        self.path = path
        self.active_ms = carrier.now_ms()
        self._carrier = carrier
        self._link = link
        self._entity = entity
        self._sender: Sends = sender or carrier.node.sender(entity)
        self._new_id = carrier.node.entropy.message_id
        self._spans = carrier.node.spans
        # Payload sizes of what is not durable yet, by delivery-id.
        self._sizes: dict[int, int] = {}
        self._accepted: list[int] = []
        self._rejected: list[tuple[list[int], Refusal]] = []
        # What has become part of transactions, by their ids.
        self._enlisted: dict[bytes, list[int]] = {}
        self._is_over = False
        link.grant(CREDIT)

    @property
    def link(self) -> ReceiverLink:
        """The engine's link."""
        return self._link

    def deliveries(self, deliveries: list[Delivery]) -> None:
        """Hand messages on; runs of settled and unsettled ones keep their order."""
        self.active_ms = self._carrier.now_ms()
        items: list[Item] = []
        settled = False
        size = 0
        # The node keeps the sender's entity up to date; this link's own copy may be old.
        entity = self._sender.entity or self._entity
        bytes_max = entity.description.max_message_bytes
        new_id, sizes = self._new_id, self._sizes
        for delivery in deliveries:
            payload = delivery.payload
            try:
                if delivery.message_format == 0 and delivery.state is None:
                    messages = [read_message(payload, bytes_max, new_id)]
                elif isinstance(delivery.state, TransactionalState):
                    self._enlist(delivery, delivery.state, entity)
                    continue
                else:
                    messages = self._read_special(delivery, bytes_max)
            except Refusal as refusal:
                if not delivery.settled:
                    self._rejected.append(([delivery.delivery_id], refusal))
                continue
            if delivery.settled is not settled:
                self._send(items, settled)
                items = []
                settled = delivery.settled
            delivery_id = delivery.delivery_id
            # A broken client may use an id twice.
            sizes[delivery_id] = sizes.get(delivery_id, 0) + len(payload)
            size += len(payload)
            items.append((delivery_id, messages))
        self._carrier.hold(size)
        self._send(items, settled)
        self._carrier.wake(self)

    def _read_special(self, delivery: Delivery, bytes_max: int) -> list[Incoming]:
        if delivery.message_format == BATCH_FORMAT:
            return read_batch(delivery.payload, bytes_max, self._new_id)
        if delivery.message_format == 0:
            return [read_message(delivery.payload, bytes_max, self._new_id)]
        raise InvalidArgument(f"The message format {delivery.message_format:#x} is not known.")

    def _enlist(self, delivery: Delivery, state: TransactionalState, entity: Entity) -> None:
        """Keep what is sent in a transaction until that is discharged."""
        transactions = self._carrier.transactions
        try:
            messages = self._read_special(delivery, entity.description.max_message_bytes)
            self._join(state.txn_id, entity, messages)
        except Refusal as refusal:
            if delivery.settled:
                # The client takes it for sent; so the rest must not be committed without it.
                transactions.fail(state.txn_id, str(refusal))
            raise
        if not delivery.settled:
            self._enlisted.setdefault(state.txn_id, []).append(delivery.delivery_id)

    def _join(self, txn_id: bytes, entity: Entity, messages: list[Incoming]) -> None:
        self._carrier.transactions.send(txn_id, entity, messages)

    def _send(self, items: list[Item], settled: bool) -> None:
        if items:
            sent: Sent = self._stored_unasked if settled else self._stored
            if self._spans is not None:
                sent = self._spans.sending(self._entity.name, items, sent)
            self._sender.send(items, sent)

    def _stored(self, delivery_ids: list[int], refusal: Refusal | None) -> None:
        self._stored_unasked(delivery_ids, refusal)
        if refusal is None:
            self._accepted += delivery_ids
        else:
            self._rejected.append((delivery_ids, refusal))

    def _stored_unasked(self, delivery_ids: list[int], refusal: Refusal | None) -> None:
        """A settled transfer is stored like any other, but nobody waits for the answer."""
        pop = self._sizes.pop
        size = 0
        for delivery_id in delivery_ids:
            size += pop(delivery_id, 0)
        self._carrier.release(size)
        self._carrier.wake(self)

    def flush(self) -> None:
        """Answer what has become durable, in ranges, and give its credit back."""
        if self._is_over:
            return
        link = self._link
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            link.settle(accepted, ACCEPTED)
        if self._enlisted:
            enlisted, self._enlisted = self._enlisted, {}
            for txn_id, delivery_ids in enlisted.items():
                link.settle(delivery_ids, TransactionalState(txn_id, ACCEPTED))
        if self._rejected:
            rejected, self._rejected = self._rejected, []
            for delivery_ids, refusal in rejected:
                error = self._carrier.tracking.error_of(refusal, self._entity.name)
                link.settle(delivery_ids, Rejected(error))
                if isinstance(refusal, EntityNotFound | EntityDisabled):
                    # Deleted while open: what has its name now is another entity. Or it takes
                    # none for now, and who wants to send attaches anew.
                    self._carrier.detach(self, error)
                    return
        credit = CREDIT - len(self._sizes)
        if credit - link.credit >= CREDIT_STEP:
            link.grant(credit)

    def close(self) -> None:
        """What was sent is stored all the same; only its answers have nowhere to go."""
        self._is_over = True
