"""Transactions over AMQP: declare, work, discharge (SPEC 5; T1 to T5)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from partibus.broker.partitioning import index_of
from partibus.gateway.dialogue import read_request
from partibus.gateway.transactions import TRANSACTIONS_OPEN_MAX
from partibus.store import StoreError
from partibus.store.memory import MemoryStore
from partibus.testing.messages import batch, payload, read
from partibus.wire.codec import encode
from partibus.wire.composites import compose
from partibus.wire.performatives import (
    ACCEPTED,
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from partibus.wire.values import Array, Int, Long, Symbol, Timestamp

VALUE = b"\x00\x53\x77"
BATCH_FORMAT = 0x80013700
TWO_MINUTES_MS = 120_000
HOUR_MS = 3_600_000


class Worker:
    """A client that works in transactions, on a queue."""

    def __init__(self, world: Any, queue: str = "q") -> None:
        self.world = world
        self.client = world.authorised()
        self.coordinator = self.attach_coordinator()
        self.queue = queue
        self.sender = self.client.sender(queue)
        self.receiver: Any = None
        self.tags = 0

    def attach_coordinator(self, session: Any = None) -> Any:
        attach = Attach(
            name=f"txn{len(self.client.events)}",
            source=Source(address="client"),
            target=Coordinator(capabilities=["amqp:local-transactions"]),
        )
        link = self.client.engine.attach_sender(session or self.client.session, attach)
        self.world.settle()
        return link

    def put(self, link: Any, data: bytes, **more: Any) -> int:
        self.tags += 1
        number: int = link.send(self.tags.to_bytes(4, "big"), data, **more)
        return number

    def tell(self, command: object, *, link: Any = None, settled: bool = False) -> Any:
        """Send a command to the coordinator; its outcome."""
        link = link or self.coordinator
        number = self.put(link, VALUE + compose(command), settled=settled)
        self.world.settle()
        return self.client.outcomes(link).get(number)

    def declare(self, link: Any = None) -> bytes:
        outcome = self.tell(Declare(), link=link)
        assert isinstance(outcome, Declared)
        assert 0 < len(outcome.txn_id) <= 32
        return outcome.txn_id

    def commit(self, txn_id: bytes) -> Any:
        return self.tell(Discharge(txn_id, False))

    def roll_back(self, txn_id: bytes) -> Any:
        return self.tell(Discharge(txn_id, True))

    def send(self, txn_id: bytes, data: bytes, sender: Any = None, **more: Any) -> Any:
        sender = sender or self.sender
        number = self.put(sender, data, state=TransactionalState(txn_id, None), **more)
        self.world.settle()
        return self.client.outcomes(sender).get(number)

    def take(self, count: int, address: str | None = None) -> list[Any]:
        self.receiver = self.client.receiver(
            address or self.queue, credit=count, rcv_settle_mode=1, snd_settle_mode=0
        )
        got = self.client.deliveries(self.receiver)
        assert len(got) == count
        return got

    def settle(self, txn_id: bytes, delivery: Any, outcome: object, settled: bool = False) -> Any:
        state = TransactionalState(txn_id, outcome)
        self.receiver.settle([delivery.delivery_id], state, settled=settled)
        self.world.settle()
        return self.client.outcomes(self.receiver).get(delivery.delivery_id)

    def left(self, address: str | None = None) -> list[bytes]:
        """What another receiver gets now, and lets go again."""
        other = self.world.authorised()
        link = other.receiver(address or self.queue, credit=1000)
        got = other.deliveries(link)
        # Without credit, or what is let go comes back at once.
        link.grant(0)
        self.world.settle()
        link.settle([each.delivery_id for each in got], Released())
        self.world.settle()
        link.detach()
        self.world.settle()
        return [read(each.payload).body for each in got]


@pytest.fixture
def worker(world: Any) -> Worker:
    world.create_queue("q")
    return Worker(world)


@pytest.fixture
def partitioned(world: Any) -> Worker:
    world.create_queue("p", enable_partitioning=True)
    return Worker(world, "p")


def refused(outcome: Any) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.error is not None
    return outcome.error.condition


def test_the_attach_is_answered_with_a_coordinator(worker: Worker) -> None:
    answer = worker.client.answer_of(worker.coordinator)
    assert isinstance(answer.target, Coordinator)
    assert answer.target.capabilities == ["amqp:local-transactions"]
    assert worker.coordinator.credit == 100


def test_T5_what_is_sent_in_a_transaction_is_there_when_it_is_committed(worker: Worker) -> None:
    txn = worker.declare()
    for body in (b"a", b"b"):
        assert worker.send(txn, payload(body)) == TransactionalState(txn, ACCEPTED)
    assert worker.left() == []
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"a", b"b"]


def test_T5_what_is_sent_in_a_transaction_is_gone_when_it_is_rolled_back(worker: Worker) -> None:
    txn = worker.declare()
    worker.send(txn, payload(b"a"))
    assert worker.roll_back(txn) == ACCEPTED
    assert worker.left() == []


def test_a_batch_is_part_of_a_transaction(worker: Worker) -> None:
    txn = worker.declare()
    data = batch(payload(b"a"), payload(b"b"))
    assert worker.send(txn, data, message_format=BATCH_FORMAT) == TransactionalState(txn, ACCEPTED)
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("outcome", "echo", "left", "dead"),
    [
        (ACCEPTED, Accepted(), [], []),
        (Modified(), Modified(), [b"m"], []),
        (Modified(undeliverable_here=True), Modified(), [], []),
        (Released(), Released(), [b"m"], []),
        (
            Rejected(Error("com.microsoft:dead-letter", None, {Symbol("DeadLetterReason"): "r"})),
            Rejected(),
            [],
            [b"m"],
        ),
    ],
    ids=["complete", "abandon", "defer", "release", "dead-letter"],
)
def test_T5_settlements_happen_with_the_sends(
    worker: Worker, outcome: object, echo: object, left: list[bytes], dead: list[bytes]
) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    worker.send(txn, payload(b"s"))
    assert worker.settle(txn, delivery, outcome) == TransactionalState(txn, echo)
    # Nothing has happened yet: the message is still locked.
    assert worker.left() == []
    assert worker.left("q/$DeadLetterQueue") == []
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [*left, b"s"]
    assert worker.left("q/$DeadLetterQueue") == dead


def test_a_rolled_back_completion_keeps_the_lock_and_can_be_repeated(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    worker.settle(txn, delivery, ACCEPTED)
    worker.roll_back(txn)
    assert worker.left() == []
    # The link has forgotten the delivery; the token is good until the lock ends.
    answer = worker.client.ask("q/$management", *disposition(delivery.tag))
    assert answer.properties["statusCode"] == 200
    worker.world.advance(61_000)
    assert worker.left() == []


def test_a_rolled_back_completion_comes_back_when_the_lock_ends(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    worker.settle(txn, delivery, ACCEPTED)
    worker.roll_back(txn)
    worker.world.advance(61_000)
    assert worker.left() == [b"m"]


def disposition(tag: bytes) -> tuple[dict[str, object], object]:
    tokens: list[object] = [UUID(bytes_le=tag)]
    return (
        {"operation": "com.microsoft:update-disposition"},
        {"lock-tokens": Array(tokens, UUID), "disposition-status": "completed"},
    )


def test_settling_by_request_is_part_of_a_transaction(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    client = worker.client
    responses = client.receiver("q/$management", credit=10)
    requests = client.sender("q/$management")
    properties, body = disposition(delivery.tag)
    request = (
        b"\x00\x53\x73" + encode(["r1"])
        + b"\x00\x53\x74" + encode(properties)
        + b"\x00\x53\x77" + encode(body)
    )  # fmt: skip
    number = worker.put(requests, request, state=TransactionalState(txn, None))
    worker.world.settle()
    assert client.outcomes(requests)[number] == TransactionalState(txn, ACCEPTED)
    assert len(client.deliveries(responses)) == 1
    assert worker.commit(txn) == ACCEPTED
    worker.world.advance(61_000)
    assert worker.left() == []


class Requests:
    """A worker's requests to `$management`, as parts of transactions."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        path, client = f"{worker.queue}/$management", worker.client
        # The client's own requests go the same way: responses have one link in a session.
        self.responses = client.responses[path] = client.receiver(path, credit=100)
        self.link = client.requests[path] = client.sender(path)

    def ask(self, txn_id: bytes, name: str, body: object) -> Any:
        before = len(self.worker.client.deliveries(self.responses))
        self.send(txn_id, name, body)
        self.worker.world.settle()
        [answer] = self.worker.client.deliveries(self.responses)[before:]
        return read_request(answer.payload)

    def send(self, txn_id: bytes, name: str, body: object) -> None:
        request = (
            b"\x00\x53\x73" + encode(["r"])
            + b"\x00\x53\x74" + encode({"operation": f"com.microsoft:{name}"})
            + b"\x00\x53\x77" + encode(body)
        )  # fmt: skip
        self.worker.put(self.link, request, state=TransactionalState(txn_id, None))

    def schedule(self, txn_id: bytes, *messages: bytes) -> Any:
        return self.ask(txn_id, "schedule-message", scheduling(*messages))

    def seen(self) -> list[Any]:
        """What a browser sees of the queue."""
        body = {"from-sequence-number": Long(0), "message-count": Int(100)}
        operation: dict[str, object] = {"operation": "com.microsoft:peek-message"}
        answer = self.worker.client.ask(f"{self.worker.queue}/$management", operation, body)
        return [read(each["message"]) for each in answer.body.get("messages", [])]


def scheduling(*messages: bytes) -> dict[str, object]:
    return {"messages": [{"message": each} for each in messages]}


def later(worker: Worker, body: bytes, key: str | None = "k") -> bytes:
    at = Timestamp(worker.world.clock.now_ms() + HOUR_MS)
    return payload(body, key=key, annotations={"x-opt-scheduled-enqueue-time": at})


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def either(request: pytest.FixtureRequest, world: Any) -> Worker:
    world.create_queue("q", enable_partitioning=request.param)
    return Worker(world)


def test_T5_messages_scheduled_in_a_transaction_come_with_its_commit(either: Worker) -> None:
    requests = Requests(either)
    txn = either.declare()
    answer = requests.schedule(txn, later(either, b"a"), later(either, b"b"))
    assert answer.properties["statusCode"] == 200
    numbers = answer.body["sequence-numbers"]
    assert (len(numbers), numbers.element_type) == (2, Long)
    assert either.send(txn, payload(b"c", key="k")) == TransactionalState(txn, ACCEPTED)
    assert requests.seen() == []
    assert either.commit(txn) == ACCEPTED
    seen = {each.body: each.sequence for each in requests.seen()}
    assert [seen[b"a"], seen[b"b"]] == list(numbers)
    assert either.left() == [b"c"]
    for _ in range(2):
        # Disks work between the moments of this clock: the first finds what is due.
        either.world.advance(HOUR_MS)
    assert sorted(either.left()) == [b"a", b"b", b"c"]


def test_T5_or_do_not_come_at_all(either: Worker) -> None:
    requests = Requests(either)
    txn = either.declare()
    assert requests.schedule(txn, later(either, b"a")).properties["statusCode"] == 200
    assert either.roll_back(txn) == ACCEPTED
    lost = either.declare()
    assert requests.schedule(lost, later(either, b"b")).properties["statusCode"] == 200
    either.world.advance(TWO_MINUTES_MS + 1)
    assert refused(either.commit(lost)) == "amqp:transaction:unknown-id"
    assert requests.seen() == []


def test_T1_T2_T4_the_key_rules_hold_for_scheduled_messages(partitioned: Worker) -> None:
    requests = Requests(partitioned)
    txn = partitioned.declare()

    def condition(*messages: bytes) -> object:
        return requests.schedule(txn, *messages).properties.get("errorCondition")

    assert condition(later(partitioned, b"x", None)) == "amqp:not-allowed"
    assert condition(later(partitioned, b"1"), later(partitioned, b"2", "l")) == "amqp:not-allowed"
    assert condition(later(partitioned, b"3")) is None
    assert condition(later(partitioned, b"4", "l")) == "amqp:not-allowed"
    assert refused(partitioned.send(txn, payload(b"5", key="l"))) == "amqp:not-allowed"
    assert condition(*[later(partitioned, b"6")] * 100) == "amqp:resource-limit-exceeded"
    assert partitioned.commit(txn) == ACCEPTED
    assert [each.body for each in requests.seen()] == [b"3"]


def test_scheduling_in_no_transaction_at_all_is_refused(either: Worker) -> None:
    requests = Requests(either)
    answer = requests.schedule(b"nonsense", later(either, b"a"))
    assert answer.properties["errorCondition"] == "amqp:transaction:unknown-id"
    assert requests.seen() == []


def test_T5_a_commit_behind_a_schedule_that_fails_is_all_or_nothing(either: Worker) -> None:
    requests = Requests(either)
    txn = either.declare()
    either.world.node.host.drivers.clear()
    answer = requests.schedule(txn, later(either, b"a"))
    assert answer.properties["errorCondition"] == "com.microsoft:server-busy"
    # The request was refused alone, and nothing else is in the transaction.
    assert either.commit(txn) == ACCEPTED


def test_a_lock_that_is_lost_before_the_commit_refuses_all_of_it(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    worker.send(txn, payload(b"s"))
    worker.settle(txn, delivery, ACCEPTED)
    worker.world.advance(61_000)
    assert refused(worker.commit(txn)) == "com.microsoft:message-lock-lost"
    assert worker.left() == [b"m"]


def test_a_message_completed_in_a_transaction_cannot_be_completed_again(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    txn = worker.declare()
    worker.settle(txn, delivery, ACCEPTED)
    assert worker.commit(txn) == ACCEPTED
    answer = worker.client.ask("q/$management", *disposition(delivery.tag))
    assert answer.properties["statusCode"] == 410


def test_an_unknown_transaction_is_refused_and_disturbs_nobody(worker: Worker) -> None:
    unknown = "amqp:transaction:unknown-id"
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    assert refused(worker.send(b"nonsense", payload(b"s"))) == unknown
    assert refused(worker.settle(b"nonsense", delivery, ACCEPTED)) == unknown
    assert refused(worker.commit(b"nonsense")) == unknown
    assert refused(worker.roll_back(b"nonsense")) == unknown
    txn = worker.declare()
    assert worker.commit(txn) == ACCEPTED
    assert refused(worker.commit(txn)) == unknown
    assert worker.put(worker.sender, payload(b"n")) >= 0


def test_a_transaction_of_another_connection_is_unknown(worker: Worker) -> None:
    other = Worker(worker.world)
    txn = worker.declare()
    assert refused(other.send(txn, payload(b"s"))) == "amqp:transaction:unknown-id"


def test_a_transaction_works_on_all_sessions_of_its_connection(worker: Worker) -> None:
    session = worker.client.engine.begin()
    other = worker.client.engine.attach_sender(
        session,
        Attach(name="other", source=Source(address="x"), target=worker.sender.attach.target),
    )
    worker.world.settle()
    txn = worker.declare()
    assert worker.send(txn, payload(b"s"), sender=other) == TransactionalState(txn, ACCEPTED)
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"s"]


def test_after_two_minutes_a_transaction_is_rolled_back(worker: Worker) -> None:
    early, late = worker.declare(), worker.declare()
    worker.send(early, payload(b"early"))
    worker.world.advance(TWO_MINUTES_MS - 1)
    # They count from the first operation on, not from the declaration.
    worker.send(late, payload(b"late"))
    worker.world.advance(1)
    assert refused(worker.send(early, payload(b"s"))) == "amqp:transaction:unknown-id"
    assert refused(worker.commit(early)) == "amqp:transaction:unknown-id"
    assert worker.commit(late) == ACCEPTED
    assert worker.left() == [b"late"]


def test_a_transaction_has_a_hundred_messages_and_no_more(worker: Worker) -> None:
    txn = worker.declare()
    for _ in range(100):
        assert isinstance(worker.send(txn, payload(b"x")), TransactionalState)
    assert refused(worker.send(txn, payload(b"x"))) == "amqp:resource-limit-exceeded"
    assert worker.commit(txn) == ACCEPTED
    assert len(worker.left()) == 100


@pytest.mark.parametrize("what", ["link", "session", "connection"])
def test_open_transactions_are_rolled_back_with_link_session_and_connection(
    worker: Worker, what: str
) -> None:
    session = worker.client.engine.begin() if what == "session" else worker.client.session
    coordinator = worker.attach_coordinator(session)
    txn = worker.declare(coordinator)
    worker.send(txn, payload(b"s"))
    if what == "link":
        coordinator.detach()
    elif what == "session":
        session.end()
    else:
        worker.client.pipe.close()
    worker.world.settle()
    other = worker if what != "connection" else Worker(worker.world)
    assert refused(other.commit(txn)) == "amqp:transaction:unknown-id"
    assert worker.left() == []


def test_a_transaction_has_one_entity(worker: Worker) -> None:
    worker.world.create_queue("other")
    sender = worker.client.sender("other")
    txn = worker.declare()
    worker.send(txn, payload(b"s"))
    outcome = worker.send(txn, payload(b"t"), sender=sender)
    assert refused(outcome) == "amqp:not-allowed"
    assert "top-level entities" in outcome.error.description
    # It is refused alone; what was there before is committed.
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"s"]
    assert worker.left("other") == []


def test_dead_letters_are_sent_again_in_one_transaction(worker: Worker) -> None:
    worker.put(worker.sender, payload(b"m"))
    [delivery] = worker.take(1)
    worker.receiver.settle([delivery.delivery_id], Rejected(), settled=False)
    worker.world.settle()
    [dead] = worker.take(1, "q/$DeadLetterQueue")
    txn = worker.declare()
    worker.send(txn, payload(b"again"))
    worker.settle(txn, dead, ACCEPTED)
    assert worker.commit(txn) == ACCEPTED
    worker.world.advance(61_000)
    assert worker.left() == [b"again"]
    assert worker.left("q/$DeadLetterQueue") == []


def test_a_settled_transfer_that_is_refused_fails_the_transaction(worker: Worker) -> None:
    txn = worker.declare()
    worker.send(txn, payload(b"good"))
    worker.send(txn, payload(b"bad", session="a", key="b"), settled=True)
    assert refused(worker.commit(txn)) == "amqp:transaction:rollback"
    assert worker.left() == []


def test_a_settled_transfer_is_part_of_its_transaction(worker: Worker) -> None:
    txn = worker.declare()
    worker.send(txn, payload(b"s"), settled=True)
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"s"]


def test_a_settled_declare_ends_the_link(worker: Worker) -> None:
    worker.tell(Declare(), settled=True)
    assert worker.client.error_of(worker.coordinator)[0] == "amqp:not-allowed"


def test_what_is_no_command_is_refused(worker: Worker) -> None:
    for data in (b"", VALUE + encode("declare"), payload(b"x"), VALUE + b"\x00\x53\x31\xff"):
        number = worker.put(worker.coordinator, data)
        worker.world.settle()
        outcome = worker.client.outcomes(worker.coordinator)[number]
        assert refused(outcome) == "amqp:decode-error"
    assert refused(worker.tell(Declare(global_id=b"x"))) == "amqp:not-implemented"
    assert worker.declare()


def test_a_command_may_have_other_sections_before_it(worker: Worker) -> None:
    header = b"\x00\x53\x70\x45"
    number = worker.put(worker.coordinator, header + VALUE + compose(Declare()))
    worker.world.settle()
    assert isinstance(worker.client.outcomes(worker.coordinator)[number], Declared)


def test_a_connection_has_so_many_open_transactions_and_no_more(worker: Worker) -> None:
    for _ in range(TRANSACTIONS_OPEN_MAX):
        worker.put(worker.coordinator, VALUE + compose(Declare()))
        if worker.coordinator.credit < 5:
            worker.world.settle()
    assert refused(worker.tell(Declare())) == "amqp:resource-limit-exceeded"


def test_A3_the_coordinator_may_be_opened_before_a_token_is_shown(world: Any) -> None:
    """The Java client does so; what a transaction does needs a token all the same."""
    client = world.connect()
    attach = Attach(name="t", source=Source(address="x"), target=Coordinator())
    link = client.engine.attach_sender(client.session, attach)
    world.settle()
    assert link.credit > 0
    attach = Attach(name="s", source=Source(address="x"), target=Target(address="q"))
    sender = client.engine.attach_sender(client.session, attach)
    world.settle()
    assert client.error_of(sender)[0] == "amqp:unauthorized-access"


def test_T5_a_commit_of_which_nobody_knows_ends_the_link(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: MemoryStore, batch: list[Any]) -> None:
        raise StoreError("the disk is gone")

    txn = worker.declare()
    worker.send(txn, payload(b"s"))
    monkeypatch.setattr(MemoryStore, "commit", fail)
    assert worker.commit(txn) is None
    assert worker.client.error_of(worker.coordinator)[0] == "amqp:link:detach-forced"
    # A store that is down has committed nothing, and that is certain.
    worker.coordinator = worker.attach_coordinator()
    txn = worker.declare()
    worker.send(txn, payload(b"s"))
    assert refused(worker.commit(txn)) == "com.microsoft:server-busy"


def test_requests_that_cannot_be_part_of_a_transaction_are_refused(worker: Worker) -> None:
    client = worker.client
    responses = client.receiver("q/$management", credit=10)
    requests = client.sender("q/$management")
    request = (
        b"\x00\x53\x73" + encode(["r1"])
        + b"\x00\x53\x74" + encode({"operation": "com.microsoft:cancel-scheduled-message"})
        + b"\x00\x53\x77" + encode({})
    )  # fmt: skip
    worker.put(requests, request, state=TransactionalState(worker.declare(), None))
    worker.world.settle()
    [answer] = client.deliveries(responses)
    assert read_properties(answer.payload)["statusCode"] in (400, 501)


def read_properties(data: bytes) -> Any:
    return read_request(data).properties


# Partitioned queues -----------------------------------------------------------------------------


def test_T1_a_message_without_a_key_is_refused(partitioned: Worker) -> None:
    txn = partitioned.declare()
    outcome = partitioned.send(txn, payload(b"s", message_id="id"))
    assert refused(outcome) == "amqp:not-allowed"
    assert partitioned.commit(txn) == ACCEPTED
    assert partitioned.left() == []


def test_T2_all_messages_need_the_same_key(partitioned: Worker) -> None:
    txn = partitioned.declare()
    assert isinstance(partitioned.send(txn, payload(b"1", key="k")), TransactionalState)
    assert refused(partitioned.send(txn, payload(b"2", key="l"))) == "amqp:not-allowed"
    # By key, not by fragment: another key of the same fragment is refused as well.
    same = next(f"k{n}" for n in range(1000) if index_of(f"k{n}", 16) == index_of("k", 16))
    assert refused(partitioned.send(txn, payload(b"3", key=same))) == "amqp:not-allowed"
    assert isinstance(partitioned.send(txn, payload(b"4", key="k")), TransactionalState)
    assert partitioned.commit(txn) == ACCEPTED
    assert partitioned.left() == [b"1", b"4"]


def test_T4_two_sessions_are_refused_on_a_partitioned_queue_and_fine_on_another(
    partitioned: Worker, world: Any
) -> None:
    txn = partitioned.declare()
    partitioned.send(txn, payload(b"1", session="s"))
    assert refused(partitioned.send(txn, payload(b"2", session="t"))) == "amqp:not-allowed"
    world.create_queue("q")
    conventional = Worker(world)
    txn = conventional.declare()
    for session in "st":
        outcome = conventional.send(txn, payload(session.encode(), session=session))
        assert outcome == TransactionalState(txn, ACCEPTED)
    assert conventional.commit(txn) == ACCEPTED
    assert conventional.left() == [b"s", b"t"]


def test_T3_a_differing_partition_key_is_refused(partitioned: Worker) -> None:
    txn = partitioned.declare()
    outcome = partitioned.send(txn, payload(b"1", session="s", key="k"))
    assert refused(outcome) == "amqp:not-allowed"


def test_T1_the_message_id_is_a_key_where_duplicates_are_detected(world: Any) -> None:
    world.create_queue("d", enable_partitioning=True, requires_duplicate_detection=True)
    worker = Worker(world, "d")
    txn = worker.declare()
    assert isinstance(worker.send(txn, payload(b"1", message_id="a")), TransactionalState)
    assert refused(worker.send(txn, payload(b"2", message_id="b"))) == "amqp:not-allowed"
    assert isinstance(worker.send(txn, payload(b"3", message_id="a")), TransactionalState)
    assert worker.commit(txn) == ACCEPTED
    assert worker.left() == [b"1"]


def test_F2_a_rolled_back_send_leaves_no_history(world: Any) -> None:
    world.create_queue("d", requires_duplicate_detection=True)
    worker = Worker(world, "d")
    txn = worker.declare()
    worker.send(txn, payload(b"1", message_id="a"))
    worker.roll_back(txn)
    for body, expected in ((b"2", [b"2"]), (b"3", [b"2"])):
        txn = worker.declare()
        worker.send(txn, payload(body, message_id="a"))
        assert worker.commit(txn) == ACCEPTED
        assert worker.left() == expected


def test_completions_of_different_fragments_are_refused(partitioned: Worker) -> None:
    for number in range(16):
        partitioned.put(partitioned.sender, payload(b"%d" % number, key=f"k{number}"))
    deliveries = partitioned.take(16)
    txn = partitioned.declare()
    assert isinstance(partitioned.settle(txn, deliveries[0], ACCEPTED), TransactionalState)
    outcomes = [partitioned.settle(txn, each, ACCEPTED) for each in deliveries[1:]]
    # With two stores some fragments share one: told apart there, when all is discharged.
    assert any(isinstance(each, Rejected) for each in outcomes)
    assert {refused(each) for each in outcomes if isinstance(each, Rejected)} == {
        "amqp:not-allowed"
    }
    assert refused(partitioned.commit(txn)) == "amqp:not-allowed"
    partitioned.world.advance(61_000)
    assert len(partitioned.left()) == 16


def test_T5_a_completion_and_a_send_of_the_same_key_are_one_transaction(
    partitioned: Worker,
) -> None:
    partitioned.put(partitioned.sender, payload(b"m", key="k"))
    [delivery] = partitioned.take(1)
    txn = partitioned.declare()
    partitioned.settle(txn, delivery, ACCEPTED)
    partitioned.send(txn, payload(b"s", key="k"))
    assert partitioned.commit(txn) == ACCEPTED
    partitioned.world.advance(61_000)
    assert partitioned.left() == [b"s"]


@pytest.mark.parametrize("ended", ["sends", "schedules", "settlements"])
def test_A4_nothing_is_committed_under_a_token_that_has_ended(world: Any, ended: str) -> None:
    world.create_queue("q")
    worker = Worker(world)
    if ended == "settlements":
        worker.put(worker.sender, payload(b"old"))
        worker.world.settle()
    # From here on with a token of the queue alone, which ends before the discharge.
    worker.client = client = world.connect()
    uri = "sb://host/q"
    assert client.put_token(uri, client.token(uri, seconds=60)) == 202
    worker.coordinator = worker.attach_coordinator()
    worker.sender = client.sender("q")
    kept, lost = worker.declare(), worker.declare()
    if ended == "sends":
        for number, txn_id in enumerate((kept, lost)):
            assert isinstance(worker.send(txn_id, payload(b"%d" % number)), TransactionalState)
    elif ended == "schedules":
        requests = Requests(worker)
        assert requests.schedule(lost, payload(b"s")).properties["statusCode"] == 200
    else:
        (delivery,) = worker.take(1)
        worker.settle(lost, delivery, ACCEPTED)
    assert isinstance(worker.commit(kept), Accepted)
    world.advance(61_000)
    assert refused(worker.commit(lost)) == "amqp:unauthorized-access"
    left = {"sends": [b"0"], "schedules": [], "settlements": [b"old"]}
    assert worker.left() == left[ended]


def test_A4_who_may_settle_dead_letters_only_commits_their_settlement(world: Any) -> None:
    world.create_queue("q", max_delivery_count=1)
    worker = Worker(world)
    worker.put(worker.sender, payload(b"dead"))
    (delivery,) = worker.take(1)
    worker.receiver.settle([delivery.delivery_id], Modified(True, False, None))
    world.settle()
    worker.client = client = world.connect()
    uri = "sb://host/q/$DeadLetterQueue"
    assert client.put_token(uri, client.token(uri)) == 202
    worker.coordinator = worker.attach_coordinator()
    (delivery,) = worker.take(1, "q/$DeadLetterQueue")
    txn_id = worker.declare()
    worker.settle(txn_id, delivery, ACCEPTED)
    assert isinstance(worker.commit(txn_id), Accepted)
    assert worker.left("q/$DeadLetterQueue") == []
