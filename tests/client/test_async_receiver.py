"""What a receiver says on its link and to `$management`, held against SPEC 3.9 to 3.12 and 4."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from scripted_service import Answer, ScriptedService

from partibus.client import (
    AsyncClient,
    Client,
    InvalidOperation,
    MalformedMessage,
    Message,
    MessageLockLost,
    MessageNotFound,
    NotSupported,
    RetryPolicy,
)
from partibus.client.encoding import encode_message
from partibus.wire.performatives import ACCEPTED, Error, Modified, Rejected
from partibus.wire.sections import delivery
from partibus.wire.values import Array, Int, Long, Symbol, UInt

QUEUE = "orders"
TOKEN = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
QUICK = RetryPolicy(attempts=3, delay_s=0.01, busy_delay_s=0.01)


def run(service: ScriptedService, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        text = service.connection_string
        async with AsyncClient.from_connection_string(text, retry=QUICK) as client:
            await work(client)

    asyncio.run(main())


def message(body: str, number: int = 1) -> bytes:
    bare = encode_message(Message(body, message_id=body), 0)
    return delivery(
        bare, b"", 0, delivery_count=0, ttl_ms=None, sequence_number=number,
        enqueued_time_ms=0, enqueue_sequence_number=number,
    )  # fmt: skip


def tag(number: int) -> bytes:
    return UUID(int=number).bytes_le


def test_peek_lock_asks_for_the_modes_that_mean_it(service: ScriptedService) -> None:
    service.deliver(QUEUE, (TOKEN.bytes_le, message("a")))

    async def work(client: AsyncClient) -> None:
        (received,) = await client.receiver(QUEUE).receive()
        # The tag is the token in .NET's order of bytes.
        assert received.lock_token == TOKEN

    run(service, work)
    (attach,) = service.attached_to(QUEUE)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (0, 1)
    assert attach.source.filter is None


def test_receive_and_delete_asks_for_settled_messages(service: ScriptedService) -> None:
    service.deliver(QUEUE, (TOKEN.bytes_le, message("a")))

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE, mode="receive-and-delete")
        (received,) = await receiver.receive()
        assert received.lock_token is None
        with pytest.raises(InvalidOperation):
            await receiver.abandon(received)

    run(service, work)
    (attach,) = service.attached_to(QUEUE)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (1, 0)


@pytest.mark.parametrize(
    ("sub_queue", "address"),
    [
        ("dead-letter", "orders/$DeadLetterQueue"),
        ("transfer-dead-letter", "orders/$Transfer/$DeadLetterQueue"),
    ],
)
def test_a_sub_queue_has_its_own_address_and_its_entity_s_token(
    service: ScriptedService, sub_queue: str, address: str
) -> None:
    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE, sub_queue=sub_queue)  # type: ignore[arg-type]
        assert await receiver.receive(timeout=0.01) == []
        await receiver.peek()

    service.answers["peek-message"] = deque([Answer(status=204)])
    run(service, work)
    assert len(service.attached_to(address)) == 1
    assert service.asked[0].address == f"{address}/$management"
    assert [each.request.properties["name"] for each in service.tokens] == ["sb://127.0.0.1/orders"]


def test_every_settlement_is_the_outcome_that_means_it(service: ScriptedService) -> None:
    service.deliver(QUEUE, *((tag(n), message(str(n))) for n in range(1, 6)))

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        messages = await receiver.receive(5)
        assert len(messages) == 5
        await receiver.complete(messages[0])
        await receiver.abandon(messages[1], {"a": 1})
        await receiver.defer(messages[2])
        await receiver.dead_letter(messages[3], "reason", "text", {"b": True})
        await receiver.dead_letter(messages[4])

    run(service, work)
    completed, abandoned, deferred, dead, plain = service.settled
    assert completed == ACCEPTED
    assert abandoned == Modified(message_annotations={Symbol("a"): 1})
    assert deferred == Modified(undeliverable_here=True)
    told = {"DeadLetterReason": "reason", "DeadLetterErrorDescription": "text", "b": True}
    assert dead == Rejected(Error("com.microsoft:dead-letter", None, told))
    assert plain == Rejected(Error("com.microsoft:dead-letter"))


def test_a_settlement_that_is_refused_is_told(service: ScriptedService) -> None:
    service.deliver(QUEUE, (TOKEN.bytes_le, message("a")))
    service.settlement_answer = Rejected(Error("com.microsoft:message-lock-lost", "late"))

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        (received,) = await receiver.receive()
        with pytest.raises(MessageLockLost, match="late"):
            await receiver.complete(received)

    run(service, work)


def test_when_the_link_is_gone_the_token_is_settled_by_request(service: ScriptedService) -> None:
    service.deliver(QUEUE, (TOKEN.bytes_le, message("a")))

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        (received,) = await receiver.receive()
        await asyncio.to_thread(service.drop)
        await receiver.dead_letter(received, "reason", "text", {"b": True})

    run(service, work)
    (asked,) = service.requests("update-disposition")
    assert asked.request.body == {
        "disposition-status": "suspended",
        "lock-tokens": Array([TOKEN], UUID),
        "deadletter-reason": "reason",
        "deadletter-description": "text",
        "properties-to-modify": {"b": True},
    }


def test_a_deferred_message_is_received_by_number_and_settled_by_request(
    service: ScriptedService,
) -> None:
    found = Answer({"messages": [{"lock-token": TOKEN, "message": message("a", 9)}]})
    missing = Answer(status=404, condition="com.microsoft:message-not-found")
    service.answers["receive-by-sequence-number"] = deque([found, missing])

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        (received,) = await receiver.receive_deferred([9])
        assert (received.sequence_number, received.lock_token) == (9, TOKEN)
        await receiver.complete(received)
        with pytest.raises(MessageNotFound):
            await receiver.receive_deferred([9])

    run(service, work)
    assert service.requests("receive-by-sequence-number")[0].request.body == {
        "sequence-numbers": Array([Long(9)], Long),
        "receiver-settle-mode": UInt(1),
    }
    (settled,) = service.requests("update-disposition")
    assert settled.request.body == {
        "disposition-status": "completed",
        "lock-tokens": Array([TOKEN], UUID),
    }


def test_browsing_goes_on_behind_the_last_number_until_nothing_comes(
    service: ScriptedService,
) -> None:
    numbers = [[1, 2], [(1 << 48) + 1], [(2 << 48) + 5]]
    pages = [
        Answer({"messages": [{"message": message(str(n), n)} for n in page]}) for page in numbers
    ]
    service.answers["peek-message"] = deque([*pages, Answer(status=204)])

    async def work(client: AsyncClient) -> None:
        seen = [each.sequence_number async for each in client.receiver(QUEUE).browse(page=50)]
        assert seen == [number for page in numbers for number in page]

    run(service, work)
    asked = [each.request.body for each in service.requests("peek-message")]
    assert [body["from-sequence-number"] for body in asked] == [  # type: ignore[index]
        0, 3, (1 << 48) + 2, (2 << 48) + 6,
    ]  # fmt: skip
    assert {body["message-count"] for body in asked} == {Int(50)}  # type: ignore[index]
    # Looking attaches no receiver.
    assert service.attached_to(QUEUE) == []


def test_an_operation_that_the_service_has_not_is_told(service: ScriptedService) -> None:
    service.answers["peek-message"] = deque([Answer(status=501, condition="amqp:not-implemented")])

    async def work(client: AsyncClient) -> None:
        with pytest.raises(NotSupported):
            await client.receiver(QUEUE).peek()

    run(service, work)


def test_credit_that_was_not_used_is_taken_back(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        assert await receiver.receive(10, timeout=0.01) == []
        # Nobody asks: this stays with the service, and goes to who asks next.
        await asyncio.to_thread(service.deliver, QUEUE, (tag(1), message("a")))
        assert len(service.waiting[QUEUE]) == 1
        assert [each.text for each in await receiver.receive()] == ["a"]

    run(service, work)


def test_a_receive_goes_on_when_the_connection_breaks(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        waiting = asyncio.create_task(receiver.receive(timeout=20))
        await service.until(lambda: service.attached_to(QUEUE))
        await asyncio.to_thread(service.drop)
        await asyncio.to_thread(service.deliver, QUEUE, (tag(1), message("a")))
        assert [each.text for each in await waiting] == ["a"]

    run(service, work)
    assert service.connections == 2


def test_a_message_that_cannot_be_read_is_told_and_disturbs_nobody(
    service: ScriptedService,
) -> None:
    service.deliver(QUEUE, (tag(1), b"\x00\x53\x72\x40"), (tag(2), message("good")))

    async def work(client: AsyncClient) -> None:
        receiver = client.receiver(QUEUE)
        with pytest.raises(MalformedMessage):
            await receiver.receive(10)
        assert [each.text for each in await receiver.receive()] == ["good"]

    run(service, work)


def test_a_blocking_receiver_looks_and_iterates_too(service: ScriptedService) -> None:
    service.answers["peek-message"] = deque(
        [Answer({"messages": [{"message": message("a")}]}), Answer(status=204)]
    )
    service.deliver(QUEUE, (tag(1), message("b")), (tag(2), message("c")))
    with Client.from_connection_string(service.connection_string) as client:
        receiver = client.receiver(QUEUE, max_wait=0.05)
        assert [each.text for each in receiver.browse()] == ["a"]
        assert [each.text for each in receiver] == ["b", "c"]
