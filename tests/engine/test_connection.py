"""Promises of a connection: handshake, limits, time and the end, in both roles."""

from __future__ import annotations

import pytest
from wire_pair import Pair

from partibus.engine.connection import Connection
from partibus.engine.errors import LocalProtocolError
from partibus.engine.events import (
    Closed,
    LinkAttached,
    Opened,
    SaslFinished,
    SaslInitiated,
    SessionBegun,
    SessionEnded,
)
from partibus.engine.limits import Limits
from partibus.wire.composites import compose
from partibus.wire.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, TLS_HEADER
from partibus.wire.performatives import Attach, Begin, Close, Error, Open, SaslInit

LIMITS = Limits()


def frame(performative: object, channel: int = 0, frame_type: int = 0) -> bytes:
    body = compose(performative)
    head = (len(body) + 8).to_bytes(4, "big") + bytes((2, frame_type))
    return head + channel.to_bytes(2, "big") + body


def server(*, allow_no_sasl: bool = True, limits: Limits = LIMITS) -> Connection:
    return Connection.server(Open("server"), limits=limits, now_ms=0, allow_no_sasl=allow_no_sasl)


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL", None])
@pytest.mark.parametrize("chunk", [0, 1, 7])
def test_both_sides_open(mechanism: str | None, chunk: int) -> None:
    pair = Pair(mechanism=mechanism, response=b"\0user\0key", chunk=chunk)
    pair.join()
    assert pair.server.is_open
    assert pair.client.is_open
    assert [event.open.container_id for event in pair.take_server(Opened)] == ["client"]
    assert [event.open.container_id for event in pair.take_client(Opened)] == ["server"]
    expected = [] if mechanism is None else [SaslInitiated(mechanism, b"\0user\0key")]
    assert pair.take_server(SaslInitiated) == expected


def test_mechanisms_are_offered_in_the_order_of_the_service() -> None:
    side = server()
    side.receive_data(SASL_HEADER, 0)
    offered = side.data_to_send()
    places = [offered.index(name) for name in (b"MSSBCBS", b"PLAIN", b"ANONYMOUS", b"EXTERNAL")]
    assert places == sorted(places)


def test_everything_may_come_in_one_read() -> None:
    side = server(allow_no_sasl=False)
    init = frame(SaslInit("ANONYMOUS", b""), frame_type=1)
    rest = AMQP_HEADER + frame(Open("c")) + frame(Begin(), 1) + frame(Attach("l"), 1)
    assert side.receive_data(SASL_HEADER + init + rest, 0) == [SaslInitiated("ANONYMOUS", b"")]
    events = side.sasl_outcome(True)
    assert [type(event) for event in events] == [Opened, SessionBegun, LinkAttached]


def test_a_client_that_is_not_let_in_hears_it_and_is_gone() -> None:
    pair = Pair(allows=False)
    pair.join()
    assert pair.take_client(SaslFinished) == [SaslFinished(False)]
    assert pair.server.is_closed
    assert pair.client.is_closed


def test_a_mechanism_that_was_not_offered_ends_the_exchange() -> None:
    side = server()
    data = SASL_HEADER + frame(SaslInit("GSSAPI"), frame_type=1)
    (closed,) = side.receive_data(data, 0)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("header", [b"GET / HT", TLS_HEADER, AMQP_HEADER])
def test_a_wrong_header_is_answered_with_the_right_one(header: bytes) -> None:
    side = server(allow_no_sasl=False)
    events = side.receive_data(header, 0)
    assert [type(event) for event in events] == [Closed]
    assert side.data_to_send() == SASL_HEADER


def test_a_decision_nobody_waits_for_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        server().sasl_outcome(True)


def test_the_close_of_one_side_is_answered_by_the_other() -> None:
    pair = Pair()
    pair.join()
    pair.client.close(Error("amqp:connection:forced", "bye"))
    pair.join()
    (closed,) = pair.take_server(Closed)
    assert closed.error == Error("amqp:connection:forced", "bye")
    assert pair.take_client(Closed) == [Closed(None)]
    assert pair.client.receive_data(b"anything", 0) == []


def test_a_close_without_answer_ends_by_itself() -> None:
    pair = Pair()
    pair.join()
    pair.server.close()
    deadline = pair.server.next_deadline_ms()
    assert deadline == LIMITS.time_to_close_ms
    assert pair.server.advance(deadline) == [Closed(None)]
    assert pair.server.next_deadline_ms() is None


def test_a_lost_transport_is_reported_once() -> None:
    pair = Pair()
    pair.join()
    (closed,) = pair.server.receive_eof()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert pair.server.receive_eof() == []


def test_a_peer_that_does_not_open_in_time_is_dropped() -> None:
    side = server()
    assert side.advance(LIMITS.time_to_open_ms - 1) == []
    assert [type(event) for event in side.advance(LIMITS.time_to_open_ms)] == [Closed]


def test_empty_frames_keep_an_idle_peer_content() -> None:
    pair = Pair(client_idle_ms=10_000)
    pair.join()
    assert pair.server.next_deadline_ms() == 5_000
    assert pair.server.advance(4_999) == []
    assert pair.server.data_to_send() == b""
    pair.server.advance(5_000)
    assert pair.server.data_to_send() == EMPTY_FRAME
    assert pair.server.next_deadline_ms() == 10_000


def test_a_silent_peer_is_dropped_after_our_idle_time_out() -> None:
    pair = Pair(server_idle_ms=10_000)
    pair.join()
    assert pair.server.next_deadline_ms() == 10_000
    pair.server.receive_data(EMPTY_FRAME, 9_000)
    assert pair.server.advance(10_000) == []
    (closed,) = pair.server.advance(19_000)
    assert isinstance(closed, Closed)
    assert b"amqp:resource-limit-exceeded" in pair.server.data_to_send()


def opened() -> Connection:
    side = server()
    side.receive_data(AMQP_HEADER + frame(Open("c")), 0)
    side.data_to_send()
    return side


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\xff\xff\xff\xff\x02\x00\x00\x00", b"amqp:connection:framing-error"),
        (b"\x00\x00\x00\x09\x02\x00\x00\x00\x57", b"amqp:decode-error"),
        (b"\x00\x00\x00\x09\x02\x01\x00\x00\x57", b"amqp:connection:framing-error"),
        (frame(Attach("l"), 9), b"amqp:not-allowed"),
        (frame(Open("again")), b"amqp:not-allowed"),
        (frame(Begin(), 60_000), b"amqp:not-allowed"),
        (frame(Begin(remote_channel=3)), b"amqp:not-allowed"),
        (frame(Begin()) + frame(Begin()), b"amqp:not-allowed"),
    ],
)
def test_an_error_of_the_peer_closes_the_connection_with_its_condition(
    data: bytes, condition: bytes
) -> None:
    side = opened()
    events = side.receive_data(data, 0)
    assert isinstance(events[-1], Closed)
    assert condition in side.data_to_send()
    assert side.is_closed


def test_no_large_frame_is_gathered_before_open() -> None:
    side = server()
    data = frame(Open("c" * 5000))
    assert [type(e) for e in side.receive_data(AMQP_HEADER + data[:8], 0)] == [Closed]


def test_a_frame_size_below_the_least_is_refused() -> None:
    side = server()
    events = side.receive_data(AMQP_HEADER + frame(Open("c", max_frame_size=100)), 0)
    assert [type(event) for event in events] == [Closed]


def test_sessions_are_bounded() -> None:
    side = server(limits=Limits(sessions_max=2))
    data = AMQP_HEADER + frame(Open("c")) + b"".join(frame(Begin(), n) for n in range(3))
    assert isinstance(side.receive_data(data, 0)[-1], Closed)
    assert b"amqp:resource-limit-exceeded" in side.data_to_send()


def test_sessions_begin_and_end_and_their_channels_are_free_again() -> None:
    pair = Pair()
    for _ in range(3):
        session = pair.client.begin()
        pair.join()
        assert [event.session for event in pair.take_client(SessionBegun)] == [session]
        session.end(Error("a", "b"))
        pair.join()
        assert [event.session for event in pair.take_client(SessionEnded)] == [session]
        assert [event.error for event in pair.take_server(SessionEnded)] == [Error("a", "b")]
        assert session.channel == 0


def test_a_close_before_open_says_nothing_of_sessions() -> None:
    side = server()
    side.receive_data(AMQP_HEADER, 0)
    side.close(Error("amqp:connection:forced", "shutting down"))
    assert side.is_closed
    assert compose(Close(Error("amqp:connection:forced", "shutting down"))) in side.data_to_send()
