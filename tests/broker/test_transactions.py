"""The rules of a transaction, one by one and against a model (T1 to T4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from partibus.broker import transactions
from partibus.broker.descriptions import Entity, QueueDescription
from partibus.broker.errors import (
    EntityDisabled,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    Refusal,
    TransactionRolledBack,
)
from partibus.broker.message import Incoming
from partibus.broker.partitioning import index_of
from partibus.broker.settlement import COMPLETE
from partibus.broker.transactions import Transaction
from partibus.testing.messages import incoming

STORES = 16
PLAIN = Entity(1, 1, "c", QueueDescription("c"), 1, 5)
SPREAD = Entity(2, 1, "p", QueueDescription("p", enable_partitioning=True), 16, 3)


def token(store: int, number: int = 0) -> bytes:
    return store.to_bytes(2, "big") + (1).to_bytes(4, "big") + number.to_bytes(10, "big")


def store_of(key: str) -> int:
    return SPREAD.store_of(index_of(key, 16) + 1, STORES)


def test_a_refused_operation_leaves_the_transaction_as_it_was() -> None:
    transaction = Transaction(STORES)
    with pytest.raises(InvalidOperation):
        transaction.send(SPREAD, [incoming(key="k"), incoming(key="l")], 0)
    assert transaction.is_empty
    assert transaction.began_ms is None
    # It is free for another queue, too.
    transaction.send(PLAIN, [incoming()], 7)
    assert (transaction.store, transaction.partition, transaction.began_ms) == (5, 0, 7)


def test_T3_a_queue_with_sessions_needs_a_session_id() -> None:
    for entity in (PLAIN, SPREAD):
        described = replace(entity.description, requires_session=True)
        with_sessions = replace(entity, description=described)
        transaction = Transaction(STORES)
        with pytest.raises(InvalidOperation, match="SessionId"):
            transaction.send(with_sessions, [incoming(key="k")], 0)
        transaction.send(with_sessions, [incoming(session="s")], 0)


def test_T1_T2_scheduled_messages_keep_to_the_rules_of_the_others() -> None:
    transaction = Transaction(STORES)
    with pytest.raises(InvalidOperation, match="needs a PartitionKey"):
        transaction.schedule(SPREAD, [incoming()], 0)
    scheduling = transaction.schedule(SPREAD, [incoming(key="k")], 0)
    assert not transaction.is_empty
    with pytest.raises(InvalidOperation, match="same key"):
        transaction.send(SPREAD, [incoming(key="l")], 0)
    with pytest.raises(InvalidOperation, match="top-level"):
        transaction.schedule(PLAIN, [incoming()], 0)
    transaction.send(SPREAD, [incoming(key="k") for _ in range(99)], 0)
    with pytest.raises(QuotaExceeded, match="100 messages"):
        transaction.schedule(SPREAD, [incoming(key="k")], 0)
    # As long as nobody knows its number, it cannot be committed.
    with pytest.raises(TransactionRolledBack, match="not been answered"):
        transaction.check()
    scheduling.first = 7
    transaction.check()


def test_scheduled_messages_without_a_number_leave_the_transaction_as_it_was() -> None:
    transaction = Transaction(STORES)
    transaction.withdraw(transaction.schedule(SPREAD, [incoming(key="k")], 0))
    assert (transaction.is_empty, transaction.size) == (True, 0)
    transaction.send(PLAIN, [incoming(b"x")], 0)
    before = transaction.size
    transaction.withdraw(transaction.schedule(PLAIN, [incoming(b"y")], 0))
    assert (transaction.entity, transaction.size) == (PLAIN, before)
    transaction.check()


def test_a_disabled_queue_takes_no_transactional_messages() -> None:
    disabled = replace(PLAIN, description=replace(PLAIN.description, status="SendDisabled"))
    with pytest.raises(EntityDisabled):
        Transaction(STORES).send(disabled, [incoming()], 0)


def test_messages_that_wait_for_the_discharge_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "TRANSACTION_BYTES_MAX", 1000)
    transaction = Transaction(STORES)
    transaction.send(PLAIN, [incoming(bytes(800))], 0)
    with pytest.raises(QuotaExceeded, match="1000 bytes"):
        transaction.send(PLAIN, [incoming(bytes(300))], 0)


def test_settlements_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTION_SETTLEMENTS_MAX", 2)
    transaction = Transaction(STORES)
    transaction.settle(PLAIN, [token(5, 1), token(5, 2)], COMPLETE, 0)
    with pytest.raises(QuotaExceeded):
        transaction.settle(PLAIN, [token(5, 3)], COMPLETE, 0)


def test_a_failed_transaction_says_first_why() -> None:
    transaction = Transaction(STORES)
    transaction.check()
    transaction.fail("one")
    transaction.fail("two")
    with pytest.raises(TransactionRolledBack, match="one"):
        transaction.check()


def test_a_queue_made_again_is_another_entity() -> None:
    transaction = Transaction(STORES)
    transaction.send(PLAIN, [incoming()], 0)
    with pytest.raises(InvalidOperation):
        transaction.send(replace(PLAIN, id=9, incarnation=2), [incoming()], 0)


class TransactionAgainstModel(RuleBasedStateMachine):
    """What may be together: one entity; of a partitioned one, one key and its fragment only."""

    @initialize()
    def begin(self) -> None:
        self.transaction = Transaction(STORES)
        self.entity: Entity | None = None
        self.key: str | None = None
        self.store: int | None = None
        self.sent: list[Incoming] = []
        self.tokens: list[bytes] = []

    @rule(
        entity=st.sampled_from((PLAIN, SPREAD, SPREAD)),
        keys=st.lists(st.sampled_from((None, "a", "b")), min_size=1, max_size=3),
        as_session=st.booleans(),
        repeats=st.sampled_from((1, 1, 1, 20)),
    )
    def send(self, entity: Entity, keys: list[str | None], as_session: bool, repeats: int) -> None:
        messages = [
            incoming(session=key) if as_session else incoming(key=key) for key in keys * repeats
        ]
        wanted = self.key or keys[0]
        allowed = (
            self.entity in (None, entity)
            and len(self.sent) + len(messages) <= 100
            and (entity is PLAIN or (wanted is not None and {*keys} == {wanted}))
        )
        store = PLAIN.home if entity is PLAIN else store_of(wanted or "")
        allowed = allowed and self.store in (None, store)
        try:
            self.transaction.send(entity, messages, 0)
        except Refusal:
            assert not allowed
            return
        assert allowed
        self.entity, self.store = entity, store
        self.key = wanted if entity is SPREAD else None
        self.sent += messages

    @rule(
        entity=st.sampled_from((PLAIN, SPREAD, SPREAD)),
        of=st.sampled_from((None, "a", "b", "c")),
        number=st.integers(0, 5),
        count=st.integers(1, 2),
    )
    def settle(self, entity: Entity, of: str | None, number: int, count: int) -> None:
        store = PLAIN.home if entity is PLAIN or of is None else store_of(of)
        tokens = [token(store, number + step) for step in range(count)]
        is_new = not set(tokens) & set(self.tokens)
        allowed = self.entity in (None, entity) and self.store in (None, store) and is_new
        try:
            self.transaction.settle(entity, tokens, COMPLETE, 0)
        except MessageLockLost:
            assert not is_new
            return
        except Refusal:
            assert not allowed
            return
        assert allowed
        self.entity, self.store = entity, store
        self.tokens += tokens

    @invariant()
    def holds_what_was_let_in(self) -> None:
        transaction = self.transaction
        assert transaction.messages == self.sent
        assert [each for _, tokens in transaction.settlements for each in tokens] == self.tokens
        assert transaction.entity is self.entity
        assert transaction.store == self.store
        if self.sent and self.entity is SPREAD:
            assert self.key is not None
            assert transaction.partition == index_of(self.key, 16) + 1


TestTransactionAgainstModel = TransactionAgainstModel.TestCase
TestTransactionAgainstModel.settings = settings(max_examples=100, stateful_step_count=30)
