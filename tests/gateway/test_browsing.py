"""`$management` by sequence number: the shapes that clients read, and bad requests of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from partibus.broker.access import Right
from partibus.testing.messages import payload, read
from partibus.wire.codec import decode
from partibus.wire.performatives import Modified
from partibus.wire.values import Array, Described, Int, Long, Timestamp, UInt, ULong

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
Make = Callable[..., bytes]
HOUR_MS = 3_600_000


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_queue("q", enable_partitioning=request.param)
    return world.authorised()


def ask(client: Any, name: str, body: object, path: str = "q") -> Any:
    return client.ask(f"{path}/$management", {"operation": f"com.microsoft:{name}"}, body)


def status(answer: Any) -> tuple[int, object]:
    return answer.properties["statusCode"], answer.properties.get("errorCondition")


def send(client: Any, *bodies: bytes) -> None:
    link = client.sender("q")
    for body in bodies:
        link.send(b"t", payload(body, key="k"))
    client.world.settle()


def peek(client: Any, **more: object) -> Any:
    return ask(client, "peek-message",
               {"from-sequence-number": Long(0), "message-count": Int(10), **more})  # fmt: skip


def schedule(client: Any, *messages: bytes) -> Any:
    named: list[object] = [{"message-id": "x", "message": message} for message in messages]
    return ask(client, "schedule-message", {"messages": named})


def later(client: Any, body: bytes = b"s", ms: int = HOUR_MS) -> bytes:
    at = Timestamp(client.world.clock.now_ms() + ms)
    return payload(body, key="k", annotations={"x-opt-scheduled-enqueue-time": at})


def test_a_peek_answers_with_messages_or_with_204(client: Any) -> None:
    empty = peek(client)
    assert (status(empty), empty.body) == ((204, None), {})
    send(client, b"a", b"b")
    found = peek(client).body["messages"]
    messages = [read(each["message"]) for each in found]
    assert [message.body for message in messages] == [b"a", b"b"]
    annotations = messages[0].annotations
    assert (annotations["x-opt-message-state"], type(annotations["x-opt-message-state"])) == (
        0,
        Int,
    )
    assert "x-opt-locked-until" not in annotations
    assert annotations["x-opt-partition-key"] == "k"
    assert len(peek(client, **{"message-count": Int(100_000)}).body["messages"]) == 2


def test_a_peek_without_body_tells_how_large_it_was(client: Any) -> None:
    send(client, bytes(1000))
    (found,) = peek(client, **{"omit-message-body": True}).body["messages"]
    sections: dict[int, Any] = {}
    at = 0
    while at < len(found["message"]):
        section, at = decode(found["message"], at)
        assert isinstance(section, Described)
        sections[int(section.descriptor)] = section.value  # type: ignore[call-overload]
    assert 0x75 not in sections
    assert sections[0x71]["omitted-message-body-size"] > 1000
    assert sections[0x72]["x-opt-sequence-number"]


def test_only_the_messages_of_a_session_are_peeked(client: Any) -> None:
    link = client.sender("q")
    for session in ("a", "b", "a"):
        link.send(b"t", payload(session.encode(), session=session))
    client.world.settle()
    found = peek(client, **{"session-id": "a"}).body["messages"]
    assert [read(each["message"]).body for each in found] == [b"a", b"a"]


def test_scheduled_messages_get_numbers_and_can_be_cancelled(client: Any) -> None:
    answer = schedule(client, later(client, b"1"), later(client, b"2"))
    numbers = answer.body["sequence-numbers"]
    assert isinstance(numbers, Array)
    assert numbers[1] == numbers[0] + 1
    assert numbers.element_type is Long
    body = {"sequence-numbers": Array(list(numbers), Long)}
    states = [read(m["message"]).annotations["x-opt-message-state"]
              for m in peek(client).body["messages"]]  # fmt: skip
    assert states == [2, 2]
    assert status(ask(client, "cancel-scheduled-message", body)) == (200, None)
    again = ask(client, "cancel-scheduled-message", body)
    assert status(again) == (404, "com.microsoft:message-not-found")
    assert str(numbers[0] & (1 << 48) - 1) in again.properties["statusDescription"]
    # Without a time, or with one that is over, a message is there at once.
    assert status(schedule(client, payload(b"now", key="k"))) == (200, None)
    assert status(schedule(client, later(client, b"past", -1))) == (200, None)
    link = client.receiver("q", credit=5, **PEEK_LOCK)
    assert [read(each.payload).body for each in client.deliveries(link)] == [b"now", b"past"]


def test_a_scheduled_message_comes_when_its_time_has_come(client: Any) -> None:
    link = client.receiver("q", credit=5, **PEEK_LOCK)
    client.sender("q").send(b"t", later(client, b"sent", 5_000))
    schedule(client, later(client, b"asked", 6_000))
    client.world.advance(4_900)
    client.world.settle()
    assert client.deliveries(link) == []
    for _ in range(2):
        client.world.advance(1_000)
        client.world.settle()
    assert [read(each.payload).body for each in client.deliveries(link)] == [b"sent", b"asked"]


def test_a_deferred_message_is_received_by_number(client: Any) -> None:
    send(client, b"a")
    link = client.receiver("q", credit=1, **PEEK_LOCK)
    (delivery,) = client.deliveries(link)
    number = read(delivery.payload).sequence
    link.settle([delivery.delivery_id], Modified(undeliverable_here=True), settled=False)
    client.world.settle()
    body = {"sequence-numbers": Array([Long(number)], Long), "receiver-settle-mode": UInt(1)}
    (found,) = ask(client, "receive-by-sequence-number", body).body["messages"]
    message = read(found["message"])
    assert isinstance(found["lock-token"], UUID)
    assert message.annotations["x-opt-locked-until"] > client.world.clock.now_ms()
    assert status(ask(client, "receive-by-sequence-number", body))[0] == 404
    tokens = {"lock-tokens": Array([found["lock-token"]], UUID)}
    assert status(ask(client, "renew-lock", tokens)) == (200, None)
    settled = {**tokens, "disposition-status": "abandoned"}
    assert status(ask(client, "update-disposition", settled)) == (200, None)
    body["receiver-settle-mode"] = UInt(0)
    (found,) = ask(client, "receive-by-sequence-number", body).body["messages"]
    assert read(found["message"]).deliveries == 2
    assert status(peek(client))[0] == 204


NUMBERS = Array([Long(1)], Long)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("peek-message", None),
        ("peek-message", {}),
        ("peek-message", {"from-sequence-number": "1", "message-count": Int(1)}),
        ("peek-message", {"from-sequence-number": Long(1), "message-count": Int(0)}),
        ("peek-message", {"from-sequence-number": Long(1), "message-count": True}),
        ("receive-by-sequence-number", {"sequence-numbers": NUMBERS}),
        ("receive-by-sequence-number", {"receiver-settle-mode": UInt(1)}),
        ("receive-by-sequence-number", {"sequence-numbers": [], "receiver-settle-mode": UInt(1)}),
        ("cancel-scheduled-message", {"sequence-numbers": ["1"]}),
        ("cancel-scheduled-message", {"sequence-numbers": [Long(1)] * 6_000}),
        ("cancel-scheduled-message", {"sequence-numbers": [Long(1), Long(1 << 48)]}),
        ("schedule-message", {"messages": []}),
        ("schedule-message", {"messages": ["x"]}),
        ("schedule-message", {"messages": [{"message": "x"}]}),
        ("schedule-message", {"messages": [{"message": b"\xff"}]}),
        ("batch-delete-messages", {"message-count": Int(1)}),
    ],
)
def test_a_request_that_makes_no_sense_is_400(client: Any, name: str, body: object) -> None:
    answer = ask(client, name, body)
    assert answer.properties["statusCode"] == 400
    assert answer.properties["errorCondition"]
    assert status(peek(client))[0] == 204


def test_a_scheduled_message_may_be_too_large(client: Any) -> None:
    assert status(schedule(client, payload(bytes(300_000)))) == (
        403,
        "amqp:link:message-size-exceeded",
    )


def test_numbers_that_cannot_be_are_not_found(client: Any) -> None:
    for number in (-1, 0, 1 << 62, (99 << 48) + 1, 5):
        body = {"sequence-numbers": Array([Long(number)], Long), "receiver-settle-mode": UInt(1)}
        answer = ask(client, "receive-by-sequence-number", body)
        assert status(answer) == (404, "com.microsoft:message-not-found"), number


def test_a_number_that_is_no_long_is_out_of_range(client: Any) -> None:
    for path in ("q", "q/$deadletterqueue"):
        body = {"from-sequence-number": ULong(1 << 63), "message-count": Int(1), "session-id": "s"}
        answer = ask(client, "peek-message", body, path)
        assert status(answer) == (400, "com.microsoft:argument-out-of-range")


def test_nothing_is_scheduled_into_a_sub_queue(client: Any) -> None:
    path = "q/$deadletterqueue"
    body = {"messages": [{"message": later(client)}]}
    assert status(ask(client, "schedule-message", body, path)) == (400, "amqp:not-allowed")
    body = {"sequence-numbers": NUMBERS}  # type: ignore[dict-item]
    assert status(ask(client, "cancel-scheduled-message", body, path)) == (400, "amqp:not-allowed")


def test_messages_are_deleted_in_batches_on_conventional_queues_only(world: Any) -> None:
    world.create_queue("q")
    world.create_queue("p", enable_partitioning=True)
    client = world.authorised()
    send(client, b"a", b"b", b"c")
    now = Timestamp(world.clock.now_ms())
    body = {"message-count": Int(2), "enqueued-time-utc": now}
    answer = ask(client, "batch-delete-messages", body)
    assert (status(answer)[0], answer.body["message-count"]) == (200, 2)
    answer = ask(client, "batch-delete-messages", {**body, "enqueued-time-utc": Timestamp(5)})
    assert status(answer)[0] == 204
    assert len(peek(client).body["messages"]) == 1
    refused = ask(client, "batch-delete-messages", body, "p")
    assert status(refused) == (501, "amqp:not-implemented")


@pytest.mark.parametrize(("profile", "most"), [("standard", 500), ("unlimited", 4_000)])
def test_A1_the_profile_says_how_many_messages_one_request_deletes(
    make_world: Callable[[str], Any], profile: str, most: int
) -> None:
    world = make_world(profile)
    world.create_queue("q")
    client = world.authorised()
    link = client.sender("q")
    for _ in range(5):
        for _ in range(900):
            link.send(b"t", payload(b"x"))
        world.settle()
    body = {"message-count": Int(10_000), "enqueued-time-utc": Timestamp(world.clock.now_ms())}
    answer = ask(client, "batch-delete-messages", body)
    assert (status(answer)[0], answer.body["message-count"]) == (200, most)


@pytest.mark.parametrize(
    ("name", "right"),
    [("schedule-message", Right.LISTEN), ("cancel-scheduled-message", Right.LISTEN),
     ("peek-message", Right.SEND), ("receive-by-sequence-number", Right.SEND)],
)  # fmt: skip
def test_an_operation_needs_its_right(world: Any, name: str, right: Right) -> None:
    world.create_queue("q")
    world.put_rule("one", "b25l", right)
    client = world.connect()
    client.put_token("sb://host/q", client.token("sb://host/q", "one", "b25l"))
    assert status(ask(client, name, {})) == (401, "amqp:unauthorized-access")
