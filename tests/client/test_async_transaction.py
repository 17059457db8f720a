"""Transactions as SPEC 5.1 spells them, by a scripted service; on our broker in test_examples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from scripted_service import TXN_ID, Answer, ScriptedService

from partibus.client import (
    AsyncClient,
    Client,
    InvalidOperation,
    Message,
    MessageLockLost,
    RetryPolicy,
    TransactionInDoubt,
    TransactionRolledBack,
    TransactionUnknown,
)
from partibus.client.encoding import encode_message
from partibus.wire.performatives import (
    ACCEPTED,
    Declare,
    Discharge,
    Error,
    Rejected,
    TransactionalState,
)
from partibus.wire.values import Array, Long

QUEUE = "orders"
TAG = bytes(range(16))
AT = datetime(2030, 1, 1, tzinfo=UTC)
QUICK = RetryPolicy(attempts=3, delay_s=0.01)


def run(service: ScriptedService, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        text = service.connection_string
        async with AsyncClient.from_connection_string(text, retry=QUICK) as client:
            await work(client)

    asyncio.run(main())


def deliver(service: ScriptedService) -> None:
    service.deliver(QUEUE, (TAG, encode_message(Message("x", message_id="m"), 0)))


def test_what_is_done_in_a_transaction_carries_its_id_and_then_it_is_discharged(
    service: ScriptedService,
) -> None:
    deliver(service)
    service.answers["schedule-message"] = deque([Answer({"sequence-numbers": Array([7], Long)})])

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        (message,) = await receiver.receive()
        sender = client.sender(QUEUE)
        async with client.transaction():
            await sender.send(Message("one", partition_key="k"))
            await sender.send_batch([Message("two", partition_key="k")])
            assert await sender.schedule(Message("three", partition_key="k"), AT) == 7
            await receiver.complete(message)
            assert service.coordinated == [Declare()]
        assert service.coordinated == [Declare(), Discharge(TXN_ID, False)]
        await sender.send(Message("outside"))

    run(service, work)
    in_it = TransactionalState(TXN_ID)
    assert [each.state for each in service.transfers] == [in_it, in_it, None]
    assert service.requests("schedule-message")[0].delivery.state == in_it
    assert service.settled == [TransactionalState(TXN_ID, ACCEPTED)]
    (attach,) = service.attached_to("coordinator")
    assert attach.role is False
    assert attach.snd_settle_mode == 0


def test_an_exception_rolls_back(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        async with client.transaction():
            await client.sender(QUEUE).send(Message("x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(service, work)
    assert service.coordinated[-1] == Discharge(TXN_ID, True)


def test_a_refused_operation_is_told_and_rolls_back(service: ScriptedService) -> None:
    service.outcomes.append(Rejected(Error("amqp:not-allowed", "a key is needed")))

    async def work(client: AsyncClient) -> None:
        with pytest.raises(InvalidOperation, match="a key is needed"):
            async with client.transaction():
                await client.sender(QUEUE).send(Message("x"))

    run(service, work)
    assert service.coordinated == [Declare(), Discharge(TXN_ID, True)]


def test_a_transaction_in_which_nothing_is_done_is_never_declared(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        async with client.transaction():
            pass

    run(service, work)
    assert service.connections == 0


def test_a_transaction_can_be_named_instead_of_being_around(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        async with client.transaction(ambient=False) as transaction:
            await sender.send(Message("outside"))
            await sender.send(Message("inside"), transaction=transaction)

    run(service, work)
    assert [each.state for each in service.transfers] == [None, TransactionalState(TXN_ID)]


def test_a_transaction_is_its_own_client_s(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        text = service.connection_string
        async with (
            AsyncClient.from_connection_string(text) as other,
            client.transaction() as transaction,
        ):
            await other.sender(QUEUE).send(Message("outside"))
            with pytest.raises(ValueError, match="another client"):
                await other.sender(QUEUE).send(Message("x"), transaction=transaction)

    run(service, work)
    assert [each.state for each in service.transfers] == [None]


def test_a_commit_that_is_refused_is_told(service: ScriptedService) -> None:
    service.discharge_answer = Rejected(Error("com.microsoft:message-lock-lost", "too late"))

    async def work(client: AsyncClient) -> None:
        with pytest.raises(MessageLockLost, match="too late"):
            async with client.transaction():
                await client.sender(QUEUE).send(Message("x"))

    run(service, work)


def test_a_commit_whose_answer_is_lost_is_in_doubt(service: ScriptedService) -> None:
    service.drops_on_discharge = True

    async def work(client: AsyncClient) -> None:
        with pytest.raises(TransactionInDoubt):
            async with client.transaction():
                await client.sender(QUEUE).send(Message("x"))

    run(service, work)


def test_a_transaction_is_lost_with_its_connection_and_nothing_is_sent_outside_it(
    service: ScriptedService,
) -> None:
    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        async with client.transaction():
            await sender.send(Message("first"))
            await asyncio.to_thread(service.drop)
            await sender.send(Message("second"))

    with pytest.raises(TransactionRolledBack):
        run(service, work)
    assert len(service.transfers) == 1


def test_a_transaction_that_has_ended_takes_nothing_more(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        async with client.transaction() as transaction:
            await sender.send(Message("x"))
            await transaction.commit()
            with pytest.raises(TransactionUnknown):
                await sender.send(Message("y"))
        with pytest.raises(TransactionUnknown):
            await transaction.rollback()

    run(service, work)
    assert service.coordinated == [Declare(), Discharge(TXN_ID, False)]


def test_send_via_names_the_destination_and_shows_tokens_for_both(
    service: ScriptedService,
) -> None:
    deliver(service)

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        (message,) = await receiver.receive()
        async with client.transaction():
            await client.sender("archive", via=QUEUE).send(Message("moved", partition_key="k"))
            await receiver.complete(message)

    run(service, work)
    (attach,) = [each for each in service.attached_to(QUEUE) if not each.role]
    assert attach.properties == {"com.microsoft:transfer-destination-address": "archive"}
    names = {each.request.properties["name"] for each in service.tokens}
    assert names == {"sb://127.0.0.1/orders", "sb://127.0.0.1/archive"}


def test_a_blocking_transaction_is_around_what_its_thread_does(service: ScriptedService) -> None:
    deliver(service)
    with Client.from_connection_string(service.connection_string) as client:
        receiver, sender = client.receiver(QUEUE), client.sender(QUEUE)
        (message,) = receiver.receive()
        with client.transaction() as transaction:
            sender.send(Message("inside"))
            sender.send(Message("inside too"), transaction=transaction)
            receiver.complete(message)
        sender.send(Message("outside"))
        with pytest.raises(ZeroDivisionError):
            _fail(client)
    in_it = TransactionalState(TXN_ID)
    assert [each.state for each in service.transfers] == [in_it, in_it, None, in_it]
    assert service.settled == [TransactionalState(TXN_ID, ACCEPTED)]
    assert [type(each) for each in service.coordinated] == [Declare, Discharge] * 2
    # Both were controlled over one link.
    assert len(service.attached_to("coordinator")) == 1


def _fail(client: Client) -> None:
    with client.transaction():
        client.sender(QUEUE).send(Message("never"))
        raise ZeroDivisionError
