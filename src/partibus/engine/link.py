"""Links: where deliveries go out (SenderLink) and come in (ReceiverLink).

A link knows credit, drain and the joining and splitting of deliveries over frames. Which names and
handles exist is known to `endpoint`; what an address means is known to the driver only.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from mypy_extensions import i64

from partibus.engine.delivery import Delivery
from partibus.engine.errors import LocalProtocolError, ProtocolError, Scope
from partibus.engine.session import SERIAL, Session
from partibus.engine.states import decode_state, encode_state
from partibus.wire.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Coordinator,
    Detach,
    Error,
    Flow,
)
from partibus.wire.transfer import (
    TRANSFER_OVERHEAD,
    TransferFrame,
    TransferWriter,
    transfer_frame,
)

# Room for the performative of a frame that carries a part of a message, without its state.
_SPLIT_OVERHEAD: Final = TRANSFER_OVERHEAD + 16


class LinkState(Enum):
    """The life of a link. DETACH_SENT waits for the peer's detach and drops all else."""

    ATTACH_RECEIVED = "attach received"
    ATTACH_SENT = "attach sent"
    ATTACHED = "attached"
    DETACH_SENT = "detach sent"
    DETACHED = "detached"


# Members that every message is compared with: a global is found faster than an attribute.
_ATTACHED: Final = LinkState.ATTACHED
_ATTACH_RECEIVED: Final = LinkState.ATTACH_RECEIVED


class Link:
    """What both kinds of link have: a name, a handle, and a beginning and an end."""

    __slots__ = (
        "attach", "context", "delivery_count", "handle", "name", "peer_attach",
        "remote_handle", "reported", "role", "session", "state",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, role: bool, handle: int) -> None:
        self.context: object = None
        self.session: Session = session
        self.name: str = name
        self.role: bool = role
        self.handle: int = handle
        self.remote_handle: int = -1
        self.state: LinkState = LinkState.ATTACH_SENT
        # What we attached with, and what the peer did.
        self.attach: Attach | None = None
        self.peer_attach: Attach | None = None
        self.delivery_count: i64 = 0
        # Whether the driver has been told that the link is over.
        self.reported: bool = False

    @property
    def is_attached(self) -> bool:
        """Whether both sides have attached and none has detached."""
        return self.state is LinkState.ATTACHED

    def accept(
        self,
        *,
        source: Any = None,
        target: Any = None,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """Answer the peer's attach; source and target are the peer's own where not given."""
        peer = self.peer_attach
        if self.state is not LinkState.ATTACH_RECEIVED or peer is None:
            return
        self._write_attach(
            Attach(
                source=peer.source if source is None else source,
                target=peer.target if target is None else target,
                max_message_size=max_message_size,
                properties=properties,
            )
        )
        self.state = LinkState.ATTACHED

    def refuse(self, error: Error) -> None:
        """Answer the peer's attach without source and target, then detach with the error."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self.detach(error)

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """Write detach; LinkDetached follows with the peer's answer."""
        if self.state is LinkState.ATTACH_RECEIVED:
            # §2.6.3: also a refused link is first attached, with no terminus, then detached.
            self._write_attach(Attach())
        if self.state not in (LinkState.DETACH_SENT, LinkState.DETACHED):
            self.write_detach(closed, error)
            self.state = LinkState.DETACH_SENT

    def write_detach(self, closed: bool, error: Error | None) -> None:
        """Write a detach frame, unless the session is over."""
        if self.session.is_active:
            self.session.output.perform(self.session.channel, Detach(self.handle, closed, error))

    def _write_attach(self, attach: Attach) -> None:
        """Write our attach, with the settle modes the peer asked for."""
        attach.name = self.name
        attach.handle = self.handle
        attach.role = self.role
        if self.peer_attach is not None:
            attach.snd_settle_mode = self.peer_attach.snd_settle_mode
            attach.rcv_settle_mode = self.peer_attach.rcv_settle_mode
        if self.role is ROLE_SENDER:
            attach.initial_delivery_count = 0
        self.attach = attach
        if self.session.is_active:
            self.session.output.perform(self.session.channel, attach)

    def initiate(self, attach: Attach) -> None:
        """Client: write the attach that begins this link."""
        self._write_attach(attach)

    def write_flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Tell the peer the state of the link, and with it that of the session."""
        if self.session.is_active and self.state not in (
            LinkState.DETACH_SENT,
            LinkState.DETACHED,
        ):
            flow = self.session.flow()
            flow.handle = self.handle
            flow.delivery_count = self.delivery_count
            flow.link_credit = credit
            flow.drain = drain
            flow.echo = echo
            self.session.output.perform(self.session.channel, flow)


class SenderLink(Link):
    """A link on which we send."""

    __slots__ = ("_writer", "credit", "drain")

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, ROLE_SENDER, handle)
        self.credit: i64 = 0
        # The peer wants its credit used or given back: answer with `drained`.
        self.drain: bool = False
        self._writer: TransferWriter = TransferWriter(session.channel, handle)

    @property
    def sendable(self) -> int:
        """How many deliveries may be sent now: the credit, or 0 where the session is full."""
        if self.state is LinkState.ATTACHED and self.session.can_send:
            return self.credit
        return 0

    def send(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        state: object = None,
    ) -> int:
        """Send one message; returns its delivery-id."""
        if message_format == 0 and state is None:
            return self.send_many([(tag, payload)], settled)
        self._check_credit(1)
        delivery_id = self.session.next_delivery_id
        self._send_split(delivery_id, tag, payload, settled, message_format, encode_state(state))
        self._sent(delivery_id, tag, settled)
        return delivery_id

    def send_many(self, messages: list[tuple[bytes, bytes]], settled: bool = False) -> int:
        """Send (tag, payload) pairs; they get consecutive delivery-ids from the one returned."""
        session = self.session
        if not messages:
            return session.next_delivery_id
        self._check_credit(len(messages))
        out = session.output.writer
        whole_max: i64 = session.output.frame_size_max - TRANSFER_OVERHEAD
        first = session.next_delivery_id
        delivery_id = first
        is_direct = session.queued_bytes == 0
        for tag, payload in messages:
            if is_direct and session.remote_window > 0 and len(payload) <= whole_max:
                self._writer.write(out, delivery_id, tag, payload, settled)
                session.count_outgoing()
            else:
                self._send_split(delivery_id, tag, payload, settled, 0, b"")
                is_direct = session.queued_bytes == 0
            self._sent(delivery_id, tag, settled)
            delivery_id = session.next_delivery_id
        return first

    def _check_credit(self, count: int) -> None:
        if self.state is not _ATTACHED:
            raise LocalProtocolError(f"link {self.name!r} is not attached")
        if count > self.credit:
            raise LocalProtocolError(f"{count} deliveries with a credit of {self.credit}")

    def _sent(self, delivery_id: i64, tag: bytes, settled: bool) -> None:
        session = self.session
        session.next_delivery_id = (delivery_id + 1) & SERIAL
        self.delivery_count = (self.delivery_count + 1) & SERIAL
        self.credit -= 1
        if not settled:
            session.unsettled[delivery_id] = (self.handle, tag)

    def _send_split(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        state: bytes,
    ) -> None:
        """Send a message over as many frames as it takes."""
        room = self.session.output.frame_size_max - _SPLIT_OVERHEAD - len(state)
        if room <= 0:
            raise LocalProtocolError("the delivery state does not fit a frame of the peer")
        for start in range(0, max(len(payload), 1), room):
            frame = transfer_frame(
                channel=self.session.channel,
                handle=self.handle,
                delivery_id=delivery_id,
                tag=tag,
                message_format=message_format,
                settled=settled,
                more=start + room < len(payload),
                state=state,
                payload=payload[start : start + room],
            )
            self.session.send_frame(frame)

    def drained(self) -> None:
        """Answer a drain: what credit is left is used up."""
        if self.drain:
            self.delivery_count = (self.delivery_count + self.credit) & SERIAL
            self.credit = 0
            self.drain = False
            self.write_flow(0, drain=True)

    def settle(self, delivery_ids: list[int], state: object) -> None:
        """Write settled dispositions, as ranges where the ids are consecutive."""
        self.session.write_dispositions(ROLE_SENDER, delivery_ids, True, encode_state(state))

    def take_flow(self, flow: Flow) -> None:
        """Take the credit and the drain of the receiving peer; answer an echo."""
        seen = 0 if flow.delivery_count is None else flow.delivery_count
        if flow.link_credit is not None:
            ahead: int = (seen - self.delivery_count) & SERIAL
            if ahead >= 0x80000000:
                ahead -= 0x100000000
            self.credit = max(0, ahead + flow.link_credit)
        self.drain = flow.drain
        if flow.echo and not flow.drain:
            self.write_flow(self.credit)


class ReceiverLink(Link):
    """A link on which the peer sends."""

    __slots__ = (
        "_chunks", "_chunks_size", "_first", "batch", "credit", "drain",
        "is_coordinator", "message_size_max", "overrun",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, ROLE_RECEIVER, handle)
        self.credit: i64 = 0
        # We asked the peer to use up its credit and it has not answered yet.
        self.drain: bool = False
        # Deliveries that came without credit. Python clients do that; it is not an error.
        self.overrun: int = 0
        self.message_size_max: int = session.limits.message_size_max
        self.is_coordinator: bool = False
        # The deliveries of the event that is being filled, during one `receive_data`.
        self.batch: list[Delivery] | None = None
        # The frames of a message of which more is to come, and what the first one said.
        self._chunks: list[bytes] = []
        self._chunks_size: int = 0
        self._first: Delivery | None = None

    def attached_by(self, attach: Attach) -> None:
        """Take what the peer's attach says about deliveries."""
        self.delivery_count = attach.initial_delivery_count or 0
        self.is_coordinator = isinstance(attach.target, Coordinator)

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the link's credit (not add to it) and tell the peer by a flow."""
        self.credit = credit
        self.drain = drain
        self.write_flow(credit, drain=drain)

    def settle(self, delivery_ids: list[int], state: object, *, settled: bool = True) -> None:
        """Give an outcome to deliveries, as ranges where the ids are consecutive.

        With `settled` False the peer is asked to settle; Settlements tells when it has.
        """
        if not settled:
            for delivery_id in delivery_ids:
                self.session.awaiting[delivery_id] = (self.handle, b"")
        self.session.write_dispositions(ROLE_RECEIVER, delivery_ids, settled, encode_state(state))

    def take_flow(self, flow: Flow) -> bool:
        """Take a flow of the sending peer; True if it answers our drain."""
        answered = self.drain and flow.delivery_count is not None
        if answered and flow.delivery_count is not None:
            self.delivery_count = flow.delivery_count
            self.credit = 0
            self.drain = False
        elif flow.echo:
            self.write_flow(self.credit)
        return answered

    def take(self, frame: TransferFrame, data: bytes, end: i64) -> Delivery | None:
        """Take a transfer frame; the delivery if this was its last."""
        if self.state is not _ATTACHED and self.state is not _ATTACH_RECEIVED:
            return None
        size: i64 = end - frame.payload
        if self._chunks_size + size > self.message_size_max:
            self._forget()
            raise ProtocolError(
                Scope.LINK,
                "amqp:link:message-size-exceeded",
                f"a message of more than {self.message_size_max} bytes",
            )
        first = self._first
        if first is None:
            first = self._begin(frame)
        elif frame.settled:
            first.settled = True
        if frame.aborted:
            self._forget()
            return None
        payload = data[frame.payload : end]
        if frame.more:
            self._first = first
            if payload:
                self._chunks.append(payload)
                self._chunks_size += size
            return None
        if self._chunks:
            self._chunks.append(payload)
            payload = b"".join(self._chunks)
        if self._first is not None:
            self._forget()
        first.payload = payload
        return first

    def _begin(self, frame: TransferFrame) -> Delivery:
        """Take the first frame of a delivery; only it must say which delivery it is."""
        if frame.delivery_id < 0:
            raise ProtocolError(
                Scope.LINK, "amqp:invalid-field", "a transfer without a delivery-id"
            )
        self.delivery_count = (self.delivery_count + 1) & SERIAL
        if self.credit > 0:
            self.credit -= 1
        else:
            self.overrun += 1
        message_format = frame.message_format if frame.message_format > 0 else 0
        state = decode_state(frame.state) if frame.state else None
        return Delivery(frame.delivery_id, frame.tag, message_format, frame.settled, state, b"")

    def _forget(self) -> None:
        """Drop what has gathered of a message."""
        self._first = None
        self._chunks = []
        self._chunks_size = 0
