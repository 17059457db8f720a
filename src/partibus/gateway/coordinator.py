"""The link on which a client declares and discharges transactions (SPEC 5.1).

A declare is answered with an id, a discharge when the commit is durable. Transactions that are
open when the link ends are rolled back. What is done in them comes on other links (publisher,
consumer, requests) and waits in gateway.transactions.
"""

from __future__ import annotations

from partibus.broker.access import Right
from partibus.broker.errors import (
    InvalidOperation,
    MessageUndecodable,
    NotImplementedHere,
    QuotaExceeded,
    Refusal,
    TransactionInDoubt,
    Unauthorized,
)
from partibus.broker.transactions import Transaction
from partibus.engine.delivery import Delivery
from partibus.engine.link import ReceiverLink
from partibus.gateway.addresses import MANAGEMENT
from partibus.gateway.bindings import Binding, Carrier
from partibus.runtime.catalog_changes import change_rules
from partibus.runtime.discharging import discharge
from partibus.runtime.node import SUBQUEUES
from partibus.wire.codec import decode
from partibus.wire.composites import composed
from partibus.wire.errors import DecodeError
from partibus.wire.performatives import ACCEPTED, Declare, Declared, Discharge, Rejected
from partibus.wire.values import Described

# What counts of links to the coordinator and of commands on one of them.
COORDINATOR_PATH = "$coordinator"
COORDINATORS_MAX = 256
COORDINATOR_CREDIT = 100
COMMAND_BYTES_MAX = 4_096
_VALUE = 0x77


def bind_coordinator(carrier: Carrier, link: ReceiverLink) -> CoordinatorLink:
    """Answer the attach of a link to the coordinator.

    No token is asked for: the Java client opens it first. What is done in a transaction comes on
    links and requests that have to show theirs.
    """
    profile = carrier.node.snapshot.settings.profile
    if not profile.has_advanced_features:
        raise InvalidOperation(f"Transactions are not available in the profile {profile.name}.")
    if carrier.count_at(COORDINATOR_PATH) >= COORDINATORS_MAX:
        raise QuotaExceeded(f"A connection has at most {COORDINATORS_MAX} links to a coordinator.")
    link.message_size_max = COMMAND_BYTES_MAX
    link.accept(max_message_size=COMMAND_BYTES_MAX)
    return CoordinatorLink(carrier, link)


class CoordinatorLink(Binding):
    """The receiving end of a client's link to the coordinator."""

    path = COORDINATOR_PATH
    # The links on which things are done have been authorised, each for its own entity.
    right = Right(0)

    def __init__(self, carrier: Carrier, link: ReceiverLink) -> None:
        self.active_ms = carrier.now_ms()
        self._carrier = carrier
        self._link = link
        self._answers: list[tuple[int, object]] = []
        self._is_over = False
        link.grant(COORDINATOR_CREDIT)

    @property
    def link(self) -> ReceiverLink:
        """The engine's link."""
        return self._link

    def deliveries(self, deliveries: list[Delivery]) -> None:
        """Declare and discharge."""
        self.active_ms = self._carrier.now_ms()
        for delivery in deliveries:
            try:
                self._obey(delivery)
            except Refusal as refusal:
                self._answer(delivery, Rejected(self._carrier.tracking.error_of(refusal)))
        self._carrier.wake(self)

    def _obey(self, delivery: Delivery) -> None:
        command = read_command(delivery.payload)
        if isinstance(command, Discharge):
            self._discharge(delivery, command)
            return
        if delivery.settled:
            # Nobody would learn its id.
            text = "A declare must not be settled: its outcome is the transaction's id."
            error = self._carrier.tracking.error("amqp:not-allowed", text)
            self._carrier.detach(self, error)
            return
        if command.global_id is not None:
            raise NotImplementedHere("Distributed transactions (global-id) are not available.")
        self._answer(delivery, Declared(self._carrier.transactions.declare(self)))

    def _discharge(self, delivery: Delivery, command: Discharge) -> None:
        transaction = self._carrier.transactions.end(command.txn_id)
        if command.fail:
            self._answer(delivery, ACCEPTED)
            return
        self._authorise(transaction)
        transaction.check()
        # Whoever shuts down waits for it.
        size = max(transaction.size, 1)
        self._carrier.hold(size)

        def done(refusal: Refusal | None) -> None:
            self._carrier.release(size)
            self._carrier.wake(self)
            if refusal is None:
                self._answer(delivery, ACCEPTED)
            elif isinstance(refusal, TransactionInDoubt):
                self._leave_in_doubt(refusal)
            else:
                name = transaction.entity.name if transaction.entity else ""
                error = self._carrier.tracking.error_of(refusal, name)
                self._answer(delivery, Rejected(error))

        node = self._carrier.node
        if transaction.rule_changes:
            changes, now_ms = transaction.rule_changes, self._carrier.now_ms()
            node.change_catalog(lambda catalog: change_rules(catalog, changes, now_ms), done)
        else:
            discharge(node, transaction, done)

    def _authorise(self, transaction: Transaction) -> None:
        """What was done under a token that has ended meanwhile does not happen any more."""
        entity = transaction.entity
        if entity is None:
            return
        claims, now_ms = self._carrier.claims, self._carrier.now_ms()
        may_send = not transaction.has_messages or claims.allows(entity.key, Right.SEND, now_ms)
        # Dead letters are settled by who may have been granted no more than these.
        may_settle = all(
            any(
                claims.allows(f"{key}{suffix}", Right.LISTEN, now_ms) for suffix in ("", *SUBQUEUES)
            )
            for key in transaction.settled
        )
        may_manage = not transaction.rule_changes or claims.allows(
            f"{entity.key}/{MANAGEMENT}", Right.MANAGE, now_ms
        )
        if not (may_send and may_settle and may_manage):
            raise Unauthorized("The token under which the transaction was begun has ended.")

    def _leave_in_doubt(self, refusal: Refusal) -> None:
        """A rejection would say that nothing happened, which nobody knows; so say nothing."""
        if not self._is_over:
            self._carrier.detach(self, self._carrier.tracking.error_of(refusal))

    def _answer(self, delivery: Delivery, state: object) -> None:
        if not delivery.settled:
            self._answers.append((delivery.delivery_id, state))

    def flush(self) -> None:
        """Write the answers that are due, and keep commands coming."""
        answers, self._answers = self._answers, []
        if self._is_over:
            return
        for delivery_id, state in answers:
            self._link.settle([delivery_id], state)
        if self._link.credit <= COORDINATOR_CREDIT // 2:
            self._link.grant(COORDINATOR_CREDIT)

    def close(self) -> None:
        """What was declared here and not discharged is rolled back."""
        self._is_over = True
        self._carrier.transactions.roll_back(self)


def read_command(payload: bytes) -> Declare | Discharge:
    """The command in a message to the coordinator; some clients put other sections before it."""
    position = 0
    try:
        while position < len(payload):
            section, position = decode(payload, position)
            if isinstance(section, Described) and section.descriptor == _VALUE:
                command = composed(section.value)
                if isinstance(command, Declare | Discharge):
                    return command
    except DecodeError as error:
        raise MessageUndecodable(f"The command cannot be read: {error}.") from error
    raise MessageUndecodable("A coordinator takes declare and discharge, each as an AMQP value.")
