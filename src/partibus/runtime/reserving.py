"""Numbers for messages that are scheduled in a transaction, reserved before they are there.

Here are both ends: the gateway's, which asks for numbers while the transaction is open, and the
broker's, which gives them out and takes the messages in when it is discharged. Numbers are reserved
in memory only. A store that was opened anew may have given them to others, so what was reserved in
an earlier life of it is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.errors import Refusal, TransactionRolledBack
from partibus.broker.fragment import PARTITION_SHIFT, Fragment
from partibus.broker.message import Incoming
from partibus.broker.reservations import place, reserve
from partibus.broker.transactions import Scheduling, Transaction
from partibus.runtime.driver import Driver
from partibus.runtime.requests import Reply, Reserve, Reserved
from partibus.runtime.settling import Stores

LIFE_BYTES = 16
_OPENINGS_BYTES = 4

Done = Callable[[list[int], Refusal | None], None]


def reserve_numbers(
    node: Stores, transaction: Transaction, scheduling: Scheduling, done: Done
) -> None:
    """Have sequence numbers reserved for messages of a transaction; done(the numbers)."""
    entity, store, partition = transaction.entity, transaction.store, transaction.partition
    assert entity is not None
    assert store is not None
    assert partition is not None
    count = len(scheduling.messages)

    def answered(reply: Reply) -> None:
        refusal = reply.refusal
        if refusal is not None:
            done([], refusal)
            return
        scheduling.first, scheduling.life = reply.number, reply.content or b""
        high = partition << PARTITION_SHIFT
        done([high | scheduling.first + at for at in range(count)], None)

    request = Reserve(store, entity.id, entity.incarnation, partition, count)
    node.owner(store).call(request, answered)


class Reservations:
    """The numbers that the stores of this node have given out."""

    def __init__(self, life: bytes) -> None:
        # Tells this process from those before it.
        self._life = life

    def life_of(self, driver: Driver) -> bytes:
        """Which life the memory of a store is in."""
        return self._life + driver.lives.to_bytes(_OPENINGS_BYTES, "big")

    def reserve(self, driver: Driver, fragment: Fragment, count: int) -> Reply:
        """Give numbers out."""
        return Reply(number=reserve(fragment, count), content=self.life_of(driver))

    def check(self, driver: Driver, scheduled: list[Reserved]) -> None:
        """Refuse numbers that may be others' by now."""
        life = self.life_of(driver)
        if any(each.life != life for each in scheduled):
            raise TransactionRolledBack(
                "The transaction was rolled back: the store was opened anew, and the sequence "
                "numbers of scheduled messages were lost."
            )


def take_in(
    target: Fragment, messages: list[Incoming], scheduled: list[Reserved], now_ms: int
) -> None:
    """Take in messages of a transaction, all or none; those with a reserved number get it."""
    if not scheduled:
        target.send(messages, now_ms)
        return
    numbers = {
        id(message): each.first + at
        for each in scheduled
        for at, message in enumerate(each.messages)
    }
    target.check_room(sum(len(each.bare) + len(each.kept) for each in messages))
    plain = [message for message in messages if id(message) not in numbers]
    if plain:
        target.send(plain, now_ms)
    for message in messages:
        if id(message) in numbers:
            place(target, numbers[id(message)], message, now_ms)
