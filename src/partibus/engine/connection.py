"""One AMQP connection, in either role: bytes in, events out, bytes out.

Theory of operation. The phase says what the next bytes of the peer must be:

    server   SASL_HEADER -> SASL -> (driver: sasl_outcome) -> AMQP_HEADER -> OPEN -> RUNNING
    client   SASL_HEADER -> SASL ------------------------------> AMQP_HEADER -> OPEN -> RUNNING
    both     RUNNING -> CLOSING (our close is out) -> CLOSED

A peer may send everything at once; what follows a sasl-init waits until the driver has decided.
What a client writes before SASL is done is held back. The engine answers open, begin, end, detach,
close and echo by itself; attach is answered by the driver. Errors of the peer become detach, end
or close with the error and an event; no exception leaves this class for what a peer does.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from mypy_extensions import i64

from partibus.engine.endpoint import AnyLink, Endpoint, Names
from partibus.engine.errors import LocalProtocolError, ProtocolError, Scope
from partibus.engine.events import (
    Closed,
    Event,
    Opened,
    SaslFinished,
    SaslInitiated,
    SessionBegun,
    SessionEnded,
)
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.engine.output import Output
from partibus.engine.sasl import (
    answer_mechanisms,
    mechanisms_frame,
    outcome_frame,
    take_init,
    take_outcome,
)
from partibus.engine.session import Session, SessionState
from partibus.wire.composites import decode_composite
from partibus.wire.errors import DecodeError
from partibus.wire.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_AMQP,
    FRAME_SASL,
    FRAME_SIZE_MIN,
    SASL_HEADER,
    FrameSplitter,
    FramingError,
)
from partibus.wire.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
)
from partibus.wire.transfer import DISPOSITION, TRANSFER, DispositionFrame, TransferFrame


class Phase(Enum):
    """What the peer's next bytes must be; see the top of this file."""

    SASL_HEADER = "SASL header"
    SASL = "SASL frames"
    SASL_DECISION = "the driver's decision"
    AMQP_HEADER = "AMQP header"
    OPEN = "open"
    RUNNING = "frames"
    CLOSING = "close"
    CLOSED = "nothing"


# Members that every frame is compared with: a global is found faster than an attribute.
_RUNNING: Final = Phase.RUNNING
_ACTIVE: Final = SessionState.ACTIVE
_HEADER_PHASES: Final = (Phase.SASL_HEADER, Phase.AMQP_HEADER)


class Connection:
    """The engine of one connection. `context` belongs to the driver.

    Make it with `Connection.server` or `Connection.client`. After every call that may write, send
    what `data_to_send` gives.
    """

    def __init__(
        self,
        open: Open,
        *,
        limits: Limits,
        now_ms: int,
        is_server: bool,
        mechanism: str | None = None,
        response: bytes = b"",
        allow_no_sasl: bool = False,
    ) -> None:
        self.context: object = None
        self.limits: Limits = limits
        self.peer_open: Open | None = None
        self.phase: Phase = Phase.SASL_HEADER
        self._open: Open = open
        self._is_server: bool = is_server
        self._mechanism: str | None = mechanism
        self._response: bytes = response
        self._allow_no_sasl: bool = allow_no_sasl
        self._output: Output = Output()
        # Headers and SASL frames: they go before anything of `_output`.
        self._preface: list[bytes] = []
        self._is_output_held: bool = not is_server
        self._splitter: FrameSplitter = FrameSplitter(limits.frame_size_before_open)
        self._transfer: TransferFrame = TransferFrame()
        self._disposition: DispositionFrame = DispositionFrame()
        self._names: Names = Names()
        # By the peer's channel, and by ours.
        self._incoming: dict[int, Endpoint] = {}
        self._outgoing: dict[int, Endpoint] = {}
        self._now_ms: int = now_ms
        self._last_received_ms: int = now_ms
        self._last_sent_ms: int = now_ms
        # Until when the handshake, or the closing, must be finished.
        self._phase_deadline_ms: int = now_ms + limits.time_to_open_ms
        open.max_frame_size = limits.frame_size
        open.channel_max = limits.channel_max

    @classmethod
    def server(
        cls, open: Open, *, limits: Limits, now_ms: int, allow_no_sasl: bool = False
    ) -> Connection:
        """A connection somebody made to us; `open` is what we shall answer."""
        return cls(open, limits=limits, now_ms=now_ms, is_server=True, allow_no_sasl=allow_no_sasl)

    @classmethod
    def client(
        cls,
        open: Open,
        *,
        limits: Limits,
        now_ms: int,
        mechanism: str | None = "ANONYMOUS",
        response: bytes = b"",
    ) -> Connection:
        """A connection we make. `mechanism` None skips SASL; PLAIN has `\\0user\\0password`."""
        connection = cls(
            open,
            limits=limits,
            now_ms=now_ms,
            is_server=False,
            mechanism=mechanism,
            response=response,
        )
        if mechanism is None:
            connection.phase = Phase.AMQP_HEADER
            connection._release_output()
        else:
            connection._preface.append(SASL_HEADER)
        connection._output.perform(0, open)
        return connection

    @property
    def is_open(self) -> bool:
        """Whether both sides have opened and none has closed."""
        return self.phase is Phase.RUNNING

    @property
    def is_closed(self) -> bool:
        """Whether Closed has been reported; nothing more will come."""
        return self.phase is Phase.CLOSED

    @property
    def buffered(self) -> int:
        """Bytes that came in and are not yet processed."""
        return self._splitter.buffered

    def links(self, session: Session) -> list[AnyLink]:
        """The links of a session that have not ended."""
        endpoint = self._outgoing.get(session.channel)
        if endpoint is None or endpoint.session is not session:
            return []
        return endpoint.links

    # What the driver calls for the transport.

    def receive_data(self, data: bytes, now_ms: int) -> list[Event]:
        """Take what the transport gave; what happened by it comes back."""
        self._now_ms = now_ms
        self._last_received_ms = now_ms
        if self.phase is Phase.CLOSED:
            return []
        self._splitter.feed(data)
        return self._process()

    def receive_eof(self) -> list[Event]:
        """The peer has closed the transport."""
        if self.phase is Phase.CLOSED:
            return []
        was_closing = self.phase is Phase.CLOSING
        self.phase = Phase.CLOSED
        lost = Error("amqp:connection:forced", "the transport was closed without an AMQP close")
        return [Closed(None if was_closing else lost)]

    def data_to_send(self) -> bytes:
        """Take what is to be written to the transport now; b"" when nothing."""
        if self._preface:
            data = b"".join(self._preface)
            self._preface = []
            if not self._is_output_held:
                data += self._output.take()
        elif self._is_output_held:
            return b""
        else:
            data = self._output.take()
        if data:
            self._last_sent_ms = self._now_ms
        return data

    def next_deadline_ms(self) -> int | None:
        """When `advance` should be called, if nothing happens before."""
        if self.phase is Phase.CLOSED:
            return None
        if self.phase is not Phase.RUNNING:
            return self._phase_deadline_ms
        deadlines: list[int] = []
        if self._open.idle_time_out:
            deadlines.append(self._last_received_ms + self._open.idle_time_out)
        if self.peer_open is not None and self.peer_open.idle_time_out:
            deadlines.append(self._last_sent_ms + self.peer_open.idle_time_out // 2)
        return min(deadlines) if deadlines else None

    def advance(self, now_ms: int) -> list[Event]:
        """Do what the time demands: empty frames, and an end to a silent peer."""
        self._now_ms = max(now_ms, self._now_ms)
        deadline = self.next_deadline_ms()
        if deadline is None or now_ms < deadline:
            return []
        if self.phase is Phase.CLOSING:
            self.phase = Phase.CLOSED
            return [Closed(None)]
        events: list[Event] = []
        if self.phase is not Phase.RUNNING:
            late = Error("amqp:connection:forced", f"waited too long for {self.phase.value}")
            self._fail(late, events)
            return events
        idle = self._open.idle_time_out
        if idle and now_ms >= self._last_received_ms + idle:
            silent = Error("amqp:resource-limit-exceeded", f"nothing was received for {idle} ms")
            self._fail(silent, events)
            return events
        self._output.writer.write(EMPTY_FRAME)
        self._last_sent_ms = now_ms
        return events

    # What the driver calls for the protocol.

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Answer SaslInitiated; what the client had sent behind it is processed now."""
        if self.phase is not Phase.SASL_DECISION:
            raise LocalProtocolError("no SASL exchange waits for a decision")
        self._preface.append(outcome_frame(ok))
        if not ok:
            self.phase = Phase.CLOSED
            return [Closed(Error("amqp:unauthorized-access", "SASL authentication failed"))]
        self.phase = Phase.AMQP_HEADER
        return self._process()

    def begin(self) -> Session:
        """Begin a session; links may be attached to it at once."""
        endpoint = self._new_endpoint()
        endpoint.session.begin(None)
        return endpoint.session

    def attach_sender(self, session: Session, attach: Attach) -> SenderLink:
        """Attach a link on which we send; its handle and role are set here."""
        link = self._outgoing[session.channel].initiate(attach, ROLE_SENDER)
        assert isinstance(link, SenderLink)
        return link

    def attach_receiver(self, session: Session, attach: Attach) -> ReceiverLink:
        """Attach a link on which we receive; its handle and role are set here."""
        link = self._outgoing[session.channel].initiate(attach, ROLE_RECEIVER)
        assert isinstance(link, ReceiverLink)
        return link

    def close(self, error: Error | None = None) -> None:
        """Write close; Closed follows with the peer's answer, or after `time_to_close_ms`."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        if self._is_server and self.phase is not Phase.RUNNING:
            # §2.4.6: whoever closes must have opened; before SASL is done there is nothing to say.
            if self.phase is Phase.OPEN:
                self._output.perform(0, self._open)
                self._output.perform(0, Close(error))
            self.phase = Phase.CLOSED
            return
        self._output.perform(0, Close(error))
        self.phase = Phase.CLOSING
        self._phase_deadline_ms = self._now_ms + self.limits.time_to_close_ms

    # The peer's bytes.

    def _process(self) -> list[Event]:
        """Work through what has been received, as far as it goes."""
        events: list[Event] = []
        try:
            while self._step(events):
                pass
        # Each clause has its own name: compiled, a variable has one type.
        except FramingError as framing_error:
            self._fail(Error("amqp:connection:framing-error", str(framing_error)), events)
        except DecodeError as decode_error:
            self._fail(Error("amqp:decode-error", str(decode_error)), events)
        except ProtocolError as protocol_error:
            self._fail(protocol_error.error, events)
        for endpoint in self._incoming.values():
            endpoint.finish_batches()
        return events

    def _step(self, events: list[Event]) -> bool:
        """Process one header or frame; False when there is none, or none is wanted."""
        if self.phase is _RUNNING or self.phase is Phase.CLOSING:
            splitter = self._splitter
            if not splitter.next_frame():
                return False
            if splitter.frame_type != FRAME_AMQP:
                raise ProtocolError(
                    Scope.CONNECTION, "amqp:connection:framing-error", "no AMQP frame"
                )
            if splitter.body < splitter.end:
                self._on_frame(splitter, events)
            return True
        if self.phase in _HEADER_PHASES:
            header = self._splitter.next_header()
            if header:
                self._on_header(header)
            return bool(header)
        if self.phase is Phase.SASL or self.phase is Phase.OPEN:
            return self._step_handshake(events)
        return False

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and self.phase is Phase.SASL_HEADER:
            if self._is_server:
                self._preface += [SASL_HEADER, mechanisms_frame()]
            self.phase = Phase.SASL
            return
        may_skip = self._is_server and self._allow_no_sasl
        if header == AMQP_HEADER and (self.phase is Phase.AMQP_HEADER or may_skip):
            if self._is_server:
                self._preface.append(AMQP_HEADER)
            self.phase = Phase.OPEN
            return
        # §2.2: answer with the header we would have taken, then close the transport.
        if self._is_server:
            wanted = SASL_HEADER if self.phase is Phase.SASL_HEADER else AMQP_HEADER
            self._preface.append(wanted)
        raise ProtocolError(
            Scope.CONNECTION, "amqp:not-implemented", f"a protocol header {header!r}"
        )

    def _step_handshake(self, events: list[Event]) -> bool:
        splitter = self._splitter
        if not splitter.next_frame():
            return False
        if splitter.body == splitter.end:
            return True
        wanted = FRAME_SASL if self.phase is Phase.SASL else FRAME_AMQP
        if splitter.frame_type != wanted:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:connection:framing-error", "a frame of the wrong type"
            )
        performative = decode_composite(splitter.data, splitter.body, splitter.end)[0]
        if self.phase is Phase.SASL:
            self._on_sasl(performative, events)
        elif isinstance(performative, Open):
            self._on_open(performative, events)
        else:
            raise ProtocolError(Scope.CONNECTION, "amqp:illegal-state", "open was expected")
        return True

    def _on_sasl(self, performative: Any, events: list[Event]) -> None:
        if self._is_server:
            init = take_init(performative)
            self.phase = Phase.SASL_DECISION
            events.append(SaslInitiated(init.mechanism, init.initial_response or b""))
        else:
            self._on_sasl_as_client(performative, events)

    def _on_sasl_as_client(self, performative: Any, events: list[Event]) -> None:
        if self._mechanism:
            answer = answer_mechanisms(performative, self._mechanism, self._response)
            self._preface.append(answer)
            # Once it is sent the next frame must be the outcome.
            self._mechanism = ""
            return
        ok = take_outcome(performative)
        events.append(SaslFinished(ok))
        if not ok:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:unauthorized-access", "SASL authentication failed"
            )
        self.phase = Phase.AMQP_HEADER
        self._release_output()

    def _release_output(self) -> None:
        """Client: from here on AMQP may go out."""
        self._preface.append(AMQP_HEADER)
        self._is_output_held = False

    def _on_open(self, peer: Open, events: list[Event]) -> None:
        if peer.max_frame_size < FRAME_SIZE_MIN:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:invalid-field", "max-frame-size is below 512"
            )
        self.peer_open = peer
        self._output.frame_size_max = min(peer.max_frame_size, self.limits.frame_size)
        self._splitter.frame_size_max = self.limits.frame_size
        if self._is_server:
            self._output.perform(0, self._open)
        self.phase = Phase.RUNNING
        events.append(Opened(peer))

    def _on_frame(self, splitter: FrameSplitter, events: list[Event]) -> None:
        """Process a frame; an error of session scope ends the session only."""
        data = splitter.data
        body: i64 = splitter.body
        end: i64 = splitter.end
        endpoint = self._incoming.get(splitter.channel)
        try:
            if endpoint is not None and end - body > 3 and data[body + 1] == 0x53:
                code: i64 = data[body + 2]
                wanted = endpoint.session.state is _ACTIVE and self.phase is _RUNNING
                if code == TRANSFER:
                    self._transfer.read(data, body + 3, end)
                    if wanted:
                        endpoint.on_transfer(self._transfer, data, end, events)
                    return
                if code == DISPOSITION:
                    self._disposition.read(data, body + 3, end)
                    if wanted:
                        endpoint.on_disposition(self._disposition, events)
                    return
            performative = decode_composite(data, body, end)[0]
            self._on_performative(performative, splitter.channel, events)
        except ProtocolError as error:
            if error.scope is Scope.CONNECTION or endpoint is None:
                raise
            self._fail_session(endpoint, error.error, events)

    def _on_performative(self, performative: Any, channel: int, events: list[Event]) -> None:
        if isinstance(performative, Close):
            self._on_close(performative, events)
        elif self.phase is Phase.CLOSING:
            return
        elif isinstance(performative, Begin):
            self._on_begin(performative, channel, events)
        else:
            self._on_session_frame(performative, channel, events)

    def _on_session_frame(self, performative: Any, channel: int, events: list[Event]) -> None:
        endpoint = self._incoming.get(channel)
        if endpoint is None:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:not-allowed", f"no session on channel {channel}"
            )
        if isinstance(performative, End):
            self._on_end(endpoint, channel, performative, events)
        elif endpoint.session.state is not SessionState.ACTIVE:
            return
        elif isinstance(performative, Flow):
            endpoint.on_flow(performative, events)
        elif isinstance(performative, Attach):
            endpoint.on_attach(performative, events)
        elif isinstance(performative, Detach):
            endpoint.on_detach(performative, events)
        elif isinstance(performative, (Transfer, Disposition)):
            # With a descriptor that is not a smallulong: no known client does that.
            raise DecodeError("a transfer or disposition with an unusual descriptor")
        else:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:not-allowed", type(performative).__name__.lower()
            )

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if channel in self._incoming or channel > self.limits.channel_max:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:not-allowed", f"channel {channel} cannot begin"
            )
        if begin.remote_channel is None:
            endpoint = self._new_endpoint()
            endpoint.session.begun(begin)
            endpoint.session.begin(channel)
        else:
            known = self._outgoing.get(begin.remote_channel)
            if known is None or known.session.peer_begin is not None:
                raise ProtocolError(
                    Scope.CONNECTION, "amqp:not-allowed", "a begin that answers none of ours"
                )
            endpoint = known
            is_ending = endpoint.session.state is SessionState.END_SENT
            endpoint.session.begun(begin)
            if is_ending:
                endpoint.session.state = SessionState.END_SENT
        self._incoming[channel] = endpoint
        events.append(SessionBegun(endpoint.session))

    def _new_endpoint(self) -> Endpoint:
        channel = 0
        while channel in self._outgoing:
            channel += 1
        channel_max = 0xFFFF if self.peer_open is None else self.peer_open.channel_max
        if channel > channel_max or len(self._outgoing) >= self.limits.sessions_max:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:resource-limit-exceeded", "too many sessions"
            )
        endpoint = Endpoint(Session(channel, self.limits, self._output), self._names)
        self._outgoing[channel] = endpoint
        return endpoint

    def _on_end(self, endpoint: Endpoint, channel: int, end: End, events: list[Event]) -> None:
        session = endpoint.session
        was_reported = session.state is SessionState.ENDED
        if session.state is SessionState.ACTIVE:
            session.end()
        session.state = SessionState.ENDED
        del self._incoming[channel]
        del self._outgoing[session.channel]
        if not was_reported:
            links = endpoint.links
            endpoint.release_names()
            events.append(SessionEnded(session, links, end.error))

    def _fail_session(self, endpoint: Endpoint, error: Error, events: list[Event]) -> None:
        """End a session because of an error of the peer's; its end is then waited for."""
        session = endpoint.session
        if session.state is SessionState.ACTIVE:
            session.end(error)
            session.state = SessionState.ENDED
            links = endpoint.links
            endpoint.release_names()
            events.append(SessionEnded(session, links, error))

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if self.phase is Phase.RUNNING:
            self._output.perform(0, Close(None))
        self.phase = Phase.CLOSED
        events.append(Closed(close.error))

    def _fail(self, error: Error, events: list[Event]) -> None:
        """End the connection because of an error of the peer's."""
        if self.phase is Phase.RUNNING:
            self._output.perform(0, Close(error))
        elif self.phase is Phase.OPEN:
            if self._is_server:
                self._output.perform(0, self._open)
            self._output.perform(0, Close(error))
        self.phase = Phase.CLOSED
        events.append(Closed(error))
