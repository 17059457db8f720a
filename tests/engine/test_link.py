"""Promises of sessions and links: credit, windows, deliveries, outcomes and how links end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_pair import Pair

from partibus.engine.errors import LocalProtocolError
from partibus.engine.events import (
    Deliveries,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    SessionEnded,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink
from partibus.wire.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Coordinator,
    Error,
    Modified,
    Received,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from partibus.wire.transfer import write_disposition


def payloads(events: list[Deliveries]) -> list[list[bytes]]:
    return [[delivery.payload for delivery in event.deliveries] for event in events]


def ids(event: Settlements) -> list[int]:
    return [delivery_id for delivery_id, _ in event.deliveries]


def test_an_attach_is_answered_with_the_peers_own_source_and_target() -> None:
    pair = Pair()
    session = pair.client.begin()
    source = Source("amqps://host:5671/Queue", filter={"x": "y"})
    link = pair.client.attach_receiver(session, Attach("l", source=source, target=Target("t")))
    pair.join()
    (attached,) = pair.take_server(LinkAttached)
    assert not attached.answer
    attached.link.accept(max_message_size=1000, properties={"p": 1})
    pair.join()
    (answer,) = pair.take_client(LinkAttached)
    assert answer.answer
    assert answer.link is link
    assert answer.attach.source == source
    assert answer.attach.target == Target("t")
    assert answer.attach.initial_delivery_count == 0
    assert answer.attach.max_message_size == 1000
    assert link.is_attached


def test_a_refused_link_is_attached_without_source_and_target_then_detached() -> None:
    pair = Pair()
    pair.client.attach_sender(pair.client.begin(), Attach("l", target=Target("nowhere")))
    pair.join()
    (attached,) = pair.take_server(LinkAttached)
    attached.link.refuse(Error("amqp:not-found", "no such entity"))
    pair.join()
    (answer,) = pair.take_client(LinkAttached)
    assert (answer.attach.source, answer.attach.target) == (None, None)
    (detached,) = pair.take_client(LinkDetached)
    assert (detached.closed, detached.error) == (True, Error("amqp:not-found", "no such entity"))
    assert len(pair.take_server(LinkDetached)) == 1


def test_messages_of_one_read_come_as_one_event_per_link() -> None:
    pair = Pair()
    session = pair.client.begin()
    first, at_first = pair.up(session, "a")
    second, at_second = pair.up(session, "b")
    at_first.grant(10)
    at_second.grant(10)
    pair.join()
    first.send(b"1", b"one")
    second.send(b"2", b"two")
    first.send(b"3", b"three", settled=True)
    pair.join()
    events = pair.take_server(Deliveries)
    assert payloads(events) == [[b"one", b"three"], [b"two"]]
    assert [d.delivery_id for d in events[0].deliveries] == [0, 2]
    assert [d.settled for d in events[0].deliveries] == [False, True]
    assert [d.tag for d in events[0].deliveries] == [b"1", b"3"]


def test_a_transaction_coordinator_gets_an_event_per_message() -> None:
    pair = Pair()
    session = pair.client.begin()
    link = pair.client.attach_sender(session, Attach("tx", target=Coordinator()))
    pair.join()
    attached = pair.take_server(LinkAttached)[0].link
    assert isinstance(attached, ReceiverLink)
    attached.accept()
    attached.grant(10)
    pair.join()
    link.send_many([(b"1", b"declare"), (b"2", b"discharge")])
    pair.join()
    assert payloads(pair.take_server(Deliveries)) == [[b"declare"], [b"discharge"]]


@pytest.mark.parametrize("chunk", [0, 1, 513])
def test_a_large_message_is_split_and_joined(chunk: int) -> None:
    pair = Pair(server_limits=Limits(frame_size=1024), chunk=chunk)
    link, at_server = pair.up(pair.client.begin())
    at_server.grant(10)
    pair.join()
    message = bytes(range(256)) * 20
    link.send(b"t", message, message_format=0x80013700, state=TransactionalState(b"txn"))
    link.send(b"u", b"")
    pair.join()
    found = [d for event in pair.take_server(Deliveries) for d in event.deliveries]
    assert [d.payload for d in found] == [message, b""]
    assert found[0].message_format == 0x80013700
    assert found[0].state == TransactionalState(b"txn")
    assert at_server.delivery_count == 2


def test_a_message_beyond_the_limit_detaches_its_link_only() -> None:
    pair = Pair(server_limits=Limits(message_size_max=5000))
    session = pair.client.begin()
    link, at_server = pair.up(session, "a")
    other, at_other = pair.up(session, "b")
    at_server.grant(5)
    at_other.grant(5)
    pair.join()
    link.send(b"t", bytes(5001))
    other.send(b"t", b"fine")
    pair.join()
    (detached,) = pair.take_client(LinkDetached)
    assert detached.link is link
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:message-size-exceeded"
    assert len(pair.take_server(LinkDetached)) == 1
    assert payloads(pair.take_server(Deliveries)) == [[b"fine"]]


def test_sending_without_credit_is_our_own_mistake() -> None:
    pair = Pair()
    link, at_server = pair.up(pair.client.begin())
    with pytest.raises(LocalProtocolError):
        link.send(b"t", b"x")
    at_server.grant(1)
    pair.join()
    link.send(b"t", b"x")
    with pytest.raises(LocalProtocolError):
        link.send_many([(b"t", b"x")])


def test_deliveries_without_credit_are_taken_and_counted() -> None:
    pair = Pair()
    link, at_server = pair.up(pair.client.begin())
    link.credit = 3
    link.send_many([(b"t", b"x")] * 3)
    pair.join()
    assert len(pair.take_server(Deliveries)[0].deliveries) == 3
    assert (at_server.overrun, at_server.credit) == (3, 0)


def test_credit_counts_down_on_both_sides_and_is_set_not_added() -> None:
    pair = Pair()
    link, at_server = pair.up(pair.client.begin())
    at_server.grant(5)
    pair.join()
    link.send_many([(b"t", b"x")] * 2)
    assert link.credit == link.sendable == 3
    pair.join()
    assert at_server.credit == 3
    at_server.grant(5)
    pair.join()
    assert link.credit == 5
    link.send(b"t", b"x")
    at_server.grant(5)  # crosses the message on the wire
    pair.join()
    assert link.credit == 4


def test_a_drain_is_answered_with_the_credit_used_up() -> None:
    pair = Pair()
    link, at_server = pair.down(pair.client.begin())
    link.grant(10, drain=True)
    pair.join()
    assert at_server.drain
    at_server.send(b"t", b"x")
    at_server.drained()
    pair.join()
    assert [event.link for event in pair.take_client(LinkFlowed)] == [link]
    assert (link.credit, link.drain, link.delivery_count) == (0, False, 10)
    assert at_server.credit == 0


def test_an_echo_is_answered_without_the_driver() -> None:
    pair = Pair()
    link, _ = pair.down(pair.client.begin())
    link.grant(3)
    pair.join()
    link.write_flow(3, echo=True)
    pair.server.receive_data(pair.client.data_to_send(), 0)
    assert pair.server.data_to_send() != b""


def test_outcomes_of_a_range_are_reported_once_with_their_tags() -> None:
    pair = Pair()
    link, at_server = pair.down(pair.client.begin())
    link.grant(10)
    pair.join()
    at_server.send_many([(bytes([n]), b"x") for n in range(5)])
    pair.join()
    link.settle([0, 1, 2, 4], ACCEPTED, settled=False)
    pair.join()
    (settlements,) = pair.take_server(Settlements)
    assert settlements.deliveries == [(0, b"\0"), (1, b"\1"), (2, b"\2"), (4, b"\4")]
    assert (settlements.state, settlements.settled) == (ACCEPTED, False)
    at_server.settle(ids(settlements), settlements.state)
    pair.join()
    confirmed = pair.take_client(Settlements)
    assert [i for event in confirmed for i in ids(event)] == [0, 1, 2, 4]
    assert all(event.settled and event.link is link for event in confirmed)
    link.settle([0, 3], RELEASED)
    pair.join()
    (late,) = pair.take_server(Settlements)
    assert (ids(late), late.state, late.settled) == ([3], RELEASED, True)


def test_a_state_on_the_way_is_no_outcome() -> None:
    pair = Pair()
    link, at_server = pair.down(pair.client.begin())
    link.grant(10)
    pair.join()
    at_server.send(b"t", b"x")
    pair.join()
    link.settle([0], Received(0, 0), settled=False)
    pair.join()
    assert pair.take_server(Settlements) == []
    link.settle([0], Rejected(Error("a", "b", {"c": 1})), settled=False)
    pair.join()
    assert pair.take_server(Settlements)[0].state == Rejected(Error("a", "b", {"c": 1}))


@given(st.lists(st.sampled_from([ACCEPTED, RELEASED, Modified(True)]), max_size=30), st.data())
def test_every_delivery_gets_its_own_outcome_once(
    states: list[object], draw: st.DataObject
) -> None:
    pair = Pair()
    session = pair.client.begin()
    links = [pair.down(session, name) for name in ("a", "b")]
    for link, _ in links:
        link.grant(100)
    pair.join()
    sent = {}
    for state in states:
        link, at_server = draw.draw(st.sampled_from(links))
        sent[at_server.send(b"tag", b"x")] = (link, at_server, state)
    pair.join()
    for link, _ in links:
        for state in (ACCEPTED, RELEASED, Modified(True)):
            chosen = [i for i, (on, _, given) in sent.items() if on is link and given == state]
            link.settle(chosen, state, settled=False)
    pair.join()
    reported = [(i, e.link, e.state) for e in pair.take_server(Settlements) for i in ids(e)]
    assert sorted(i for i, _, _ in reported) == sorted(sent)
    assert all(sent[i][1:] == (link, state) for i, link, state in reported)


def test_a_range_may_be_far_wider_than_what_is_open() -> None:
    pair = Pair()
    link, at_server = pair.down(pair.client.begin())
    link.grant(2)
    pair.join()
    at_server.send_many([(b"a", b"x"), (b"b", b"x")])
    pair.join()
    write_disposition(pair.client._output.writer, 0, True, 0, 0xFFFFFFFE, True, b"")
    pair.join()
    assert ids(pair.take_server(Settlements)[0]) == [0, 1]


def test_transfers_wait_for_the_peers_window() -> None:
    pair = Pair(client_limits=Limits(incoming_window=4))
    link, at_server = pair.down(pair.client.begin())
    link.grant(100)
    pair.join()
    at_server.send_many([(b"t", bytes([n])) for n in range(10)])
    assert not at_server.session.can_send
    assert at_server.sendable == 0
    pair.join()
    found = [d.payload for event in pair.take_client(Deliveries) for d in event.deliveries]
    assert found == [bytes([n]) for n in range(10)]
    assert at_server.sendable == 90
    assert at_server in [event.link for event in pair.take_server(LinkFlowed)]


def test_our_own_window_never_closes() -> None:
    pair = Pair(server_limits=Limits(incoming_window=10))
    link, at_server = pair.up(pair.client.begin())
    at_server.grant(1000)
    pair.join()
    for _ in range(20):
        link.send_many([(b"t", b"x")] * 10)
        pair.join()
    assert sum(len(e.deliveries) for e in pair.take_server(Deliveries)) == 200
    assert link.session.queued_bytes == 0


def test_unsettled_deliveries_are_bounded() -> None:
    pair = Pair(server_limits=Limits(unsettled_max=3))
    link, at_server = pair.down(pair.client.begin())
    link.grant(100)
    pair.join()
    at_server.send_many([(b"t", b"x")] * 3)
    assert at_server.sendable == 0
    pair.join()
    link.settle([1], ACCEPTED)
    pair.join()
    assert at_server.sendable == 97


def test_a_name_attached_again_steals_the_link() -> None:
    pair = Pair()
    old, at_old = pair.up(pair.client.begin(), "same")
    pair.client._channels._names.taken.clear()
    pair.up(pair.client.begin(), "same")
    (detached,) = pair.take_client(LinkDetached)
    assert detached.link is old
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:stolen"
    assert [event.link for event in pair.take_server(LinkDetached)] == [at_old]


def test_both_directions_may_have_the_same_name() -> None:
    pair = Pair()
    session = pair.client.begin()
    pair.up(session, "$cbs")
    pair.down(session, "$cbs")
    assert pair.take_client(LinkDetached) == []


def test_a_detach_frees_name_handle_and_unsettled_deliveries() -> None:
    pair = Pair()
    session = pair.client.begin()
    for _ in range(3):
        link, at_server = pair.down(session, "again")
        link.grant(1)
        pair.join()
        at_server.send(b"t", b"x")
        pair.join()
        assert at_server.session.unsettled
        link.detach()
        pair.join()
        assert not at_server.session.unsettled
        assert [event.link for event in pair.take_client(LinkDetached)] == [link]
        assert [event.link for event in pair.take_server(LinkDetached)] == [at_server]
        assert link.handle == at_server.handle == 0
        assert pair.server.links(at_server.session) == []


def test_a_client_may_give_up_an_attach_that_is_not_answered_yet() -> None:
    pair = Pair()
    session = pair.client.begin()
    link = pair.client.attach_receiver(session, Attach("wait", source=Source("q")))
    pair.join()
    held = pair.take_server(LinkAttached)[0].link
    link.detach()
    pair.join()
    assert [event.link for event in pair.take_server(LinkDetached)] == [held]
    assert [event.link for event in pair.take_client(LinkDetached)] == [link]
    held.accept()
    assert pair.server.data_to_send() == b""


def test_an_error_on_a_session_ends_it_with_its_links_and_nothing_else() -> None:
    pair = Pair()
    session = pair.client.begin()
    link, at_server = pair.up(session)
    other, at_other = pair.up(pair.client.begin(), "other")
    at_server.grant(5)
    at_other.grant(5)
    pair.join()
    link._writer = type(link._writer)(session.channel, 77)
    link.send(b"t", b"x")
    other.send(b"t", b"fine")
    pair.join()
    (ended,) = pair.take_server(SessionEnded)
    assert ended.links == [at_server]
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"
    assert len(pair.take_client(SessionEnded)) == 1
    assert payloads(pair.take_server(Deliveries)) == [[b"fine"]]


def test_links_of_a_session_are_bounded() -> None:
    pair = Pair(server_limits=Limits(links_per_session_max=2))
    session = pair.client.begin()
    for name in ("a", "b", "c"):
        pair.client.attach_sender(session, Attach(name))
    pair.join()
    (ended,) = pair.take_client(SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
