"""The rules of a transaction: what may be done together, and how much of it (SPEC 1.10, 5.2).

A transaction gathers sends and settlements of one entity; nothing of it happens before it is
discharged, and then all of it does, in one commit. On a partitioned entity that needs one
fragment, so all messages must have one and the same key. An operation that breaks a rule is
refused alone: the transaction stays as it was. Who asks, and who commits, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from partibus.broker.descriptions import Entity
from partibus.broker.durations import MINUTE_MS
from partibus.broker.errors import (
    EntityDisabled,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    TransactionRolledBack,
)
from partibus.broker.message import Incoming
from partibus.broker.partitioning import index_of, key_of
from partibus.broker.passages import via_key_of
from partibus.broker.rule_descriptions import RuleDescription
from partibus.broker.settlement import Settlement

# From the first operation on.
TRANSACTION_MS_MAX = 2 * MINUTE_MS
TRANSACTION_MESSAGES_MAX = 100
TRANSACTION_SETTLEMENTS_MAX = 1_000
# Messages wait in the gateway's memory until the transaction is discharged.
TRANSACTION_BYTES_MAX = 32 * 1024 * 1024

# The store comes first in a lock token (broker.fragment).
_STORE_BYTES = 2


class Scheduling:
    """Messages of one request to schedule, and the numbers that were reserved for them."""

    __slots__ = ("first", "life", "messages")

    def __init__(self, messages: list[Incoming]) -> None:
        self.messages = messages
        # The first position, and in whose memory it is reserved; 0 until it is known.
        self.first = 0
        self.life = b""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule that a subscription of a topic gets, or loses."""

    topic: str
    subscription: str
    name: str
    # None: it goes.
    rule: RuleDescription | None


class Transaction:
    """Operations that wait to happen together, in a namespace of so many stores."""

    __slots__ = (
        "_failure",
        "_key",
        "_stores",
        "_tokens",
        "began_ms",
        "entity",
        "messages",
        "partition",
        "rule_changes",
        "scheduled",
        "settled",
        "settlements",
        "size",
        "store",
        "transfers",
    )

    def __init__(self, stores: int) -> None:
        self._stores = stores
        self.entity: Entity | None = None
        # Where everything goes; None until an operation decides it.
        self.partition: int | None = None
        self.store: int | None = None
        self._key: str | None = None
        self.messages: list[Incoming] = []
        # Messages for other entities, by id and incarnation, through the transfer queue.
        self.transfers: list[tuple[tuple[int, int], list[Incoming]]] = []
        self.scheduled: list[Scheduling] = []
        self.settlements: list[tuple[Settlement, list[bytes]]] = []
        # The entities whose messages are settled: a topic may have several.
        self.settled: dict[str, None] = {}
        # Rules are changed in the catalog, messages in a store: one transaction does either.
        self.rule_changes: list[RuleChange] = []
        self._tokens: set[bytes] = set()
        self.size = 0
        # When the first operation came.
        self.began_ms: int | None = None
        self._failure = ""

    def send(self, entity: Entity, messages: list[Incoming], now_ms: int) -> None:
        """Add a message, or a batch; all of it or nothing."""
        size = self._check_room(entity, messages)
        self._bind(entity, messages, now_ms)
        self.messages += messages
        self.size += size

    def schedule(self, entity: Entity, messages: list[Incoming], now_ms: int) -> Scheduling:
        """Add messages that become active later; their numbers are still to be reserved."""
        size = self._check_room(entity, messages)
        self._bind(entity, messages, now_ms)
        scheduling = Scheduling(messages)
        self.scheduled.append(scheduling)
        self.size += size
        return scheduling

    def withdraw(self, scheduling: Scheduling) -> None:
        """No numbers could be had for them: they are not part of it."""
        self.scheduled.remove(scheduling)
        self.size -= _size_of(scheduling.messages)
        if self.is_empty:
            # It is free for another entity, and another key, as before.
            self.entity = self.partition = self.store = self._key = None

    def _bind(self, entity: Entity, messages: list[Incoming], now_ms: int) -> None:
        check_sessions(entity, messages)
        detects = entity.description.requires_duplicate_detection
        keys = [key_of(message, detects) for message in messages] if entity.partitioned else []
        self._place(entity, keys, "PartitionKey or SessionId", now_ms)

    def transfer(
        self, via: Entity, destination: Entity, messages: list[Incoming], now_ms: int
    ) -> None:
        """Add a message, or a batch, for another entity: `via` belongs to the transaction."""
        size = self._check_room(via, messages)
        check_sessions(destination, messages)
        keys = [via_key_of(message) for message in messages] if via.partitioned else []
        self._place(via, keys, "ViaPartitionKey", now_ms)
        self.transfers.append(((destination.id, destination.incarnation), messages))
        self.size += size

    def _check_room(self, entity: Entity, messages: list[Incoming]) -> int:
        """Refuse what is too much, or not for this transaction; else the size of the messages."""
        self._check_entity(entity)
        if not entity.description.allows_send:
            raise EntityDisabled(f"'{entity.name}' is {entity.description.status}: it takes none.")
        count = len(self.messages) + sum(len(each) for _, each in self.transfers)
        count += sum(len(each.messages) for each in self.scheduled)
        if count + len(messages) > TRANSACTION_MESSAGES_MAX:
            raise QuotaExceeded(
                f"A transaction has at most {TRANSACTION_MESSAGES_MAX} messages; "
                f"this one has {count}."
            )
        size = _size_of(messages)
        if self.size + size > TRANSACTION_BYTES_MAX:
            raise QuotaExceeded(
                f"A transaction has at most {TRANSACTION_BYTES_MAX} bytes; this one has {self.size}"
                f", and {size} more do not fit."
            )
        return size

    def _place(self, entity: Entity, keys: list[str | None], needed: str, now_ms: int) -> None:
        """Choose the fragment, or find that it is the one that was chosen before."""
        partition = 0
        key = self._key
        if entity.partitioned:
            key = self._same_key(entity, keys, needed)
            partition = entity.partitions[index_of(key, entity.fragments)]
        store = entity.store_of(partition, self._stores)
        self._check_store(store)
        self._key = key
        self.partition = partition
        self._begin(entity, store, now_ms)

    def _same_key(self, entity: Entity, keys: list[str | None], needed: str) -> str:
        """The one key that the messages share with those before (T1, T2, T4)."""
        key = self._key
        for found in keys:
            if found is None:
                raise InvalidOperation(
                    f"'{entity.name}' is partitioned: a message sent in a transaction needs a "
                    f"{needed}."
                )
            if key is not None and found != key:
                raise InvalidOperation(
                    f"A transaction cannot span multiple entities or partitions: on '{entity.name}'"
                    f" all its messages need the same key, '{key}', not '{found}'."
                )
            key = found
        assert key is not None
        return key

    def settle(
        self, entity: Entity, tokens: list[bytes], settlement: Settlement, now_ms: int
    ) -> None:
        """Add the settlement of messages that are held under lock."""
        self._check_entity(entity)
        if len(self._tokens) + len(tokens) > TRANSACTION_SETTLEMENTS_MAX:
            raise QuotaExceeded(
                f"A transaction settles at most {TRANSACTION_SETTLEMENTS_MAX} messages."
            )
        named = set(tokens)
        if len(named) < len(tokens) or not named.isdisjoint(self._tokens):
            raise MessageLockLost("The message has been settled in this transaction already.")
        stores = {int.from_bytes(token[:_STORE_BYTES], "big") for token in tokens}
        if len(stores) != 1:
            raise _spans_partitions(entity)
        store = stores.pop()
        self._check_store(store)
        self._begin(entity, store, now_ms)
        self._tokens |= named
        self.settlements.append((settlement, tokens))
        self.settled[entity.key] = None

    def change_rule(self, subscription: Entity, change: RuleChange, now_ms: int) -> None:
        """Add a change of a subscription's rules (T7)."""
        if subscription.partitioned:
            raise InvalidOperation(
                f"'{subscription.name}' is partitioned: its rules cannot change in a transaction."
            )
        if not self.is_empty:
            raise _changes_rules_only()
        if len(self.rule_changes) >= TRANSACTION_MESSAGES_MAX:
            raise QuotaExceeded(f"A transaction changes at most {TRANSACTION_MESSAGES_MAX} rules.")
        self._check_top_level(subscription)
        self.rule_changes.append(change)
        self.entity = subscription
        if self.began_ms is None:
            self.began_ms = now_ms

    def fail(self, reason: str) -> None:
        """Something that nobody waits for was refused: the transaction cannot be committed."""
        self._failure = self._failure or reason

    def check(self) -> None:
        """Refuse the commit of what has failed."""
        if self._failure:
            raise TransactionRolledBack(f"The transaction was rolled back: {self._failure}")
        if not all(each.first for each in self.scheduled):
            raise TransactionRolledBack(
                "The transaction was rolled back: a request to schedule messages in it has not "
                "been answered yet."
            )

    @property
    def has_messages(self) -> bool:
        """Whether something goes to its partition."""
        return bool(self.messages or self.scheduled or self.transfers)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.has_messages and not self.settlements

    def _check_entity(self, entity: Entity) -> None:
        if self.rule_changes:
            raise _changes_rules_only()
        self._check_top_level(entity)

    def _check_top_level(self, entity: Entity) -> None:
        bound = self.entity
        if bound is not None and bound.top_level != entity.top_level:
            raise InvalidOperation(
                "Transactions cannot span multiple top-level entities: this one belongs to "
                f"'{bound.name}', not to '{entity.name}'."
            )

    def _check_store(self, store: int) -> None:
        """Fragments that share a store are told apart at that store, when all is discharged."""
        if self.store is not None and self.store != store:
            assert self.entity is not None
            raise _spans_partitions(self.entity)

    def _begin(self, entity: Entity, store: int, now_ms: int) -> None:
        if self.entity is None or not entity.topic:
            # What is sent goes to the topic; a subscription's messages are only settled.
            self.entity = entity
        self.store = store
        if self.began_ms is None:
            self.began_ms = now_ms


def check_sessions(entity: Entity, messages: list[Incoming]) -> None:
    """Refuse messages without a session where the entity has only sessions."""
    if entity.description.requires_session and any(each.session is None for each in messages):
        raise InvalidOperation(
            f"'{entity.name}' requires sessions: a message without SessionId cannot be sent."
        )


def _changes_rules_only() -> InvalidOperation:
    return InvalidOperation("A transaction changes rules or moves messages, not both.")


def _size_of(messages: list[Incoming]) -> int:
    return sum(len(message.bare) + len(message.kept) for message in messages)


def _spans_partitions(entity: Entity) -> InvalidOperation:
    return InvalidOperation(
        "A transaction cannot span multiple entities or partitions: on "
        f"'{entity.name}' all its messages must be of one partition."
    )
