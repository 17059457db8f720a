"""Sessions as SPEC 3.13, 4.2 and 6.6 spell them, by a scripted service."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from scripted_service import Answer, ScriptedService

from partibus.client import (
    AsyncClient,
    Client,
    InvalidOperation,
    Message,
    RetryPolicy,
    ServiceTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from partibus.client.encoding import encode_message
from partibus.wire.performatives import Accepted, Attach, Error, Source
from partibus.wire.values import Array, Described, Long, Symbol, Timestamp, UInt, ULong

QUEUE = "orders"
TAG = bytes(range(16))
LOCKED_UNTIL = datetime(2030, 1, 1, tzinfo=UTC)
TICKS = 621_355_968_000_000_000 + int(LOCKED_UNTIL.timestamp()) * 10_000_000
FILTER = "com.microsoft:session-filter"
QUICK = RetryPolicy(attempts=3, delay_s=0.01)


def grant(session_id: object) -> Callable[[Attach], dict[str, Any]]:
    def answer(attach: Attach) -> dict[str, Any]:
        return {
            "source": Source(address=attach.source.address, filter={Symbol(FILTER): session_id}),
            "properties": {Symbol("com.microsoft:locked-until-utc"): Long(TICKS)},
        }

    return answer


def run(service: ScriptedService, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        text = service.connection_string
        async with AsyncClient.from_connection_string(text, retry=QUICK) as client:
            await work(client)

    asyncio.run(main())


def test_a_session_is_accepted_by_its_id(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s-1")

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s-1", timeout=7)
        assert session.session_id == "s-1"
        assert session.locked_until == LOCKED_UNTIL

    run(service, work)
    (attach,) = service.attached_to(QUEUE)
    assert attach.source.filter == {FILTER: "s-1"}
    assert all(type(key) is Symbol for key in attach.source.filter)
    assert attach.properties == {"com.microsoft:timeout": UInt(7_000)}
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (0, 1)


@pytest.mark.parametrize("given", ["s-9", Described(ULong(0x137000000C), "s-9")])
def test_the_next_session_is_asked_for_by_null_and_told_by_the_service(
    service: ScriptedService, given: object
) -> None:
    service.attach_answers[QUEUE] = grant(given)

    async def work(client: AsyncClient) -> None:
        assert (await client.accept_session(QUEUE)).session_id == "s-9"

    run(service, work)
    (attach,) = service.attached_to(QUEUE)
    assert attach.source.filter == {FILTER: None}


def test_no_session_in_time_is_an_answer_and_not_tried_again(service: ScriptedService) -> None:
    error = Error("com.microsoft:timeout", "none")
    service.refusals[QUEUE] = deque([error, error])

    async def work(client: AsyncClient) -> None:
        with pytest.raises(ServiceTimeout):
            await client.accept_session(QUEUE, timeout=1)

    run(service, work)
    assert len(service.attached_to(QUEUE)) == 1


def test_a_session_that_somebody_has_cannot_be_locked(service: ScriptedService) -> None:
    service.refusals[QUEUE] = deque([Error("com.microsoft:session-cannot-be-locked", "taken")])

    async def work(client: AsyncClient) -> None:
        with pytest.raises(SessionCannotBeLocked):
            await client.accept_session(QUEUE, "s")

    run(service, work)


def test_a_link_without_a_session_is_no_session(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant(None)

    async def work(client: AsyncClient) -> None:
        with pytest.raises(InvalidOperation):
            await client.accept_session(QUEUE)

    run(service, work)


def test_state_is_kept_fetched_and_cleared(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")
    service.answers["get-session-state"] = deque(
        [Answer({"session-state": None}), Answer({"session-state": b"three"})]
    )

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s")
        assert await session.state() is None
        await session.set_state("three")
        assert await session.state() == b"three"
        await session.set_state(None)

    run(service, work)
    link_name = service.attached_to(QUEUE)[0].name
    for asked in service.asked:
        assert asked.address == "orders/$management"
        assert asked.request.properties["associated-link-name"] == link_name
    assert [each.request.body for each in service.requests("set-session-state")] == [
        {"session-id": "s", "session-state": b"three"},
        {"session-id": "s", "session-state": None},
    ]


def test_a_session_lock_is_renewed(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")
    until = datetime(2031, 1, 1, tzinfo=UTC)
    answer = Answer({"expiration": Timestamp(int(until.timestamp() * 1000))})
    service.answers["renew-session-lock"] = deque([answer])

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s")
        assert await session.renew() == until
        assert session.locked_until == until

    run(service, work)


def test_messages_of_a_session_are_received_settled_and_peeked(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")
    payload = encode_message(Message("x", message_id="m", session_id="s"), 0)
    service.deliver(QUEUE, (TAG, payload))
    service.answers["peek-message"] = deque([Answer({"messages": [{"message": payload}]})])

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s")
        (message,) = await session.receive()
        assert message.session_id == "s"
        await session.complete(message)
        (peeked,) = await session.peek()
        assert peeked.lock_token is None

    run(service, work)
    assert [type(each) for each in service.settled] == [Accepted]
    (asked,) = service.requests("peek-message")
    assert isinstance(asked.request.body, dict)
    assert asked.request.body["session-id"] == "s"


def test_a_lost_session_stays_lost_for_everything(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")
    service.deliver(QUEUE, (TAG, encode_message(Message("x"), 0)))

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s")
        (message,) = await session.receive()
        waiting = asyncio.create_task(session.receive())
        error = Error("com.microsoft:session-lock-lost", "expired")
        await asyncio.to_thread(service.detach, QUEUE, error)
        with pytest.raises(SessionLockLost, match="expired"):
            await waiting
        for lost in (session.complete(message), session.state(), session.renew()):
            with pytest.raises(SessionLockLost):
                await lost

    run(service, work)
    assert service.asked == []


def test_a_session_is_lost_with_its_connection(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")

    async def work(client: AsyncClient) -> None:
        session = await client.accept_session(QUEUE, "s")
        await asyncio.to_thread(service.drop)
        with pytest.raises(SessionLockLost):
            await session.receive()

    run(service, work)


def test_sessions_are_listed_page_by_page(service: ScriptedService) -> None:
    pages = [["a", "b"], ["c"]]
    answers = [Answer({"skip": 0, "sessions-ids": Array(list(page), str)}) for page in pages]
    none = Answer(status=204, condition="com.microsoft:session-not-found")
    service.answers["get-message-sessions"] = deque([*answers, none])

    async def work(client: AsyncClient) -> None:
        assert await client.list_sessions(QUEUE) == ["a", "b", "c"]

    run(service, work)
    skips = [each.request.body["skip"] for each in service.asked]  # type: ignore[index]
    assert skips == [0, 2, 3]


def test_a_blocking_session_does_the_same(service: ScriptedService) -> None:
    service.attach_answers[QUEUE] = grant("s")
    service.deliver(QUEUE, (TAG, encode_message(Message("x"), 0)))
    service.answers["get-session-state"] = deque([Answer({"session-state": b"1"})])
    with (
        Client.from_connection_string(service.connection_string) as client,
        client.accept_session(QUEUE, "s") as session,
    ):
        assert (session.session_id, session.locked_until) == ("s", LOCKED_UNTIL)
        (message,) = session.receive()
        session.complete(message)
        session.set_state(b"1")
        assert session.state() == b"1"
    assert service.attached_to(QUEUE)[0].name in service.detached
