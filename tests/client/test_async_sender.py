"""What a sender says on its link and to `$management`, held against SPEC 2.6, 3.9 and 4."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from scripted_service import Answer, ScriptedService

from partibus.client import (
    AsyncClient,
    InvalidOperation,
    LinkLost,
    Message,
    MessageNotFound,
    MessageSizeExceeded,
    MessagingError,
    RetryPolicy,
    ServerBusy,
)
from partibus.client.encoding import decode_message
from partibus.wire.performatives import Error, Modified, Rejected, Released
from partibus.wire.sections import BATCH_FORMAT, split_batch
from partibus.wire.values import Array, Long, UInt, ULong

QUEUE = "orders"
AT = datetime(2030, 1, 1, tzinfo=UTC)
QUICK = RetryPolicy(attempts=3, delay_s=0.01, busy_delay_s=0.01)
BUSY = Rejected(Error("com.microsoft:server-busy", "later"))


def run(service: ScriptedService, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        text = service.connection_string
        async with AsyncClient.from_connection_string(text, retry=QUICK) as client:
            await work(client)

    asyncio.run(main())


def bodies(service: ScriptedService) -> list[str]:
    return [decode_message(each.payload).text for each in service.transfers]


def test_a_token_is_put_before_a_link_is_attached(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        await client.sender(QUEUE).send(Message("x"))

    run(service, work)
    (token,) = service.tokens
    assert token.request.properties["operation"] == "put-token"
    assert token.request.properties["type"] == "servicebus.windows.net:sastoken"
    assert token.request.properties["name"] == "sb://127.0.0.1/orders"
    assert str(token.request.body).startswith("SharedAccessSignature sr=sb%3A%2F%2F127.0.0.1%2F")
    addresses = [each.target.address for each in service.attaches if not each.role]
    assert addresses == ["$cbs", QUEUE]


def test_a_batch_is_one_transfer_in_its_own_format(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        await client.sender(QUEUE).send_batch([Message("a"), Message("b")])
        await client.sender(QUEUE).send_batch([])

    run(service, work)
    (transfer,) = service.transfers
    assert transfer.message_format == BATCH_FORMAT
    assert [decode_message(each).text for each in split_batch(transfer.payload)] == ["a", "b"]


def test_the_link_says_how_large_messages_and_batches_may_be(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = lambda attach: {
        "max_message_size": 1_000,
        "properties": {"com.microsoft:max-message-batch-size": ULong(500)},
    }

    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        await sender.send(Message(b"x" * 800))
        with pytest.raises(MessageSizeExceeded, match="1000"):
            await sender.send(Message(b"x" * 1_000))
        with pytest.raises(MessageSizeExceeded, match="500"):
            await sender.send_batch([Message(b"x" * 300), Message(b"x" * 300)])

    run(service, work)
    assert len(service.transfers) == 1


def test_only_what_was_not_accepted_is_sent_again_with_the_same_id(
    service: ScriptedService,
) -> None:
    service.outcomes.extend([Released(), BUSY])

    async def work(client: AsyncClient) -> None:
        await client.sender(QUEUE).send([Message("a"), Message("b"), Message("c")])

    run(service, work)
    assert bodies(service) == ["a", "b", "c", "a", "b"]
    ids = [decode_message(each.payload).message_id for each in service.transfers]
    assert ids[:2] == ids[3:]


def test_attempts_are_bounded(service: ScriptedService) -> None:
    service.outcomes.extend([BUSY] * 3)

    async def work(client: AsyncClient) -> None:
        with pytest.raises(ServerBusy, match="later"):
            await client.sender(QUEUE).send(Message("a"))

    run(service, work)
    assert len(service.transfers) == 3


def test_a_refusal_is_not_tried_again(service: ScriptedService) -> None:
    service.outcomes.append(Rejected(Error("amqp:not-allowed", "never")))

    async def work(client: AsyncClient) -> None:
        with pytest.raises(InvalidOperation, match="never"):
            await client.sender(QUEUE).send(Message("a"))

    run(service, work)
    assert len(service.transfers) == 1


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Rejected(), MessagingError), (Modified(), LinkLost)]
)
def test_nothing_but_accepted_is_accepted(
    service: ScriptedService, outcome: object, kind: type[MessagingError]
) -> None:
    service.outcomes.extend([outcome] * 3)

    async def work(client: AsyncClient) -> None:
        with pytest.raises(kind):
            await client.sender(QUEUE).send(Message("a"))

    run(service, work)


def test_a_message_without_an_answer_is_sent_again_over_a_new_connection(
    service: ScriptedService,
) -> None:
    service.outcomes.append(None)

    async def work(client: AsyncClient) -> None:
        sending = asyncio.create_task(client.sender(QUEUE).send(Message("a")))
        await service.until(lambda: service.transfers)
        await asyncio.to_thread(service.drop)
        await sending

    run(service, work)
    assert bodies(service) == ["a", "a"]
    assert service.connections == 2


def test_a_link_that_idled_out_is_attached_again(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        await sender.send(Message("a"))
        idle = Error("amqp:link:detach-forced", "IdleTimerExpired")
        await asyncio.to_thread(service.detach, QUEUE, idle)
        await sender.send(Message("b"))

    run(service, work)
    assert bodies(service) == ["a", "b"]
    assert service.connections == 1
    assert len(service.attached_to(QUEUE)) == 2


def test_a_message_is_scheduled_and_cancelled_by_its_number(service: ScriptedService) -> None:
    number = (3 << 48) + 7
    service.answers["schedule-message"] = deque(
        [Answer({"sequence-numbers": Array([Long(number)], Long)})]
    )
    missing = Answer(status=404, condition="com.microsoft:message-not-found")
    service.answers["cancel-scheduled-message"] = deque([Answer(), missing])

    async def work(client: AsyncClient) -> None:
        sender = client.sender(QUEUE)
        assert await sender.schedule(Message("later", partition_key="k"), AT) == number
        await sender.cancel_scheduled(number)
        with pytest.raises(MessageNotFound):
            await sender.cancel_scheduled(number)

    run(service, work)
    (asked,) = service.requests("schedule-message")
    assert asked.address == "orders/$management"
    assert asked.request.properties["com.microsoft:server-timeout"] == UInt(60_000)
    body = asked.request.body
    assert isinstance(body, dict)
    (entry,) = body["messages"]
    message = decode_message(entry["message"])
    assert message.scheduled_enqueue_time == AT
    assert entry["message-id"] == message.message_id
    assert entry["partition-key"] == "k"
    cancelled = service.requests("cancel-scheduled-message")[0].request.body
    assert cancelled == {"sequence-numbers": Array([Long(number)], Long)}


def test_a_closed_sender_detaches_its_link(service: ScriptedService) -> None:
    async def work(client: AsyncClient) -> None:
        async with client.sender(QUEUE) as sender:
            await sender.send(Message("a"))

    run(service, work)
    assert service.attached_to(QUEUE)[0].name in service.detached
