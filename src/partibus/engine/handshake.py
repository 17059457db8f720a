"""What comes before open: protocol headers and the SASL exchange, in either role.

Bytes written here go out before any AMQP frame; a client's frames are held back until the server
has let it in. Who is let in is decided by the driver.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from partibus.engine.errors import ProtocolError, Scope
from partibus.engine.events import Event, SaslFinished, SaslInitiated
from partibus.engine.sasl import (
    answer_mechanisms,
    mechanisms_frame,
    outcome_frame,
    take_init,
    take_outcome,
)
from partibus.wire.frames import AMQP_HEADER, SASL_HEADER


class Phase(Enum):
    """What the peer's next bytes must be; see the top of `connection`."""

    SASL_HEADER = "SASL header"
    SASL = "SASL frames"
    SASL_DECISION = "the driver's decision"
    AMQP_HEADER = "AMQP header"
    OPEN = "open"
    RUNNING = "frames"
    CLOSING = "close"
    CLOSED = "nothing"


class Handshake:
    """The headers and SASL frames of one connection; each step returns the phase it leads to."""

    __slots__ = ("_allow_no_sasl", "_is_server", "_mechanism", "_response", "is_held", "preface")

    def __init__(
        self, *, is_server: bool, mechanism: str | None, response: bytes, allow_no_sasl: bool
    ) -> None:
        self._is_server: bool = is_server
        self._mechanism: str | None = mechanism
        self._response: bytes = response
        self._allow_no_sasl: bool = allow_no_sasl
        # What is to be sent before anything else.
        self.preface: list[bytes] = []
        # Whether AMQP frames must wait.
        self.is_held: bool = not is_server

    def start(self) -> Phase:
        """Write what we have to say first; a server says nothing."""
        if self._is_server:
            return Phase.SASL_HEADER
        if self._mechanism is None:
            self._release()
            return Phase.AMQP_HEADER
        self.preface.append(SASL_HEADER)
        return Phase.SASL_HEADER

    def on_header(self, phase: Phase, header: bytes) -> Phase:
        """Take a protocol header of the peer."""
        if header == SASL_HEADER and phase is Phase.SASL_HEADER:
            if self._is_server:
                self.preface += [SASL_HEADER, mechanisms_frame()]
            return Phase.SASL
        may_skip = self._is_server and self._allow_no_sasl
        if header == AMQP_HEADER and (phase is Phase.AMQP_HEADER or may_skip):
            if self._is_server:
                self.preface.append(AMQP_HEADER)
            return Phase.OPEN
        # §2.2: answer with the header we would have taken, then close the transport.
        if self._is_server:
            self.preface.append(SASL_HEADER if phase is Phase.SASL_HEADER else AMQP_HEADER)
        raise ProtocolError(
            Scope.CONNECTION, "amqp:not-implemented", f"a protocol header {header!r}"
        )

    def on_sasl(self, performative: Any, events: list[Event]) -> Phase:
        """Take a SASL frame of the peer."""
        if self._is_server:
            init = take_init(performative)
            events.append(SaslInitiated(init.mechanism, init.initial_response or b""))
            return Phase.SASL_DECISION
        if self._mechanism:
            answer = answer_mechanisms(performative, self._mechanism, self._response)
            self.preface.append(answer)
            # Once it is sent the next frame must be the outcome.
            self._mechanism = ""
            return Phase.SASL
        ok = take_outcome(performative)
        events.append(SaslFinished(ok))
        if not ok:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:unauthorized-access", "SASL authentication failed"
            )
        self._release()
        return Phase.AMQP_HEADER

    def decide(self, ok: bool) -> Phase:
        """Server: tell the client whether it may go on."""
        self.preface.append(outcome_frame(ok))
        return Phase.AMQP_HEADER if ok else Phase.CLOSED

    def _release(self) -> None:
        """Client: from here on AMQP may go out."""
        self.preface.append(AMQP_HEADER)
        self.is_held = False
