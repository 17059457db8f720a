"""Bad requests of every kind: each is answered once, by what is documented, and hurts nobody else.

A good body of every operation is spoiled field by field. Whoever sends and receives beside that,
on the same connection and on another, does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from partibus.gateway.requests import OPERATIONS
from partibus.wire.performatives import Accepted, Attach, Source, Target
from partibus.wire.values import Array, Described, Int, Long, Symbol, Timestamp, ULong

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
Make = Callable[..., bytes]

NUMBERS = Array([Long(1)], Long)
TOKENS = Array([UUID(int=1)], UUID)
# Operation, a body that makes sense, and which fields of it must be there.
GOOD: dict[str, tuple[dict[str, object], set[str]]] = {
    "renew-lock": ({"lock-tokens": TOKENS}, {"lock-tokens"}),
    "update-disposition": (
        {"lock-tokens": TOKENS, "disposition-status": "completed"},
        {"lock-tokens", "disposition-status"},
    ),
    "peek-message": (
        {"from-sequence-number": Long(0), "message-count": Int(1), "session-id": "s"},
        {"from-sequence-number", "message-count"},
    ),
    "receive-by-sequence-number": (
        {"sequence-numbers": NUMBERS, "receiver-settle-mode": Int(1), "session-id": "s"},
        {"sequence-numbers", "receiver-settle-mode"},
    ),
    "schedule-message": ({"messages": [{"message": b"?"}]}, {"messages"}),
    "cancel-scheduled-message": ({"sequence-numbers": NUMBERS}, {"sequence-numbers"}),
    "batch-delete-messages": (
        {"message-count": Int(1), "enqueued-time-utc": Timestamp(1)},
        {"message-count", "enqueued-time-utc"},
    ),
    "renew-session-lock": ({"session-id": "s"}, {"session-id"}),
    "get-session-state": ({"session-id": "s"}, {"session-id"}),
    "set-session-state": ({"session-id": "s", "session-state": b"x"}, {"session-id"}),
    "get-message-sessions": (
        {"last-updated-time": Timestamp(1), "skip": Int(0), "top": Int(1)},
        set(),
    ),
}
WRONG: list[object] = [
    None,
    "",
    "text",
    True,
    1.5,
    float("nan"),
    b"\xff",
    -1,
    1 << 62,
    ULong((1 << 64) - 1),
    [],
    [None],
    [[[]]],
    ["text"],
    [1.5],
    [Long(-1)],
    [UUID(int=0)] * 5001,
    {},
    {"message": None},
    [{"message": None}],
    [{"message": b"\xff"}],
    Symbol("symbol"),
    UUID(int=0),
    Described(ULong(0x75), b"data"),
    Timestamp(-1),
]
# What SPEC 3.15 and 4.2 know; nothing that went wrong inside of us.
CONDITIONS = {
    204: {"com.microsoft:session-not-found"},
    400: {
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "amqp:not-allowed",
        "amqp:decode-error",
    },
    404: {"com.microsoft:message-not-found"},
    410: {"com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost"},
    501: {"amqp:not-implemented"},
}


class Bystander:
    """Somebody who sends and receives, and wants to go on doing so."""

    def __init__(self, client: Any, make_message: Make) -> None:
        self.client = client
        self.message = make_message(b"innocent")
        self.sender = client.sender("beside")
        self.receiver = client.receiver("beside", **PEEK_LOCK)
        self.got = 0

    def works(self) -> None:
        number = self.sender.send(b"t", self.message)
        self.receiver.grant(1)
        self.client.world.settle()
        assert type(self.client.outcomes(self.sender)[number]) is Accepted
        self.got += 1
        deliveries = self.client.deliveries(self.receiver)
        assert len(deliveries) == self.got
        self.receiver.settle([deliveries[-1].delivery_id], Accepted(), settled=False)
        self.client.world.settle()
        assert type(self.client.outcomes(self.receiver)[deliveries[-1].delivery_id]) is Accepted


@pytest.fixture(params=["plain", "partitioned", "sessions"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_queue(
        "q",
        enable_partitioning=request.param == "partitioned",
        requires_session=request.param == "sessions",
    )
    world.create_queue("beside")
    return world.authorised()


@pytest.fixture
def bystanders(client: Any, make_message: Make) -> Iterator[list[Bystander]]:
    failures: list[dict[str, Any]] = []
    client.world.loop.set_exception_handler(lambda _, context: failures.append(context))
    found = [Bystander(each, make_message) for each in (client, client.world.authorised())]
    yield found
    for each in found:
        each.works()
        assert not each.client.closed
    assert failures == []


def spoiled(good: dict[str, object]) -> Iterator[tuple[str, object]]:
    for field in good:
        yield field, {name: value for name, value in good.items() if name != field}
        for wrong in WRONG:
            yield field, {**good, field: wrong}


def test_the_table_has_every_operation_of_a_queue() -> None:
    rules = {"add-rule", "remove-rule", "enumerate-rules"}
    known = {name.removeprefix("com.microsoft:") for name in OPERATIONS}
    assert known - rules == GOOD.keys()


@pytest.mark.parametrize("path", ["q", "q/$deadletterqueue"])
@pytest.mark.parametrize("name", GOOD)
def test_A1_a_spoiled_request_gets_a_documented_condition(
    client: Any, bystanders: list[Bystander], name: str, path: str
) -> None:
    good, required = GOOD[name]
    bodies = [("", body) for body in (None, "text", b"", [], 7, {})]
    for field, body in [*bodies, *spoiled(good)]:
        answer = client.ask(f"{path}/$management", {"operation": f"com.microsoft:{name}"}, body)
        status = answer.properties["statusCode"]
        if status in (200, 204) and "errorCondition" not in answer.properties:
            # What is not needed may be anything; what is needed may be odd and yet good.
            assert field not in required or _is_number(field, body), (name, body)
            continue
        condition = answer.properties["errorCondition"]
        assert condition in CONDITIONS.get(status, ()), (name, body, status, condition)
        assert answer.properties["statusDescription"]
    bystanders[0].works()


def _is_number(field: str, body: object) -> bool:
    """Whether the odd value is one that is taken after all."""
    assert isinstance(body, dict)
    value = body.get(field)
    return isinstance(value, int) and not isinstance(value, bool)


@pytest.mark.parametrize("operation", [None, 7, "", "peek-message", "com.microsoft:", b"x"])
def test_A1_what_names_no_operation_is_not_implemented(
    client: Any, bystanders: list[Bystander], operation: object
) -> None:
    answer = client.ask("q/$management", {"operation": operation}, {})
    assert answer.properties["statusCode"] == 501
    assert answer.properties["errorCondition"] == "amqp:not-implemented"
    assert len(bystanders) == 2


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nobody", "amqp:not-found"),
        ("q/$nonsense", "amqp:not-found"),
        ("nobody/$deadletterqueue", "amqp:not-found"),
        ("q/Subscriptions/none", "amqp:not-found"),
        ("", "com.microsoft:argument-error"),
        ("amqps://host/", "com.microsoft:argument-error"),
        ("a" * 2000, "com.microsoft:argument-error"),
        ("shut", "com.microsoft:entity-disabled"),
    ],
)
def test_a_receiver_from_the_wrong_place_is_refused(
    client: Any, bystanders: list[Bystander], address: str, condition: str
) -> None:
    client.world.create_queue("shut", status="ReceiveDisabled")
    link = client.receiver(address)
    assert client.answer_of(link).source is None
    assert client.error_of(link)[0] == condition
    bystanders[0].works()


@pytest.mark.parametrize(
    "source",
    [
        None,
        Source(),
        Source(address=7),
        Source(dynamic=True),
        Source(address="beside", filter={Symbol("com.microsoft:session-filter"): 7}),
        Source(address="beside", filter={Symbol("com.microsoft:session-filter"): "x" * 129}),
    ],
    ids=["none", "empty", "number", "dynamic", "filter", "long"],
)
def test_a_receiver_whose_source_makes_no_sense_is_refused(
    client: Any, bystanders: list[Bystander], source: Source | None
) -> None:
    attach = Attach(name="odd", source=source, target=Target(address="client"))
    link = client.engine.attach_receiver(client.session, attach)
    client.world.settle()
    condition, _ = client.error_of(link)
    assert condition in (
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "amqp:not-allowed",
        "amqp:not-implemented",
    )
    bystanders[0].works()
