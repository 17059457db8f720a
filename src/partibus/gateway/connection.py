"""The seam: socket bytes, engine, events, bindings, and bytes again.

One instance per connection. What happens in a turn of the event loop is written once, when the
turn ends; there is one timer for everything the connection waits for. Nothing is decided here
about messages, tokens or links beyond passing them to whom they concern.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from partibus.engine.connection import Connection
from partibus.engine.events import (
    Closed,
    Deliveries,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    SaslInitiated,
    SessionEnded,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.engine.session import Session
from partibus.gateway.bindings import Binding
from partibus.gateway.cbs import check_plain
from partibus.gateway.claims import Claims
from partibus.gateway.links import bind
from partibus.gateway.pacing import Pacing
from partibus.gateway.settings import GatewaySettings
from partibus.gateway.tracking import Tracking
from partibus.gateway.transactions import Transactions
from partibus.gateway.upkeep import KEY_REVOKED, Overdue, Upkeep, unauthorised
from partibus.runtime import granting
from partibus.runtime.clock import Clock, Timer
from partibus.runtime.node import Node
from partibus.telemetry import Seldom
from partibus.wire.performatives import Error, Open

log = logging.getLogger(__name__)
seldom = Seldom(log)

IDLE_TIME_OUT_MS = 240_000
# Above this the socket counts as full and receivers pause.
WRITE_BUFFER_BYTES = 1_048_576
# A peer that reads nothing while we only answer it is dropped.
WRITE_BACKLOG_BYTES_MAX = 32 * 1_048_576
# How long what is written may take to leave once the connection is over.
LINGER_MS = 5_000

NEVER_MS = 1 << 62
# How much of what a client says of itself is logged.
SAID_MAX = 200

LIMITS = Limits()


class GatewayConnection(asyncio.Protocol):
    """One client's connection; the Carrier of its bindings."""

    def __init__(
        self,
        node: Node,
        settings: GatewaySettings,
        tracking: Tracking,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        gone: Callable[[GatewayConnection], None],
    ) -> None:
        self.node = node
        self.settings = settings
        self.tracking = tracking
        self.claims = Claims(anonymous=settings.dev)
        self.transactions = Transactions(node)
        self._loop = loop
        self._gone = gone
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._upkeep = Upkeep(self._now_ms)
        self._engine = Connection.server(
            Open(container_id=tracking.container_id(), idle_time_out=IDLE_TIME_OUT_MS),
            limits=LIMITS,
            now_ms=self._now_ms,
            allow_no_sasl=settings.dev,
            tracked=tracking.of_peer,
        )
        self._transport: asyncio.Transport | None = None
        # Dicts as ordered sets: those to be flushed, and those whose session was full.
        self._bindings: dict[Binding, None] = {}
        self._awake: dict[Binding, None] = {}
        self._roomless: dict[Binding, None] = {}
        self._in_turn = False
        self._turn_due = False
        self._throttled = False
        self._write_paused = False
        self._pacing = Pacing()
        # Bindings call these for every batch of messages.
        self.hold = self._pacing.hold
        self.release = self._pacing.release
        self._shutting_down: Error | None = None
        self._hanging_up = False
        # Our close is out: only the engine's deadline for the answer counts.
        self._ending = False
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._upkeep_ms = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            SaslInitiated: self._on_sasl,
            Opened: self._on_opened,
            LinkAttached: self._on_attached,
            LinkFlowed: self._on_flowed,
            Deliveries: self._on_deliveries,
            Settlements: self._on_settlements,
            LinkDetached: self._on_detached,
            SessionEnded: self._on_session_ended,
            Closed: self._on_closed,
        }

    # The transport's side -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        # uvloop's transports are none of asyncio's classes, but have all their methods.
        writable = cast(asyncio.Transport, transport)
        self._transport = writable
        self._pacing.use(writable)
        writable.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._plan_upkeep()
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._now_ms = self._clock.now_ms()
        self._in_turn = True
        self._handle(self._engine.receive_data(data, self._now_ms))
        self._end_turn()

    def eof_received(self) -> bool:
        """The peer sends no more; the transport closes itself."""
        self._handle(self._engine.receive_eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, and everything with it."""
        self._transport = None
        self._pacing.use(None)
        self._handle(self._engine.receive_eof())
        self._unbind_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._gone(self)

    def pause_writing(self) -> None:
        """The socket is full."""
        self._write_paused = True
        self.throttle()

    def resume_writing(self) -> None:
        """The socket has room again."""
        self._write_paused = False
        self._resume_deliveries()

    # Turns ----------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        handlers = self._handlers
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)

    def wake(self, binding: Binding) -> None:
        """Flush the binding when this turn ends."""
        self._awake[binding] = None
        if not self._in_turn and not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        self._now_ms = self._clock.now_ms()
        self._in_turn = True
        self._end_turn()

    def _end_turn(self) -> None:
        while self._awake:
            awake, self._awake = self._awake, {}
            for binding in awake:
                binding.flush()
        if self._shutting_down is not None and not self._pacing.held:
            self._close(self._shutting_down)
            self._pacing.go_on()
        self._in_turn = False
        self._write()
        if self._roomless:
            roomless, self._roomless = self._roomless, {}
            for binding in roomless:
                binding.flowed()
        if self._throttled and not self._write_paused:
            self._resume_deliveries()
        self._set_timer()

    def _write(self) -> None:
        data = self._engine.data_to_send()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if data:
            transport.write(data)
        if self._engine.is_closed or (self._hanging_up and self._ending):
            transport.close()
        elif self._write_paused and transport.get_write_buffer_size() > WRITE_BACKLOG_BYTES_MAX:
            log.warning("connection dropped: peer does not read peer=%s", self.peer_name)
            transport.abort()

    @property
    def peer_name(self) -> str:
        """The peer's address, for log lines."""
        transport = self._transport
        return str(transport.get_extra_info("peername")) if transport is not None else "gone"

    # Deadlines ------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One timer for all deadlines. It is moved only when one comes closer."""
        if self._transport is None:
            return
        deadline = self._upkeep_ms
        if self._engine.is_closed:
            # Closed but not gone: what is written does not leave.
            deadline = self._now_ms + LINGER_MS
        else:
            of_engine = self._engine.next_deadline_ms()
            if of_engine is not None and of_engine < deadline:
                deadline = of_engine
        if self._timer is not None:
            if self._timer_ms <= deadline:
                return
            self._timer.cancel()
        self._timer_ms = deadline
        self._timer = self._clock.call_at(deadline, self._advance)

    def _advance(self) -> None:
        self._timer = None
        self._now_ms = now_ms = self._clock.now_ms()
        if self._transport is None:
            return
        if self._engine.is_closed:
            self._transport.abort()
            return
        self._in_turn = True
        self._handle(self._engine.advance(now_ms))
        if now_ms >= self._upkeep_ms:
            for overdue in self._upkeep.due(self._bindings, self.claims, now_ms):
                self._end_overdue(overdue)
            self._plan_upkeep()
        self._end_turn()

    def _plan_upkeep(self) -> None:
        if not self._ending:
            self._upkeep_ms = self._upkeep.next_deadline_ms(self._bindings, self.claims)

    def _end_overdue(self, overdue: Overdue) -> None:
        binding = overdue.binding
        if binding is None:
            self.refuse(overdue.condition, overdue.sentence)
        elif binding in self._bindings:
            error = self.tracking.error(overdue.condition, overdue.sentence, binding.path)
            self.detach(binding, error)

    # Events ---------------------------------------------------------------------------------

    def _on_sasl(self, event: SaslInitiated) -> None:
        ok = True
        if event.mechanism == "PLAIN":
            ok = check_plain(self, event.response)
            if not ok:
                seldom.warning("SASL PLAIN refused peer=%s", self.peer_name)
        self._handle(self._engine.sasl_outcome(ok))

    def _on_opened(self, event: Opened) -> None:
        if log.isEnabledFor(logging.DEBUG):
            said = {str(name): value for name, value in (event.open.properties or {}).items()}
            known = [str(said.get(name, ""))[:SAID_MAX] for name in ("product", "version")]
            name = event.open.container_id[:SAID_MAX]
            log.debug("client connected peer=%s container=%s product=%s version=%s",
                      self.peer_name, name, *known)  # fmt: skip

    def _on_attached(self, event: LinkAttached) -> None:
        binding = bind(self, event.link, event.attach)
        if binding is not None:
            event.link.context = binding
            self._bindings[binding] = None
            self._upkeep.links_changed(len(self._bindings), self._now_ms)
            self._plan_upkeep()
            if event.link.credit:
                # The client gave credit right behind its attach, before it was accepted.
                binding.flowed()

    def _on_flowed(self, event: LinkFlowed) -> None:
        binding = event.link.context
        if binding is not None:
            binding.flowed()  # type: ignore[attr-defined]

    def _on_deliveries(self, event: Deliveries) -> None:
        binding = event.link.context
        if binding is not None:
            binding.deliveries(event.deliveries)  # type: ignore[attr-defined]

    def _on_settlements(self, event: Settlements) -> None:
        binding = event.link.context
        if binding is not None:
            binding.settlements(event)  # type: ignore[attr-defined]

    def _on_detached(self, event: LinkDetached) -> None:
        if event.link.context is not None:
            self._unbind(event.link.context)  # type: ignore[arg-type]

    def _on_session_ended(self, event: SessionEnded) -> None:
        for link in event.links:
            if link.context is not None:
                self._unbind(link.context)  # type: ignore[arg-type]

    def _on_closed(self, event: Closed) -> None:
        self._unbind_all()

    def _unbind(self, binding: Binding) -> None:
        if binding in self._bindings:
            del self._bindings[binding]
            binding.link.context = None
            self._roomless.pop(binding, None)
            binding.close()
            self._upkeep.links_changed(len(self._bindings), self._now_ms)
            self._plan_upkeep()

    def _unbind_all(self) -> None:
        for binding in list(self._bindings):
            self._unbind(binding)

    # What bindings ask (see Carrier) --------------------------------------------------------

    def now_ms(self) -> int:
        """The time of this turn."""
        return self._now_ms

    def bindings_of(self, session: Session | None) -> list[Binding]:
        """The bindings of a session's links; of all where none is named."""
        return [b for b in self._bindings if session is None or b.link.session is session]

    def count_at(self, path: str) -> int:
        """How many links are bound to this path."""
        return sum(binding.path == path for binding in self._bindings)

    def throttle(self) -> None:
        """No more deliveries until the socket has taken what was written."""
        if not self._throttled:
            self._throttled = True
            for binding in self._bindings:
                binding.pause()

    def _resume_deliveries(self) -> None:
        self._throttled = False
        for binding in list(self._bindings):
            binding.resume()

    def wait_for_room(self, binding: Binding) -> None:
        """Its session was full; look again when frames have left."""
        self._roomless[binding] = None

    def refresh(self, link_name: str) -> None:
        """Something was done on behalf of the link with this name."""
        for binding in self._bindings:
            if binding.link.name == link_name:
                binding.active_ms = self._now_ms

    def tokens_changed(self) -> None:
        """A token was put."""
        self._plan_upkeep()

    def detach(self, binding: Binding, error: Error) -> None:
        """End the binding's link with an error."""
        binding.link.detach(error)
        self._unbind(binding)
        self.wake(binding)

    def refuse(self, condition: str, sentence: str) -> None:
        """Close the whole connection with an error."""
        self._close(self.tracking.error(condition, sentence))

    def hang_up(self, condition: str, sentence: str) -> None:
        """Close it when this turn's answers are written, and wait for no answer to that."""
        if self._shutting_down is None:
            self._shutting_down = self.tracking.error(condition, sentence)
            self._hanging_up = True
            self._pacing.stop()

    def _close(self, error: Error) -> None:
        self._ending = True
        self._upkeep_ms = NEVER_MS
        self._engine.close(error)
        self._unbind_all()

    def rules_changed(self) -> None:
        """Access rules are not what they were: what a revoked one opened is closed."""
        is_revoked = partial(granting.is_revoked, self.node, dev=self.settings.dev)
        if self._transport is None or not self.claims.revoke(is_revoked):
            return
        self._now_ms = self._clock.now_ms()
        self._in_turn = True
        for overdue in unauthorised(self._bindings, self.claims, self._now_ms, KEY_REVOKED):
            self._end_overdue(overdue)
        self._plan_upkeep()
        self._end_turn()

    # Shutdown -------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Read no more, finish the commits under way, tell the peer, and go."""
        if self._transport is None or self._shutting_down is not None:
            return
        self._shutting_down = self.tracking.error(
            "amqp:connection:forced", "The broker is shutting down."
        )
        self._pacing.stop()
        self._take_turn()

    def abort(self) -> None:
        """Go at once."""
        if self._transport is not None:
            self._transport.abort()
