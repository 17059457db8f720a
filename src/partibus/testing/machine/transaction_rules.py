"""What clients do in transactions: send and settle together, or not at all."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from partibus.broker.errors import InvalidOperation, MessageLockLost, Refusal
from partibus.broker.fragment import PARTITION_SHIFT
from partibus.broker.settlement import Outcome, Settlement
from partibus.broker.transactions import Transaction
from partibus.testing.machine.plain_rules import BATCH, REASON, Look, as_sent, some_of
from partibus.testing.machine.rules import Bodies, move
from partibus.testing.machine.session_rules import SessionRules
from partibus.testing.machine.sessions import SessionModel
from partibus.testing.machine.stage import STORES

# What is done to the model when the transaction is committed; returns what it touches.
Step = Callable[[SessionModel], Bodies]


class TransactionRules(SessionRules):
    """Rules for one transaction at a time; everything else goes on beside it."""

    @move(9, lambda self: self.transaction is None)
    def declare(self, _: st.DataObject) -> None:
        """Begin a transaction."""
        self.transaction = Transaction(STORES)
        self.sends: list[Step] = []
        self.settlements: list[Step] = []
        # The key of its messages, the partitions of all it touches, what it settles.
        self.keys: set[str | None] = set()
        self.partitions: set[int] = set()
        self.settled: list[tuple[bytes, Outcome]] = []

    @move(
        12,
        lambda self: self.transaction is not None,
        looks=BATCH,
        mixed=st.sampled_from((False, False, True)),
    )
    def send_in_transaction(self, _: st.DataObject, looks: list[Look], mixed: bool) -> None:
        """Send: nothing happens yet."""
        assert self.transaction is not None
        batch = self.batch(looks, mixed=mixed)
        keys = {self.model.key_of(each) for each in batch}
        try:
            self.transaction.send(
                self.real.entity, [as_sent(each) for each in batch], self.model.now_ms
            )
        except InvalidOperation:
            assert self.fragments > 1
            others = self.partitions | {self.real.partition_of(each) for each in keys if each}
            assert None in keys or len(keys | self.keys) > 1 or len(others) > 1
            return
        if self.fragments > 1:
            self.keys |= keys
            assert None not in keys
            assert len(self.keys) == 1
            self.partitions |= {self.real.partition_of(each) for each in keys if each}
        bodies = [each.body for each in batch]

        def carry_out(model: SessionModel) -> Bodies:
            model.send(batch)
            return bodies

        self.sends.append(carry_out)

    @move(
        27,
        lambda self: self.transaction is not None and self.model.locked(),
        outcome=st.sampled_from(Outcome),
    )
    def settle_in_transaction(self, data: st.DataObject, outcome: Outcome) -> None:
        """Settle: nothing happens yet, and locks run on."""
        assert self.transaction is not None
        settled = {token for token, _ in self.settled}
        fresh = [each for each in self.model.locked() if each.token not in settled]
        chosen = some_of(data, fresh or self.model.locked())
        tokens = [each.token for each in chosen]
        partitions = {each.sequence >> PARTITION_SHIFT for each in chosen}
        reason = REASON if outcome is Outcome.DEAD_LETTER else None
        try:
            self.transaction.settle(
                self.real.entity, tokens, Settlement(outcome, reason), self.model.now_ms
            )
        except InvalidOperation:
            assert len(self.partitions | partitions) > 1
            return
        except MessageLockLost:
            assert any(token == done for token in tokens for done, _ in self.settled)
            return
        self.partitions |= partitions
        self.settled += [(token, outcome) for token in tokens]

        def settle(model: SessionModel) -> Bodies:
            held = [model.holder(token) for token in tokens]
            for each in held:
                assert each is not None
                model.settle(each, outcome, reason)
            return [each.body for each in held if each is not None]

        self.settlements.append(settle)

    @property
    def has_something_to_do(self) -> bool:
        """Whether there is a transaction with something in it."""
        return self.transaction is not None and bool(self.sends or self.settlements)

    @move(2, lambda self: self.has_something_to_do)
    def roll_back(self, _: st.DataObject) -> None:
        """Nothing of it happens."""
        self.transaction = None

    @move(8, lambda self: self.has_something_to_do)
    def commit(self, _: st.DataObject) -> None:
        """All of it happens, or nothing."""
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        expected = self.objection()
        after = self.model.copy()
        bodies: list[bytes] = []
        if expected is None:
            for step in self.sends + self.settlements:
                bodies += step(after)
        with self.power(after, bodies):
            refusal = self.real.discharge(transaction)
            if expected is None:
                assert refusal is None
            else:
                assert isinstance(refusal, expected)

    def objection(self) -> type[Refusal] | None:
        """Why the transaction cannot be committed."""
        held = {each.token: each for each in self.model.locked()}
        if any(token not in held for token, _ in self.settled):
            return Refusal
        buries = [held[token] for token, outcome in self.settled if outcome is Outcome.DEAD_LETTER]
        if len(self.partitions) > 1 or any(each.is_dead for each in buries):
            return InvalidOperation
        return None


class QueueMachine(TransactionRules):
    """All of it."""
