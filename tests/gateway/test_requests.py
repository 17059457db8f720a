"""`$management`: every request is answered, in the shape that clients read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from partibus.broker.access import Right
from partibus.gateway.dialogue import REQUEST_CREDIT
from partibus.wire.codec import decode, encode
from partibus.wire.performatives import Accepted, Attach, Rejected, Source, Target
from partibus.wire.values import Array, Int, Symbol, Timestamp, ULong

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
Make = Callable[..., bytes]


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_queue("q", enable_partitioning=request.param)
    return world.authorised()


def operation(name: str) -> dict[str, object]:
    return {"operation": f"com.microsoft:{name}"}


def tokens(*deliveries: Any) -> Array:
    return Array([UUID(bytes_le=each.tag) for each in deliveries], UUID)


@pytest.fixture
def locked(client: Any, make_message: Make) -> tuple[Any, Any]:
    """A receiver and a delivery it holds."""
    client.sender("q").send(b"t", make_message(b"1"))
    link = client.receiver("q", credit=1, name="holder", **PEEK_LOCK)
    return link, client.deliveries(link)[0]


@pytest.mark.parametrize(
    "message_id", ["text", UUID(int=7), ULong(7)], ids=["string", "uuid", "ulong"]
)
def test_an_unknown_operation_is_not_implemented(client: Any, message_id: object) -> None:
    properties = {**operation("conjure"), "com.microsoft:tracking-id": "track"}
    answer = client.ask("q/$management", properties, {}, message_id)
    assert (answer.message_id, type(answer.message_id)) == (message_id, type(message_id))
    assert answer.properties["statusCode"] == 501
    assert type(answer.properties["statusCode"]) is Int
    assert answer.properties["errorCondition"] == "amqp:not-implemented"
    assert type(answer.properties["errorCondition"]) is Symbol
    assert answer.properties["com.microsoft:tracking-id"] == "track"
    assert "conjure" in str(answer.properties["statusDescription"])
    assert answer.body == {}


def test_a_renewed_lock_ends_later(client: Any, locked: tuple[Any, Any]) -> None:
    link, delivery = locked
    client.world.advance(50_000)
    answer = client.ask("q/$management", operation("renew-lock"), {"lock-tokens": tokens(delivery)})
    assert answer.properties["statusCode"] == 200
    ends = answer.body["expirations"]
    assert isinstance(ends, Array)
    assert ends.element_type is Timestamp
    assert ends == Array([Timestamp(client.world.clock.now_ms() + 60_000)], Timestamp)
    client.world.advance(50_000)
    link.settle([delivery.delivery_id], Accepted(), settled=False)
    client.world.settle()
    assert type(client.outcomes(link)[delivery.delivery_id]) is Accepted


def test_a_lost_lock_cannot_be_renewed(client: Any, locked: tuple[Any, Any]) -> None:
    client.world.advance(60_001)
    answer = client.ask(
        "q/$management", operation("renew-lock"), {"lock-tokens": tokens(locked[1])}
    )
    assert answer.properties["statusCode"] == 410
    assert answer.properties["errorCondition"] == "com.microsoft:message-lock-lost"


@pytest.mark.parametrize("status", ["completed", "abandoned", "defered", "suspended"])
def test_a_message_can_be_settled_by_its_token(
    client: Any, locked: tuple[Any, Any], status: str
) -> None:
    link, delivery = locked
    body = {"disposition-status": status, "lock-tokens": tokens(delivery)}
    answer = client.ask("q/$management", operation("update-disposition"), body)
    assert answer.properties["statusCode"] == 200
    again = client.ask("q/$management", operation("update-disposition"), body)
    assert again.properties["statusCode"] == 410
    link.settle([delivery.delivery_id], Accepted(), settled=False)
    client.world.settle()
    assert type(client.outcomes(link)[delivery.delivery_id]) is Rejected


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        {},
        {"lock-tokens": []},
        {"lock-tokens": ["no uuid"]},
        {"lock-tokens": [UUID(int=1)], "disposition-status": "eaten"},
        {"lock-tokens": [UUID(int=1)] * 6000, "disposition-status": "completed"},
    ],
    ids=["null", "text", "empty", "none", "strings", "status", "many"],
)
def test_a_request_that_makes_no_sense_is_400(client: Any, body: object) -> None:
    answer = client.ask("q/$management", operation("update-disposition"), body)
    assert answer.properties["statusCode"] == 400


def test_an_operation_needs_its_right(world: Any) -> None:
    world.create_queue("q")
    world.put_rule("send", "c2VuZA==", Right.SEND)
    client = world.connect()
    client.put_token("sb://host/q", client.token("sb://host/q", "send", "c2VuZA=="))
    body = {"lock-tokens": [UUID(int=1)]}
    answer = client.ask("q/$management", operation("renew-lock"), body)
    assert answer.properties["statusCode"] == 401
    assert answer.properties["errorCondition"] == "amqp:unauthorized-access"


def test_what_is_no_request_is_rejected(client: Any) -> None:
    link = client.sender("q/$management")
    number = link.send(b"t", b"\xff")
    client.world.settle()
    assert client.outcomes(link)[number].error.condition == "amqp:decode-error"


def test_a_response_goes_to_the_pair_that_asked(world: Any) -> None:
    """All Python clients use the same address as reply-to, each on a session of its own."""
    world.create_queue("q")
    client = world.authorised()
    first, second = client.engine.begin(), client.engine.begin()
    links = []
    for number, session in enumerate((first, second)):
        receiver = client.engine.attach_receiver(
            session,
            Attach(name=f"r{number}", source=Source(address="q/$management"),
                   target=Target(address="q/$management")),
        )  # fmt: skip
        receiver.grant(10)
        sender = client.engine.attach_sender(
            session,
            Attach(name=f"s{number}", source=Source(), target=Target(address="q/$management")),
        )
        links.append((sender, receiver))
    world.settle()
    links[1][0].send(b"t", b"\x00\x53\x77\x40")
    world.settle()
    assert len(client.deliveries(links[1][1])) == 1
    assert len(client.deliveries(links[0][1])) == 0


def test_responses_wait_for_credit(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    receiver, sender = client.receiver("q/$management"), client.sender("q/$management")
    sender.send(b"t", b"\x00\x53\x77\x40")
    world.settle()
    assert client.deliveries(receiver) == []
    receiver.grant(1)
    world.settle()
    assert len(client.deliveries(receiver)) == 1


def ask_many(link: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        fields = encode([f"request-{number}"])
        properties = encode(operation("conjure"))
        link.send(b"t", b"\x00\x53\x73" + fields + b"\x00\x53\x74" + properties)


def answered(client: Any, link: Any) -> list[object]:
    return [decode(each.payload, 0)[0].value[5] for each in client.deliveries(link)]


def test_A1_requests_come_only_as_fast_as_responses_are_taken_and_none_is_lost(
    client: Any,
) -> None:
    responses = client.receiver("q/$management")
    requests = client.sender("q/$management")
    asked = 0
    for _ in range(20):
        # As much as the credit allows; nobody takes the answers.
        for _ in range(10):
            credit = requests.credit
            ask_many(requests, asked, credit)
            asked += credit
            client.world.settle()
        assert asked - len(answered(client, responses)) <= REQUEST_CREDIT
        responses.grant(30)
        client.world.settle()
    assert asked > 2 * REQUEST_CREDIT
    responses.grant(1000)
    client.world.settle()
    assert answered(client, responses) == [f"request-{number}" for number in range(asked)]
    assert requests.credit > 0


def test_a_client_that_asks_without_credit_and_takes_no_answer_is_told(client: Any) -> None:
    responses = client.receiver("q/$management")
    requests = client.sender("q/$management")
    requests.credit = 10_000
    ask_many(requests, 0, 5 * REQUEST_CREDIT)
    client.world.settle()
    condition, _ = client.error_of(requests)
    assert condition == "amqp:link:transfer-limit-exceeded"
    # What was accepted is answered all the same.
    responses.grant(10_000)
    client.world.settle()
    assert len(answered(client, responses)) == len(client.outcomes(requests))


def test_responses_that_have_nowhere_to_go_do_not_stop_the_requests(client: Any) -> None:
    requests = client.sender("q/$management")
    for first in range(0, 1000, 50):
        ask_many(requests, first, 50)
        client.world.settle()
    responses = client.receiver("q/$management")
    ask_many(requests, 1000, 60)
    client.world.settle()
    # They wait for credit, and go with their link.
    responses.detach()
    client.world.settle()
    assert requests.credit > 50
