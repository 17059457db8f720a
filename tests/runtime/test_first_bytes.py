"""What the first bytes of a connection tell, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.runtime.first_bytes import REQUEST_LINE_BYTES_MAX, Speech, tell

SPOKEN = [
    (b"AMQP\x03\x01\x00\x00", Speech.AMQP),
    (b"AMQP\x00\x01\x00\x00\x00\x00\x00\x1a", Speech.AMQP),
    (b"GET /health HTTP/1.1\r\n", Speech.HTTP),
    (b"PUT /queue?api-version=2017-04 HTTP/1.1\r\n", Speech.HTTP),
    (b"GET /$servicebus/websocket HTTP/1.1\r\n", Speech.WEBSOCKET),
    (b"GET /$servicebus/websocket/ HTTP/1.1\r\n", Speech.WEBSOCKET),
    (b"GET /%24ServiceBus/websocket?x=1 HTTP/1.1\r\n", Speech.WEBSOCKET),
    (b"GET /$servicebus/websockets HTTP/1.1\r\n", Speech.HTTP),
    (b"POST /$servicebus/websocket HTTP/1.1\r\n", Speech.HTTP),
    (b"GET /line\n", Speech.HTTP),
    (b"\x16\x03\x01\x02\x00", Speech.RUBBISH),
    (b"\x00\x00\x00\x08\x02\x00\x00\x00", Speech.RUBBISH),
    (b"SSH-2.0-OpenSSH_9.6\r\n", Speech.RUBBISH),
    (b"get / HTTP/1.1\r\n", Speech.RUBBISH),
    (b"A" * 17, Speech.RUBBISH),
    (b" /health HTTP/1.1", Speech.RUBBISH),
]


@pytest.mark.parametrize(("sent", "speech"), SPOKEN)
def test_A4_each_protocol_is_known_by_its_beginning(sent: bytes, speech: Speech) -> None:
    assert tell(sent) is speech


@pytest.mark.parametrize(("sent", "speech"), SPOKEN)
def test_A4_bytes_that_come_one_by_one_tell_the_same(sent: bytes, speech: Speech) -> None:
    told = [tell(sent[:length]) for length in range(len(sent) + 1)]
    first = next(index for index, each in enumerate(told) if each is not None)
    assert set(told[:first]) <= {None}
    assert set(told[first:]) == {speech}


def test_A4_a_request_line_without_end_is_not_waited_for() -> None:
    assert tell(b"GET /" + b"x" * REQUEST_LINE_BYTES_MAX) is Speech.HTTP


@given(st.binary(max_size=64))
def test_A4_no_bytes_are_waited_on_for_ever(sent: bytes) -> None:
    assert tell(sent + b"\0" * 32) is not None or sent.startswith(b"GET ")
