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

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from partibus.engine.channels import Channels
from partibus.engine.endpoint import AnyLink
from partibus.engine.errors import LocalProtocolError, ProtocolError, Scope
from partibus.engine.events import (
    Closed,
    Event,
    Opened,
)
from partibus.engine.handshake import Handshake, Phase
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.engine.output import Output
from partibus.engine.session import Session, SessionState
from partibus.wire.composites import decode_composite
from partibus.wire.errors import DecodeError
from partibus.wire.frames import (
    EMPTY_FRAME,
    FRAME_AMQP,
    FRAME_SASL,
    FRAME_SIZE_MIN,
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
        self._open: Open = open
        self._is_server: bool = is_server
        self._handshake: Handshake = Handshake(
            is_server=is_server,
            mechanism=mechanism,
            response=response,
            allow_no_sasl=allow_no_sasl,
        )
        self._output: Output = Output()
        self._splitter: FrameSplitter = FrameSplitter(limits.frame_size_before_open)
        self._transfer: TransferFrame = TransferFrame()
        self._disposition: DispositionFrame = DispositionFrame()
        self._channels: Channels = Channels(limits, self._output)
        self._now_ms: int = now_ms
        self._last_received_ms: int = now_ms
        self._last_sent_ms: int = now_ms
        # Until when the handshake, or the closing, must be finished.
        self._phase_deadline_ms: int = now_ms + limits.time_to_open_ms
        open.max_frame_size = limits.frame_size
        open.channel_max = limits.channel_max
        self.phase: Phase = self._handshake.start()
        if not is_server:
            self._output.perform(0, open)

    @classmethod
    def server(
        cls,
        open: Open,
        *,
        limits: Limits,
        now_ms: int,
        allow_no_sasl: bool = False,
        tracked: Callable[[Error], Error] | None = None,
    ) -> Connection:
        """A connection somebody made to us; `open` is what we shall answer.

        `tracked` makes the errors by which a peer is told what it broke.
        """
        made = cls(open, limits=limits, now_ms=now_ms, is_server=True, allow_no_sasl=allow_no_sasl)
        made._output.tracked = tracked
        return made

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
        return cls(
            open,
            limits=limits,
            now_ms=now_ms,
            is_server=False,
            mechanism=mechanism,
            response=response,
        )

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
        endpoint = self._channels.outgoing.get(session.channel)
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
        handshake = self._handshake
        data = b"" if handshake.is_held else self._output.take()
        if handshake.preface:
            data = b"".join([*handshake.preface, data])
            handshake.preface = []
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
        self.phase = self._handshake.decide(ok)
        if not ok:
            return [Closed(Error("amqp:unauthorized-access", "SASL authentication failed"))]
        return self._process()

    def begin(self) -> Session:
        """Begin a session; links may be attached to it at once."""
        endpoint = self._channels.open()
        endpoint.session.begin(None)
        return endpoint.session

    def attach_sender(self, session: Session, attach: Attach) -> SenderLink:
        """Attach a link on which we send; its handle and role are set here."""
        link = self._channels.outgoing[session.channel].initiate(attach, ROLE_SENDER)
        assert isinstance(link, SenderLink)
        return link

    def attach_receiver(self, session: Session, attach: Attach) -> ReceiverLink:
        """Attach a link on which we receive; its handle and role are set here."""
        link = self._channels.outgoing[session.channel].initiate(attach, ROLE_RECEIVER)
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
        for endpoint in self._channels.incoming.values():
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
                self.phase = self._handshake.on_header(self.phase, header)
            return bool(header)
        if self.phase is Phase.SASL or self.phase is Phase.OPEN:
            return self._step_handshake(events)
        return False

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
            self.phase = self._handshake.on_sasl(performative, events)
        elif isinstance(performative, Open):
            self._on_open(performative, events)
        else:
            raise ProtocolError(Scope.CONNECTION, "amqp:illegal-state", "open was expected")
        return True

    def _on_open(self, peer: Open, events: list[Event]) -> None:
        if peer.max_frame_size < FRAME_SIZE_MIN:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:invalid-field", "max-frame-size is below 512"
            )
        self.peer_open = peer
        self._channels.peer_channel_max = peer.channel_max
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
        endpoint = self._channels.incoming.get(splitter.channel)
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
            self._channels.fail(endpoint, error.error, events)

    def _on_performative(self, performative: Any, channel: int, events: list[Event]) -> None:
        if isinstance(performative, Close):
            self._on_close(performative, events)
        elif self.phase is Phase.CLOSING:
            return
        elif isinstance(performative, Begin):
            self._channels.on_begin(performative, channel, events)
        else:
            self._on_session_frame(performative, channel, events)

    def _on_session_frame(self, performative: Any, channel: int, events: list[Event]) -> None:
        endpoint = self._channels.incoming.get(channel)
        if endpoint is None:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:not-allowed", f"no session on channel {channel}"
            )
        if isinstance(performative, End):
            self._channels.on_end(endpoint, channel, performative, events)
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

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if self.phase is Phase.RUNNING:
            self._output.perform(0, Close(None))
        self.phase = Phase.CLOSED
        events.append(Closed(close.error))

    def _fail(self, error: Error, events: list[Event]) -> None:
        """End the connection because of an error of the peer's."""
        if self.phase in (Phase.RUNNING, Phase.OPEN):
            error = self._output.told(error)
        if self.phase is Phase.RUNNING:
            self._output.perform(0, Close(error))
        elif self.phase is Phase.OPEN:
            if self._is_server:
                self._output.perform(0, self._open)
            self._output.perform(0, Close(error))
        self.phase = Phase.CLOSED
        events.append(Closed(error))
