"""Session links as they look on the wire (SPEC 3.13, 4.2): T6, A1."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from partibus.engine.events import LinkDetached
from partibus.gateway.session_consumer import (
    LOCKED_UNTIL_PROPERTY,
    SESSION_FILTER,
    TICKS_1970,
    TIMEOUT_PROPERTY,
)
from partibus.testing.messages import payload, read
from partibus.wire.composites import compose
from partibus.wire.performatives import (
    ACCEPTED,
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Modified,
    Rejected,
    Source,
    TransactionalState,
)
from partibus.wire.values import Array, Described, Int, Long, Symbol, Timestamp, UInt, ULong

LOCK_MS = 30_000
ALL_MS = 253_402_300_800_000
GO_DESCRIPTOR = ULong(0x137000000C)


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_queue(
        "q", requires_session=True, lock_ms=LOCK_MS, enable_partitioning=request.param
    )
    return world.authorised()


def session_link(
    client: Any, session: object, credit: int = 0, timeout_ms: int | None = None, **fields: Any
) -> Any:
    source = Source(address="q", filter={Symbol(SESSION_FILTER): session})
    if timeout_ms is not None:
        fields["properties"] = {Symbol(TIMEOUT_PROPERTY): UInt(timeout_ms)}
    return client.receiver("q", credit, source=source, rcv_settle_mode=1, **fields)


def send(client: Any, session: str | None, *bodies: bytes) -> Any:
    link = client.sender("q")
    for at, body in enumerate(bodies):
        link.send(b"%04d" % at, payload(body, session=session))
    client.world.settle()
    return link


def bodies(client: Any, link: Any) -> list[bytes]:
    return [read(each.payload).body for each in client.deliveries(link)]


def manage(client: Any, operation: str, body: dict[str, object]) -> Any:
    properties: dict[str, object] = {"operation": f"com.microsoft:{operation}"}
    return client.ask("q/$management", properties, body)


def test_a_named_session_is_answered_with_its_id_and_the_end_of_its_lock(client: Any) -> None:
    answer = client.answer_of(session_link(client, "s"))
    assert answer.source.address == "q"
    assert answer.source.filter == {SESSION_FILTER: "s"}
    assert answer.initial_delivery_count == 0
    until = answer.properties[LOCKED_UNTIL_PROPERTY]
    assert isinstance(until, Long)
    assert until == (client.world.clock.now_ms() + LOCK_MS) * 10_000 + TICKS_1970


def test_the_filter_comes_back_described_where_it_came_so(client: Any) -> None:
    answer = client.answer_of(session_link(client, Described(GO_DESCRIPTOR, "s")))
    assert answer.source.filter == {SESSION_FILTER: Described(GO_DESCRIPTOR, "s")}
    send(client, "t", b"x")
    answer = client.answer_of(session_link(client, Described(GO_DESCRIPTOR, None)))
    assert answer.source.filter == {SESSION_FILTER: Described(GO_DESCRIPTOR, "t")}


def test_the_answer_is_held_until_a_session_comes(client: Any) -> None:
    link = session_link(client, None, credit=5)
    assert not link.is_attached
    send(client, "late", b"1", b"2")
    assert client.answer_of(link).source.filter == {SESSION_FILTER: "late"}
    assert bodies(client, link) == [b"1", b"2"]


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(2_000, 2_000), (None, 65_000), (0, 0)])
def test_without_a_session_the_link_ends_when_the_clients_time_is_over(
    client: Any, asked_ms: int | None, waits_ms: int
) -> None:
    link = session_link(client, None, timeout_ms=asked_ms)
    if waits_ms:
        client.world.advance(waits_ms - 1)
        assert not client.all(LinkDetached, link)
    client.world.advance(1)
    answer = client.answer_of(link)
    assert answer.source is None
    assert client.error_of(link)[0] == "com.microsoft:timeout"
    # And it is forgotten: what comes then is another's.
    send(client, "s", b"x")
    assert client.answer_of(session_link(client, None)).source.filter == {SESSION_FILTER: "s"}


def test_who_stops_waiting_is_not_given_a_session(client: Any) -> None:
    gone = session_link(client, None)
    gone.detach()
    client.world.settle()
    send(client, "s", b"x")
    assert client.answer_of(session_link(client, "s")).source is not None


def test_a_session_that_is_held_cannot_be_had(client: Any) -> None:
    first = session_link(client, "s")
    assert client.error_of(session_link(client, "s"))[0] == "com.microsoft:session-cannot-be-locked"
    first.detach()
    client.world.settle()
    assert client.answer_of(session_link(client, "s")).source is not None


def test_a_lost_connection_frees_its_sessions_uncounted(client: Any) -> None:
    send(client, "s", b"x")
    other = client.world.authorised()
    link = session_link(other, "s", credit=1)
    assert bodies(other, link) == [b"x"]
    other.pipe.close()
    client.world.settle()
    again = session_link(client, "s", credit=1)
    assert [read(each.payload).deliveries for each in client.deliveries(again)] == [0]


def test_a_lock_that_ends_detaches_the_link_and_counts(client: Any) -> None:
    send(client, "s", b"1", b"2")
    link = session_link(client, "s", credit=1)
    (held,) = client.deliveries(link)
    client.world.advance(LOCK_MS)
    assert client.error_of(link)[0] == "com.microsoft:session-lock-lost"
    again = session_link(client, None, credit=5)
    found = [read(each.payload) for each in client.deliveries(again)]
    assert [(each.body, each.deliveries) for each in found] == [(b"1", 1), (b"2", 0)]
    answer = manage(
        client,
        "update-disposition",
        {
            "disposition-status": "completed",
            "lock-tokens": Array([UUID(bytes_le=held.tag)], UUID),
            "session-id": "s",
        },
    )
    assert answer.properties["statusCode"] == 410
    assert answer.properties["errorCondition"] == "com.microsoft:session-lock-lost"


def test_settlements_are_echoed_and_what_was_settled_before_a_detach_holds(client: Any) -> None:
    send(client, "s", b"1", b"2", b"3", b"4")
    link = session_link(client, "s", credit=4)
    one, two, three, four = (each.delivery_id for each in client.deliveries(link))
    link.settle([one], ACCEPTED, settled=False)
    link.settle([two], Modified(), settled=False)
    client.world.settle()
    outcomes = client.outcomes(link)
    assert isinstance(outcomes[one], Accepted)
    assert isinstance(outcomes[two], Modified)
    link.settle([three], ACCEPTED, settled=True)
    link.detach()
    client.world.settle()
    again = session_link(client, "s", credit=5)
    assert bodies(client, again) == [b"2", b"4"]
    assert four


def test_a_message_without_a_session_is_refused_and_the_sender_goes_on(client: Any) -> None:
    link = send(client, None, b"x")
    (refused,) = client.outcomes(link).values()
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == "amqp:not-allowed"
    assert all(isinstance(o, Accepted) for o in client.outcomes(send(client, "s", b"y")).values())


def test_bad_filters_are_refused(client: Any) -> None:
    for value in (7, ["s"], "x" * 129):
        condition, _ = client.error_of(session_link(client, value))
        assert condition == "com.microsoft:argument-error"
    shared = {Symbol("com.microsoft:non-exclusive-session-filter:list"): ["s", None]}
    link = client.receiver("q", source=Source(address="q", filter=shared))
    assert client.error_of(link)[0] == "amqp:not-implemented"


def test_A1_state_is_the_holders(client: Any) -> None:
    session_link(client, "s")
    assert manage(client, "get-session-state", {"session-id": "s"}).body == {"session-state": None}
    set_state = {"session-id": "s", "session-state": b"page 7"}
    assert manage(client, "set-session-state", set_state).properties["statusCode"] == 200
    answer = manage(client, "get-session-state", {"session-id": "s"})
    assert answer.body == {"session-state": b"page 7"}
    for body, condition in (
        ({"session-id": "other"}, "com.microsoft:session-lock-lost"),
        ({}, "com.microsoft:argument-error"),
        ({"session-id": "s", "session-state": "text"}, "com.microsoft:argument-error"),
        (
            {"session-id": "s", "session-state": bytes(262_145)},
            "amqp:link:message-size-exceeded",
        ),
    ):
        refused = manage(client, "set-session-state", body)
        assert refused.properties["errorCondition"] == condition
    stranger = client.world.authorised()
    refused = manage(stranger, "get-session-state", {"session-id": "s"})
    assert refused.properties["statusCode"] == 410


def test_A1_a_renewed_lock_lasts(client: Any) -> None:
    link = session_link(client, "s", credit=1)
    send(client, "s", b"x")
    for _ in range(3):
        client.world.advance(LOCK_MS - 1000)
        answer = manage(client, "renew-session-lock", {"session-id": "s"})
        assert answer.body == {"expiration": client.world.clock.now_ms() + LOCK_MS}
        assert isinstance(answer.body["expiration"], Timestamp)
    link.settle([each.delivery_id for each in client.deliveries(link)], ACCEPTED, settled=False)
    client.world.settle()
    assert all(isinstance(outcome, Accepted) for outcome in client.outcomes(link).values())
    client.world.advance(LOCK_MS)
    assert client.error_of(link)[0] == "com.microsoft:session-lock-lost"
    refused = manage(client, "renew-session-lock", {"session-id": "s"})
    assert refused.properties["statusCode"] == 410


def test_A1_sessions_are_listed_with_messages_or_state(client: Any) -> None:
    def page(skip: int, top: int, since_ms: int = ALL_MS) -> Any:
        body = {"last-updated-time": Timestamp(since_ms), "skip": Int(skip), "top": Int(top)}
        return manage(client, "get-message-sessions", body)

    nothing = page(0, 10)
    assert nothing.properties["statusCode"] == 204
    assert nothing.properties["errorCondition"] == "com.microsoft:session-not-found"
    for name in "abc":
        send(client, name, b"x", b"y")
    session_link(client, "state only")
    early_ms = client.world.clock.now_ms()
    client.world.advance(1000)
    manage(client, "set-session-state", {"session-id": "state only", "session-state": b"x"})
    found: list[str] = []
    while (answer := page(len(found), 2)).properties["statusCode"] == 200:
        assert answer.body["skip"] == len(found) + len(answer.body["sessions-ids"])
        found += answer.body["sessions-ids"]
    assert sorted(found) == ["a", "b", "c", "state only"]
    assert page(0, 10, early_ms).body["sessions-ids"] == ["state only"]
    assert page(0, 10, early_ms + 1000).properties["statusCode"] == 204
    assert page(-1, 10).properties["errorCondition"] == "com.microsoft:argument-out-of-range"


def test_a_lock_of_a_message_is_not_renewed_in_a_session(client: Any) -> None:
    send(client, "s", b"x")
    link = session_link(client, "s", credit=1)
    (held,) = client.deliveries(link)
    answer = manage(client, "renew-lock", {"lock-tokens": [UUID(bytes_le=held.tag)]})
    assert answer.properties["errorCondition"] == "amqp:not-allowed"


def test_a_drain_is_answered(client: Any) -> None:
    send(client, "s", b"1", b"2")
    link = session_link(client, "s")
    link.grant(10, drain=True)
    client.world.settle()
    assert bodies(client, link) == [b"1", b"2"]
    assert link.credit == 0
    assert not link.drain


def sequence_numbers(client: Any, link: Any) -> list[int]:
    return [read(each.payload).sequence for each in client.deliveries(link)]


def by_number(client: Any, session: str | None, *numbers: int) -> Any:
    body: dict[str, object] = {
        "sequence-numbers": Array([Long(number) for number in numbers], Long),
        "receiver-settle-mode": UInt(1),
    }
    if session is not None:
        body["session-id"] = session
    return manage(client, "receive-by-sequence-number", body)


def test_A1_a_deferred_message_is_had_by_who_holds_its_session(client: Any) -> None:
    send(client, "s", b"1", b"2")
    link = session_link(client, "s", credit=1)
    (number,) = sequence_numbers(client, link)
    deferring = client.deliveries(link)[0].delivery_id
    link.settle([deferring], Modified(undeliverable_here=True), settled=False)
    client.world.settle()
    session_link(client, "t")
    for session, condition in (
        (None, "com.microsoft:argument-error"),
        ("nobody", "com.microsoft:session-lock-lost"),
    ):
        assert by_number(client, session, number).properties["errorCondition"] == condition
    # Another session, even one that is held, does not help.
    assert by_number(client, "t", number).properties["statusCode"] in (404, 410)
    answer = by_number(client, "s", number)
    assert answer.properties["statusCode"] == 200
    assert [read(each["message"]).body for each in answer.body["messages"]] == [b"1"]
    # Its lock is the session's, and goes with it.
    link.detach()
    client.world.settle()
    token = answer.body["messages"][0]["lock-token"]
    body = {
        "disposition-status": "completed",
        "lock-tokens": Array([token], UUID),
        "session-id": "s",
    }
    lost = manage(client, "update-disposition", body)
    assert lost.properties["errorCondition"] == "com.microsoft:session-lock-lost"
    again = session_link(client, "s", credit=5)
    assert bodies(client, again) == [b"2"]
    answer = by_number(client, "s", number)
    body["lock-tokens"] = Array([answer.body["messages"][0]["lock-token"]], UUID)
    assert manage(client, "update-disposition", body).properties["statusCode"] == 200
    assert by_number(client, "s", number).properties["statusCode"] == 404


def test_a_session_whose_messages_have_expired_is_not_available(client: Any) -> None:
    link = client.sender("q")
    link.send(b"0001", payload(b"short", session="s", ttl_ms=1000))
    link.send(b"0002", payload(b"long", session="t"))
    client.world.settle()
    held = session_link(client, "u")
    client.world.advance(2_000)
    found = session_link(client, None, credit=5)
    assert client.answer_of(found).source.filter == {SESSION_FILTER: "t"}
    assert bodies(client, found) == [b"long"]
    # Also one that waits in the memory of a session that is held.
    link.send(b"0003", payload(b"short", session="u", ttl_ms=1000))
    link.send(b"0004", payload(b"long", session="u"))
    client.world.settle()
    client.world.advance(2_000)
    held.grant(5)
    client.world.settle()
    assert bodies(client, held) == [b"long"]


def test_a_scheduled_message_makes_its_session_available_in_time(client: Any) -> None:
    due_ms = client.world.clock.now_ms() + 5_000
    notes: dict[str, object] = {"x-opt-scheduled-enqueue-time": Timestamp(due_ms)}
    link = client.sender("q")
    link.send(b"0001", payload(b"later", session="s", annotations=notes))
    client.world.settle()
    waiting = session_link(client, None, credit=1)
    client.world.advance(4_000)
    assert not waiting.is_attached
    client.world.advance(2_000)
    assert client.answer_of(waiting).source.filter == {SESSION_FILTER: "s"}
    assert bodies(client, waiting) == [b"later"]


def test_A1_a_session_is_peeked_by_who_does_not_hold_it(client: Any) -> None:
    send(client, "s", b"1", b"2")
    send(client, "t", b"3")
    session_link(client, "s", credit=1)
    body = {"from-sequence-number": Long(0), "message-count": Int(10), "session-id": "s"}
    found = manage(client.world.authorised(), "peek-message", body).body["messages"]
    assert [read(each["message"]).body for each in found] == [b"1", b"2"]


def test_messages_of_sessions_are_not_deleted_in_batches(client: Any) -> None:
    body = {"message-count": Int(10), "enqueued-time-utc": Timestamp(ALL_MS)}
    answer = manage(client, "batch-delete-messages", body)
    assert answer.properties["errorCondition"] == "amqp:not-implemented"


def coordinate(client: Any, coordinator: Any, command: object) -> Any:
    """Send a command to the coordinator; its outcome."""
    number = coordinator.send(b"%04d" % len(client.events), b"\x00\x53\x77" + compose(command))
    client.world.settle()
    return client.outcomes(coordinator)[number]


def test_T3_a_session_is_worked_on_in_a_transaction_while_it_is_held(client: Any) -> None:
    attach = Attach(name="txn", source=Source(), target=Coordinator())
    coordinator = client.engine.attach_sender(client.session, attach)
    sender = send(client, "s", b"1", b"2")
    link = session_link(client, "s", credit=1)

    def complete_and_send(body: bytes) -> Any:
        """Complete what came last and send another of the same session, in one transaction."""
        txn_id = coordinate(client, coordinator, Declare()).txn_id
        got = client.deliveries(link)[-1]
        link.settle([got.delivery_id], TransactionalState(txn_id, ACCEPTED), settled=False)
        state = TransactionalState(txn_id, None)
        sender.send(body, payload(body, session="s"), state=state)
        client.world.settle()
        return Discharge(txn_id, False)

    assert isinstance(coordinate(client, coordinator, complete_and_send(b"3")), Accepted)
    link.grant(1)
    client.world.settle()
    assert bodies(client, link) == [b"1", b"2"]
    too_late = complete_and_send(b"4")
    client.world.advance(LOCK_MS)
    outcome = coordinate(client, coordinator, too_late)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "com.microsoft:session-lock-lost"
    again = session_link(client, "s", credit=9)
    assert bodies(client, again) == [b"2", b"3"]
