"""The sessions of a connection: which channel carries which, and how they begin and end."""

from __future__ import annotations

from partibus.engine.endpoint import Endpoint, Names
from partibus.engine.errors import ProtocolError, Scope
from partibus.engine.events import Event, SessionBegun, SessionEnded
from partibus.engine.limits import Limits
from partibus.engine.output import Output
from partibus.engine.session import Session, SessionState
from partibus.wire.performatives import Begin, End, Error


class Channels:
    """The sessions, by the peer's channel and by ours."""

    __slots__ = ("_limits", "_names", "_output", "incoming", "outgoing", "peer_channel_max")

    def __init__(self, limits: Limits, output: Output) -> None:
        self._limits: Limits = limits
        self._output: Output = output
        self._names: Names = Names()
        self.incoming: dict[int, Endpoint] = {}
        self.outgoing: dict[int, Endpoint] = {}
        self.peer_channel_max: int = limits.channel_max

    def open(self) -> Endpoint:
        """A new session on the lowest channel of ours that is free."""
        channel = 0
        while channel in self.outgoing:
            channel += 1
        if channel > self.peer_channel_max or len(self.outgoing) >= self._limits.sessions_max:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:resource-limit-exceeded", "too many sessions"
            )
        endpoint = Endpoint(Session(channel, self._limits, self._output), self._names)
        self.outgoing[channel] = endpoint
        return endpoint

    def on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        """Answer the peer's begin, or take it as the answer to ours."""
        if channel in self.incoming or channel > self._limits.channel_max:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:not-allowed", f"channel {channel} cannot begin"
            )
        if begin.remote_channel is None:
            endpoint = self.open()
            endpoint.session.begun(begin)
            endpoint.session.begin(channel)
        else:
            known = self.outgoing.get(begin.remote_channel)
            if known is None or known.session.peer_begin is not None:
                raise ProtocolError(
                    Scope.CONNECTION, "amqp:not-allowed", "a begin that answers none of ours"
                )
            endpoint = known
            endpoint.session.begun(begin)
        self.incoming[channel] = endpoint
        events.append(SessionBegun(endpoint.session))

    def on_end(self, endpoint: Endpoint, channel: int, end: End, events: list[Event]) -> None:
        """Answer the peer's end, or take it as the answer to ours."""
        session = endpoint.session
        was_reported = session.state is SessionState.ENDED
        if session.state is SessionState.ACTIVE:
            session.end()
        session.state = SessionState.ENDED
        del self.incoming[channel]
        del self.outgoing[session.channel]
        if not was_reported:
            self._report(endpoint, end.error, events)

    def fail(self, endpoint: Endpoint, error: Error, events: list[Event]) -> None:
        """End a session because of an error of the peer's; its end is then waited for."""
        session = endpoint.session
        if session.state is SessionState.ACTIVE:
            error = self._output.told(error)
            session.end(error)
            session.state = SessionState.ENDED
            self._report(endpoint, error, events)

    def _report(self, endpoint: Endpoint, error: Error | None, events: list[Event]) -> None:
        links = endpoint.links
        endpoint.release_names()
        events.append(SessionEnded(endpoint.session, links, error))
