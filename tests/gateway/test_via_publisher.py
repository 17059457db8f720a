"""Send-via: one link sends to an entity through the transfer queue of another (T5)."""

from __future__ import annotations

from typing import Any

import pytest

from partibus.testing.messages import payload, read
from partibus.wire.composites import compose
from partibus.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Rejected,
    Source,
    TransactionalState,
)
from partibus.wire.values import Symbol

DESTINATION = Symbol("com.microsoft:transfer-destination-address")
VALUE = b"\x00\x53\x77"


class Mover:
    """A client that sends via a queue, in transactions or not."""

    def __init__(self, world: Any, via: str = "via", destination: str = "target") -> None:
        self.world = world
        self.client = world.authorised()
        attach = Attach(
            name="txn", source=Source(address="client"), target=Coordinator(capabilities=[])
        )
        self.coordinator = self.client.engine.attach_sender(self.client.session, attach)
        self.sender = self.client.sender(via, properties={DESTINATION: destination})
        self.receivers: dict[str, Any] = {}
        self.tags = 0

    def put(self, link: Any, data: bytes, state: object = None) -> Any:
        self.tags += 1
        number = link.send(self.tags.to_bytes(4, "big"), data, state=state)
        self.world.settle()
        return self.client.outcomes(link).get(number)

    def declare(self) -> bytes:
        txn_id: bytes = self.put(self.coordinator, VALUE + compose(Declare())).txn_id
        return txn_id

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> Any:
        return self.put(self.coordinator, VALUE + compose(Discharge(txn_id, fail)))

    def received(self, queue: str) -> list[bytes]:
        """What has come from a queue."""
        if queue not in self.receivers:
            self.receivers[queue] = self.client.receiver(queue, credit=10)
        self.world.settle()
        got = self.client.deliveries(self.receivers[queue])
        return sorted(read(each.payload).body for each in got)


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def mover(request: pytest.FixtureRequest, world: Any) -> Mover:
    world.create_queue("via", enable_partitioning=request.param)
    world.create_queue("target", enable_partitioning=not request.param)
    return Mover(world)


def keyed(body: bytes, key: str = "k") -> bytes:
    return payload(body, annotations={"x-opt-via-partition-key": key})


def test_the_answer_names_the_destination(mover: Mover) -> None:
    answer = mover.client.answer_of(mover.sender)
    assert answer.properties[DESTINATION] == "target"


def test_T5_a_message_goes_to_the_destination_and_never_to_who_it_is_sent_via(
    mover: Mover,
) -> None:
    assert isinstance(mover.put(mover.sender, payload(b"plain")), Accepted)
    assert isinstance(mover.put(mover.sender, keyed(b"keyed")), Accepted)
    assert mover.received("target") == [b"keyed", b"plain"]
    assert mover.received("via") == []


def test_T5_in_a_transaction_it_goes_when_that_is_committed(mover: Mover) -> None:
    txn_id = mover.declare()
    outcome = mover.put(mover.sender, keyed(b"moved"), TransactionalState(txn_id, None))
    assert isinstance(outcome.outcome, Accepted)
    assert mover.received("target") == []
    assert isinstance(mover.discharge(txn_id), Accepted)
    assert mover.received("target") == [b"moved"]


def test_T5_and_not_when_it_is_rolled_back(mover: Mover) -> None:
    txn_id = mover.declare()
    mover.put(mover.sender, keyed(b"moved"), TransactionalState(txn_id, None))
    assert isinstance(mover.discharge(txn_id, fail=True), Accepted)
    assert mover.received("target") == []


def test_T1_T2_on_a_partitioned_queue_the_via_key_rules(world: Any) -> None:
    world.create_queue("via", enable_partitioning=True)
    world.create_queue("target")
    mover = Mover(world)
    txn_id = mover.declare()
    state = TransactionalState(txn_id, None)
    refused = mover.put(mover.sender, payload(b"1", key="k"), state)
    assert isinstance(refused, Rejected)
    assert refused.error.condition == "amqp:not-allowed"
    assert "ViaPartitionKey" in refused.error.description
    mover.put(mover.sender, keyed(b"2"), state)
    assert isinstance(mover.put(mover.sender, keyed(b"3", "l"), state), Rejected)
    assert isinstance(mover.discharge(txn_id), Accepted)
    assert mover.received("target") == [b"2"]


def test_a_destination_that_requires_sessions_refuses_at_once(world: Any) -> None:
    world.create_queue("via")
    world.create_queue("target", requires_session=True)
    mover = Mover(world)
    refused = mover.put(mover.sender, payload(b"1"))
    assert refused.error.condition == "amqp:not-allowed"
    refused = mover.put(mover.sender, payload(b"1"), TransactionalState(mover.declare(), None))
    assert refused.error.condition == "amqp:not-allowed"
    assert isinstance(mover.put(mover.sender, payload(b"1", session="s")), Accepted)


@pytest.mark.parametrize(
    ("destination", "condition"),
    [
        ("nobody", "amqp:not-found"),
        ("target/$DeadLetterQueue", "amqp:not-allowed"),
        (7, "com.microsoft:argument-error"),
    ],
)
def test_an_attach_with_a_wrong_destination_is_refused(
    world: Any, destination: object, condition: str
) -> None:
    world.create_queue("via")
    world.create_queue("target")
    client = world.authorised()
    link = client.sender("via", properties={DESTINATION: destination})
    assert client.error_of(link)[0] == condition


def test_tokens_for_both_are_needed_as_long_as_the_link_is_open(world: Any) -> None:
    world.create_queue("via")
    world.create_queue("target")
    client = world.connect()
    via, target = "sb://host/via", "sb://host/target"
    client.put_token(via, client.token(via, seconds=3600))
    link = client.sender("via", properties={DESTINATION: "target"})
    assert client.error_of(link)[0] == "amqp:unauthorized-access"
    client.put_token(target, client.token(target, seconds=60))
    link = client.sender("via", properties={DESTINATION: "target"})
    assert client.answer_of(link).target is not None
    world.advance(60_000)
    assert client.error_of(link)[0] == "amqp:unauthorized-access"
