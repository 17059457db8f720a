"""The links of one session: the peer's frames turned into state and events.

Names and handles are kept here, errors of link scope are answered here, and the ranges of
dispositions are resolved to links and tags. Errors of wider scope go up to `connection`.
"""

from __future__ import annotations

from typing import TypeAlias

from mypy_extensions import i64

from partibus.engine.errors import ProtocolError, Scope
from partibus.engine.events import (
    Deliveries,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Settlements,
)
from partibus.engine.link import LinkState, ReceiverLink, SenderLink
from partibus.engine.session import SERIAL, Session
from partibus.engine.states import decode_state, is_final
from partibus.wire.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Detach,
    Error,
    Flow,
)
from partibus.wire.transfer import DispositionFrame, TransferFrame

AnyLink: TypeAlias = SenderLink | ReceiverLink


class Names:
    """The link names of a connection: a name may be used once in each direction."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: dict[tuple[str, bool], tuple[Endpoint, AnyLink]] = {}

    def release(self, link: AnyLink) -> None:
        """Free the link's name, unless another link has taken it over."""
        key = (link.name, link.role)
        holder = self.taken.get(key)
        if holder is not None and holder[1] is link:
            del self.taken[key]


class Endpoint:
    """One session with its links."""

    __slots__ = ("_batching", "_by_handle", "_by_remote_handle", "_names", "session")

    def __init__(self, session: Session, names: Names) -> None:
        self.session: Session = session
        self._names: Names = names
        self._by_handle: dict[int, AnyLink] = {}
        self._by_remote_handle: dict[int, AnyLink] = {}
        self._batching: list[ReceiverLink] = []

    @property
    def links(self) -> list[AnyLink]:
        """The links that have not ended."""
        return [link for link in self._by_handle.values() if not link.reported]

    def release_names(self) -> None:
        """Give back the names of all links, when the session is over."""
        for link in self._by_handle.values():
            link.state = LinkState.DETACHED
            self._names.release(link)

    def finish_batches(self) -> None:
        """Close the events that `on_transfer` was filling: this read is over."""
        for link in self._batching:
            link.batch = None
        if self._batching:
            self._batching = []

    def initiate(self, attach: Attach, role: bool) -> AnyLink:
        """Client: attach a link of our own."""
        link = self._new_link(attach.name, role)
        link.initiate(attach)
        return link

    def _new_link(self, name: str, role: bool) -> AnyLink:
        handle = 0
        while handle in self._by_handle:
            handle += 1
        begin = self.session.peer_begin
        handle_max = self.session.limits.handle_max if begin is None else begin.handle_max
        if handle > handle_max or len(self._by_handle) >= self.session.limits.links_per_session_max:
            raise ProtocolError(
                Scope.SESSION, "amqp:resource-limit-exceeded", "too many links in a session"
            )
        link: AnyLink
        if role is ROLE_SENDER:
            link = SenderLink(self.session, name, handle)
        else:
            link = ReceiverLink(self.session, name, handle)
        self._by_handle[handle] = link
        self._names.taken[name, role] = (self, link)
        return link

    def on_attach(self, attach: Attach, events: list[Event]) -> None:
        """Take the answer to our attach, or a link of the peer's."""
        if attach.handle in self._by_remote_handle:
            raise ProtocolError(
                Scope.SESSION, "amqp:session:handle-in-use", f"handle {attach.handle}"
            )
        if attach.handle > self.session.limits.handle_max:
            raise ProtocolError(
                Scope.CONNECTION, "amqp:connection:framing-error", "a handle above handle-max"
            )
        role = not attach.role
        holder = self._names.taken.get((attach.name, role))
        # Also a link we have given up meanwhile is answered, and then detached by the peer.
        is_answer = holder is not None and holder[0] is self and holder[1].peer_attach is None
        if holder is not None and is_answer:
            link = holder[1]
            if link.state is LinkState.ATTACH_SENT:
                link.state = LinkState.ATTACHED
        else:
            if holder is not None:
                stolen = Error("amqp:link:stolen", f"link {attach.name!r} was attached again")
                holder[0].fail_link(holder[1], stolen, events)
            link = self._new_link(attach.name, role)
            link.state = LinkState.ATTACH_RECEIVED
        link.peer_attach = attach
        link.remote_handle = attach.handle
        self._by_remote_handle[attach.handle] = link
        if isinstance(link, ReceiverLink):
            link.attached_by(attach)
        events.append(LinkAttached(link, attach, is_answer))

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Answer the peer's detach, or take it as the answer to ours."""
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            return
        if link.state is LinkState.ATTACH_RECEIVED:
            link.detach(closed=detach.closed)
        elif link.state is not LinkState.DETACH_SENT:
            link.write_detach(detach.closed, None)
        link.state = LinkState.DETACHED
        del self._by_handle[link.handle]
        self._forget(link)
        if not link.reported:
            link.reported = True
            events.append(LinkDetached(link, detach.closed, detach.error))

    def fail_link(self, link: AnyLink, error: Error, events: list[Event]) -> None:
        """Detach a link because of an error of the peer's."""
        error = self.session.output.told(error)
        link.detach(error)
        self._forget(link)
        if not link.reported:
            link.reported = True
            events.append(LinkDetached(link, True, error))

    def _forget(self, link: AnyLink) -> None:
        """Free the name of a link that is over, and its deliveries from their outcome."""
        self._names.release(link)
        for table in (self.session.unsettled, self.session.awaiting):
            for delivery_id in [i for i, held in table.items() if held[0] == link.handle]:
                del table[delivery_id]

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Take the peer's windows, and credit or drain of a link."""
        has_room = self.session.take_flow(flow)
        flowed: AnyLink | None = None
        if flow.handle is not None:
            # A flow for a link that has just ended is late, not wrong.
            flowed = self._by_remote_handle.get(flow.handle)
            if flowed is not None and self._link_flowed(flowed, flow):
                events.append(LinkFlowed(flowed))
        elif flow.echo:
            self.session.write_flow()
        if has_room:
            for link in self._by_handle.values():
                if link is not flowed and isinstance(link, SenderLink) and link.sendable > 0:
                    events.append(LinkFlowed(link))

    def _link_flowed(self, link: AnyLink, flow: Flow) -> bool:
        if isinstance(link, ReceiverLink):
            return link.take_flow(flow)
        link.take_flow(flow)
        # Clients attach and flow in one go, so the answer of the driver may still be to come.
        return link.state in (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED)

    def on_transfer(self, frame: TransferFrame, data: bytes, end: i64, events: list[Event]) -> None:
        """Take a transfer frame; whole messages go to the one event of their link."""
        self.session.count_incoming()
        link = self._by_remote_handle.get(frame.handle)
        if link is None:
            raise ProtocolError(
                Scope.SESSION, "amqp:session:unattached-handle", f"handle {frame.handle}"
            )
        if not isinstance(link, ReceiverLink):
            raise ProtocolError(
                Scope.SESSION, "amqp:not-allowed", "a transfer on a link on which we send"
            )
        try:
            delivery = link.take(frame, data, end)
        except ProtocolError as error:
            self.fail_link(link, error.error, events)
            return
        if delivery is None:
            return
        batch = link.batch
        if batch is None:
            batch = []
            events.append(Deliveries(link, batch))
            if not link.is_coordinator:
                link.batch = batch
                self._batching.append(link)
        batch.append(delivery)

    def on_disposition(self, frame: DispositionFrame, events: list[Event]) -> None:
        """Find the deliveries that a disposition decides, and report them by link."""
        state = decode_state(frame.state)
        if not is_final(state, frame.settled):
            return
        session = self.session
        table = session.unsettled if frame.role is ROLE_RECEIVER else session.awaiting
        if not table:
            return
        if frame.first == frame.last:
            held = table.pop(frame.first, None)
            if held is not None:
                self._report(frame.first, held, state, frame.settled, events)
            return
        for delivery_id in _in_range(table, frame.first, frame.last):
            held = table.pop(delivery_id)
            self._report(delivery_id, held, state, frame.settled, events)

    def _report(
        self,
        delivery_id: int,
        held: tuple[int, bytes],
        state: object,
        settled: bool,
        events: list[Event],
    ) -> None:
        """Add a delivery to the event before, where that says the same of the same link."""
        link = self._by_handle.get(held[0])
        if link is None:
            return
        last = events[-1] if events else None
        if (
            isinstance(last, Settlements)
            and last.link is link
            and last.state is state
            and last.settled == settled
        ):
            last.deliveries.append((delivery_id, held[1]))
        else:
            events.append(Settlements(link, [(delivery_id, held[1])], state, settled))


def _in_range(table: dict[int, tuple[int, bytes]], first: int, last: int) -> list[int]:
    """The ids of the table from first to last, in that order, in time bounded by the table."""
    width = (last - first) & SERIAL
    if width < len(table):
        ids = [(first + step) & SERIAL for step in range(width + 1)]
        return [delivery_id for delivery_id in ids if delivery_id in table]
    within = [delivery_id for delivery_id in table if (delivery_id - first) & SERIAL <= width]
    return sorted(within, key=lambda delivery_id: (delivery_id - first) & SERIAL)
