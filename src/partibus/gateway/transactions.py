"""The open transactions of one connection, and what has been done in them so far.

Sends and settlements wait here, in memory, until their transaction is discharged. Whoever loses
the link on which it was declared, or takes more than two minutes, loses the transaction: nothing
of it has happened. What may be done in one is decided in broker.transactions.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.descriptions import Entity
from partibus.broker.errors import QuotaExceeded, Refusal, TransactionUnknown
from partibus.broker.message import Incoming
from partibus.broker.settlement import Settlement
from partibus.broker.transactions import TRANSACTION_MS_MAX, RuleChange, Transaction
from partibus.runtime.clock import Timer
from partibus.runtime.node import Node
from partibus.runtime.reserving import reserve_numbers

TRANSACTIONS_OPEN_MAX = 1_000
# Bytes of messages that wait in all open transactions of a connection.
TRANSACTIONS_BYTES_MAX = 64 * 1024 * 1024
TRANSACTION_ID_BYTES = 16

Numbered = Callable[[list[int], Refusal | None], None]


class _Open:
    """A transaction, who declared it, and when it ends by itself."""

    __slots__ = ("owner", "timer", "transaction")

    def __init__(self, owner: object, transaction: Transaction) -> None:
        self.owner = owner
        self.transaction = transaction
        self.timer: Timer | None = None


class Transactions:
    """All transactions that were declared on a connection and not discharged."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: dict[bytes, _Open] = {}
        # Bytes of all their messages.
        self._size = 0

    def declare(self, owner: object) -> bytes:
        """Begin a transaction; returns its id. It ends with its owner."""
        if len(self._open) >= TRANSACTIONS_OPEN_MAX:
            raise QuotaExceeded(
                f"A connection has at most {TRANSACTIONS_OPEN_MAX} open transactions."
            )
        txn_id = self._node.entropy.take(TRANSACTION_ID_BYTES)
        self._open[txn_id] = _Open(owner, Transaction(self._node.stores))
        return txn_id

    def send(self, txn_id: bytes, entity: Entity, messages: list[Incoming]) -> None:
        """Send as part of a transaction."""
        found = self._find(txn_id)
        self._check_size()
        before = found.transaction.size
        found.transaction.send(entity, messages, self._node.clock.now_ms())
        self._size += found.transaction.size - before
        self._watch(txn_id, found)

    def transfer(
        self, txn_id: bytes, via: Entity, destination: Entity, messages: list[Incoming]
    ) -> None:
        """Send via an entity as part of a transaction."""
        found = self._find(txn_id)
        self._check_size()
        before = found.transaction.size
        found.transaction.transfer(via, destination, messages, self._node.clock.now_ms())
        self._size += found.transaction.size - before
        self._watch(txn_id, found)

    def _check_size(self) -> None:
        if self._size > TRANSACTIONS_BYTES_MAX:
            raise QuotaExceeded(
                f"The open transactions of this connection hold {self._size} bytes; "
                f"no more than {TRANSACTIONS_BYTES_MAX} are allowed."
            )

    def schedule(
        self, txn_id: bytes, entity: Entity, messages: list[Incoming], done: Numbered
    ) -> None:
        """Schedule as part of a transaction; done(the numbers they will have)."""
        found = self._find(txn_id)
        self._check_size()
        transaction = found.transaction
        before = transaction.size
        scheduling = transaction.schedule(entity, messages, self._node.clock.now_ms())
        self._size += transaction.size - before
        self._watch(txn_id, found)

        def reserved(numbers: list[int], refusal: Refusal | None) -> None:
            if self._open.get(txn_id) is not found:
                done([], TransactionUnknown("The transaction has ended meanwhile."))
                return
            if refusal is not None:
                before = transaction.size
                transaction.withdraw(scheduling)
                self._size += transaction.size - before
            done(numbers, refusal)

        reserve_numbers(self._node, transaction, scheduling, reserved)

    def change_rule(self, txn_id: bytes, subscription: Entity, change: RuleChange) -> None:
        """Change a rule as part of a transaction."""
        found = self._find(txn_id)
        found.transaction.change_rule(subscription, change, self._node.clock.now_ms())
        self._watch(txn_id, found)

    def settle(
        self, txn_id: bytes, entity: Entity, tokens: list[bytes], settlement: Settlement
    ) -> None:
        """Settle as part of a transaction."""
        found = self._find(txn_id)
        found.transaction.settle(entity, tokens, settlement, self._node.clock.now_ms())
        self._watch(txn_id, found)

    def fail(self, txn_id: bytes, reason: str) -> None:
        """Something that the client takes for done was refused: no commit any more."""
        found = self._open.get(txn_id)
        if found is not None:
            found.transaction.fail(reason)

    def end(self, txn_id: bytes) -> Transaction:
        """Take a transaction out, to commit it or to forget it."""
        found = self._find(txn_id)
        self._remove(txn_id)
        return found.transaction

    def roll_back(self, owner: object) -> None:
        """The link on which they were declared is over."""
        for txn_id in [each for each, found in self._open.items() if found.owner is owner]:
            self._remove(txn_id)

    def _find(self, txn_id: bytes) -> _Open:
        found = self._open.get(txn_id)
        if found is None:
            raise TransactionUnknown(
                "The transaction was not declared on this connection, or was discharged already, "
                f"or was rolled back after {TRANSACTION_MS_MAX // 60_000} minutes."
            )
        return found

    def _watch(self, txn_id: bytes, found: _Open) -> None:
        began_ms = found.transaction.began_ms
        if found.timer is None and began_ms is not None:
            found.timer = self._node.clock.call_at(
                began_ms + TRANSACTION_MS_MAX, lambda: self._remove(txn_id)
            )

    def _remove(self, txn_id: bytes) -> None:
        found = self._open.pop(txn_id, None)
        if found is not None:
            self._size -= found.transaction.size
            if found.timer is not None:
                found.timer.cancel()
