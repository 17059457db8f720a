"""Whatever a peer sends, in whatever pieces, the engine answers with events and never breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partibus.engine.connection import Connection
from partibus.engine.events import (
    Closed,
    Deliveries,
    Event,
    LinkAttached,
    LinkFlowed,
    SaslInitiated,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.wire.composites import compose
from partibus.wire.frames import AMQP_HEADER
from partibus.wire.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)

CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("*.hex"))
STREAMS = {path.stem: bytes.fromhex(path.read_text()) for path in CORPUS}
LIMITS = Limits(message_size_max=200_000)
# The answers of the driver are kept small, so that a damaged credit does not make a long test.
SENT_MAX = 4


class Driver:
    """A server that accepts and settles everything and sends a little where it may."""

    def __init__(self) -> None:
        self.connection = Connection.server(
            Open("server"), limits=LIMITS, now_ms=0, allow_no_sasl=True
        )
        self.log: list[str] = []

    def feed(self, data: bytes) -> None:
        self._handle(self.connection.receive_data(data, 0))
        self.connection.data_to_send()

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self._note(event)
            if isinstance(event, SaslInitiated):
                self._handle(self.connection.sasl_outcome(True))
            elif isinstance(event, LinkAttached):
                event.link.accept()
                if isinstance(event.link, ReceiverLink):
                    event.link.grant(100)
            elif isinstance(event, Deliveries):
                event.link.settle([d.delivery_id for d in event.deliveries], ACCEPTED)
            elif isinstance(event, LinkFlowed) and isinstance(event.link, SenderLink):
                count = min(event.link.sendable, SENT_MAX)
                event.link.send_many([(bytes(16), b"message")] * count)
                event.link.drained()

    def _note(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            self.log += [f"{event.link.name} {d.payload.hex()}" for d in event.deliveries]
        elif not isinstance(event, Settlements):
            # Which of our deliveries are settled depends on when we could send them.
            self.log.append(type(event).__name__)


def played(data: bytes, step: int) -> list[str]:
    driver = Driver()
    for start in range(0, len(data), step):
        driver.feed(data[start : start + step])
    return driver.log


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_means_the_same_however_it_is_cut(name: str) -> None:
    whole = played(STREAMS[name], len(STREAMS[name]))
    assert whole[-1] == "Closed"
    for step in (1, 7, 1000):
        assert sorted(played(STREAMS[name], step)) == sorted(whole)


@given(st.sampled_from(list(STREAMS)), st.data())
@settings(max_examples=300)
def test_a_damaged_stream_gives_events_or_a_close(name: str, draw: st.DataObject) -> None:
    data = bytearray(STREAMS[name][:5000])
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(data) - 1))
        data[at] = draw.draw(st.integers(0, 255))
    end = draw.draw(st.integers(0, len(data)))
    driver = Driver()
    driver.feed(bytes(data[:end]))
    driver.feed(bytes(data[end:]))
    driver.connection.receive_eof()
    assert driver.connection.is_closed


@given(st.binary(max_size=300))
def test_random_bytes_after_open_give_events_or_a_close(data: bytes) -> None:
    driver = Driver()
    driver.feed(AMQP_HEADER + frame(Open("c")) + frame(Begin(incoming_window=10), 1))
    driver.feed(data)
    driver.connection.receive_eof()
    assert driver.connection.is_closed


def frame(performative: object, channel: int = 0, payload: bytes = b"") -> bytes:
    body = compose(performative) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


SMALL = st.integers(0, 3)
UINTS = SMALL | st.integers(0, 0xFFFFFFFF)
FRAMES = st.one_of(
    st.builds(Begin, st.none() | SMALL, UINTS, UINTS, UINTS, UINTS),
    st.builds(Attach, st.sampled_from("ab"), SMALL, st.booleans()),
    st.builds(
        Flow,
        st.none() | UINTS,
        UINTS,
        UINTS,
        UINTS,
        st.none() | SMALL,
        st.none() | UINTS,
        st.none() | UINTS,
        st.none(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        Transfer,
        SMALL,
        st.none() | UINTS,
        st.none() | st.binary(max_size=3),
        more=st.booleans(),
        aborted=st.booleans(),
    ),
    st.builds(Disposition, st.booleans(), UINTS, st.none() | UINTS, st.booleans()),
    st.builds(Detach, SMALL, st.booleans()),
    st.builds(End),
)


@given(st.lists(st.tuples(FRAMES, SMALL), max_size=30))
@settings(max_examples=300)
def test_valid_frames_in_any_order_give_events_or_a_close(
    frames: list[tuple[object, int]],
) -> None:
    driver = Driver()
    driver.feed(AMQP_HEADER + frame(Open("c")))
    for performative, channel in frames:
        driver.feed(
            frame(performative, channel, b"x" if isinstance(performative, Transfer) else b"")
        )
    driver.connection.receive_eof()
    assert driver.connection.is_closed
    assert driver.log.count(Closed.__name__) <= 1
