"""Two engines joined by a wire that the test holds: what one writes the other reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from partibus.engine.connection import Connection
from partibus.engine.events import Event, LinkAttached, SaslInitiated
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.engine.session import Session
from partibus.wire.performatives import Attach, Open, Source, Target

E = TypeVar("E")
TURNS_MAX = 50


@dataclass
class Pair:
    """A client and a server; events of both sides are kept in order."""

    server_limits: Limits = field(default_factory=Limits)
    client_limits: Limits = field(default_factory=Limits)
    mechanism: str | None = "ANONYMOUS"
    response: bytes = b""
    allows: bool = True
    server_idle_ms: int | None = None
    client_idle_ms: int | None = None
    chunk: int = 0
    now_ms: int = 0
    at_server: list[Event] = field(default_factory=list)
    at_client: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = Connection.server(
            Open("server", idle_time_out=self.server_idle_ms),
            limits=self.server_limits,
            now_ms=self.now_ms,
            allow_no_sasl=self.mechanism is None,
        )
        self.client = Connection.client(
            Open("client", idle_time_out=self.client_idle_ms),
            limits=self.client_limits,
            now_ms=self.now_ms,
            mechanism=self.mechanism,
            response=self.response,
        )

    def join(self) -> None:
        """Carry bytes both ways until both sides are silent."""
        for _ in range(TURNS_MAX):
            up = self.client.data_to_send()
            down = self.server.data_to_send()
            if not up and not down:
                return
            self._to_server(up)
            self.at_client += self._feed(self.client, down)
        raise AssertionError("the two sides never fall silent")

    def _to_server(self, data: bytes) -> None:
        for event in self._feed(self.server, data):
            self.at_server.append(event)
            if isinstance(event, SaslInitiated):
                self.at_server += self.server.sasl_outcome(self.allows)

    def _feed(self, side: Connection, data: bytes) -> list[Event]:
        step = self.chunk or max(len(data), 1)
        events: list[Event] = []
        for start in range(0, len(data), step):
            events += side.receive_data(data[start : start + step], self.now_ms)
        return events

    def take_server(self, kind: type[E]) -> list[E]:
        """The server's events of a kind, which are then forgotten."""
        return _take(self.at_server, kind)

    def take_client(self, kind: type[E]) -> list[E]:
        """The client's events of a kind, which are then forgotten."""
        return _take(self.at_client, kind)

    def up(self, session: Session, name: str = "up") -> tuple[SenderLink, ReceiverLink]:
        """A link on which the client sends: both its ends, attached."""
        attach = Attach(name, source=Source("client"), target=Target("queue"))
        ours = self.client.attach_sender(session, attach)
        self.join()
        theirs = self.take_server(LinkAttached)[-1].link
        theirs.accept()
        self.join()
        assert isinstance(theirs, ReceiverLink)
        return ours, theirs

    def down(self, session: Session, name: str = "down") -> tuple[ReceiverLink, SenderLink]:
        """A link on which the server sends: both its ends, attached."""
        attach = Attach(
            name, snd_settle_mode=0, rcv_settle_mode=1, source=Source("queue"), target=Target("c")
        )
        ours = self.client.attach_receiver(session, attach)
        self.join()
        theirs = self.take_server(LinkAttached)[-1].link
        theirs.accept()
        self.join()
        assert isinstance(theirs, SenderLink)
        return ours, theirs


def _take(events: list[Event], kind: type[E]) -> list[E]:
    found: list[E] = [event for event in events if isinstance(event, kind)]
    events[:] = [event for event in events if not isinstance(event, kind)]
    return found
