"""One AMQP connection, in either role: bytes in, events out, bytes out."""

from __future__ import annotations

from partibus.engine.events import Event
from partibus.engine.limits import Limits
from partibus.engine.session import Session
from partibus.wire.performatives import Error, Open


class Connection:
    """The engine of one connection. `context` belongs to the driver.

    Server: `Connection.server(...)`; the driver answers SaslInitiated with `sasl_outcome`.
    Client: `Connection.client(...)`, then `begin()` and `session.attach_...`.
    """

    context: object
    peer_open: Open | None
    is_closed: bool

    @classmethod
    def server(
        cls, open: Open, *, limits: Limits, now_ms: int, allow_no_sasl: bool = False
    ) -> Connection:
        """`open` is what we shall answer (container-id, idle-time-out, properties, ...)."""
        raise NotImplementedError

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
        """`mechanism` None skips SASL. For PLAIN the response is `\\0user\\0password`."""
        raise NotImplementedError

    def receive_data(self, data: bytes, now_ms: int) -> list[Event]:
        raise NotImplementedError

    def receive_eof(self) -> list[Event]:
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """Take what is to be written to the transport now (b"" when nothing)."""
        raise NotImplementedError

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Answer SaslInitiated; what the client had pipelined behind is processed now."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        raise NotImplementedError

    def advance(self, now_ms: int) -> list[Event]:
        raise NotImplementedError

    def begin(self) -> Session:
        """Client: begin a session; usable for attach at once (pipelined)."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Write close; Closed follows with the peer's answer, or after `time_to_close_ms`."""
        raise NotImplementedError
