"""One AMQP session: its windows, its delivery-ids and what of its deliveries is unsettled.

The links of a session write through it. It does not know them: attaching, and turning the peer's
frames into events, is the work of `endpoint`.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from mypy_extensions import i64

from partibus.engine.limits import Limits
from partibus.engine.output import Output
from partibus.wire.performatives import Begin, End, Error, Flow
from partibus.wire.transfer import write_disposition

SERIAL: Final = 0xFFFFFFFF


class SessionState(Enum):
    """The life of a session; END_SENT waits for the peer's end and drops all else."""

    BEGIN_SENT = "begin sent"
    ACTIVE = "active"
    END_SENT = "end sent"
    ENDED = "ended"


class Session:
    """A session; `context` belongs to the driver."""

    __slots__ = (
        "_awaiting", "_incoming_left", "_queued", "_queued_bytes", "_renew_below",
        "channel", "context", "limits", "next_delivery_id", "next_incoming_id",
        "next_outgoing_id", "output", "peer_begin", "remote_window", "state", "unsettled",
    )  # fmt: skip

    def __init__(self, channel: int, limits: Limits, output: Output) -> None:
        self.context: object = None
        self.channel: int = channel
        self.limits: Limits = limits
        self.output: Output = output
        self.state: SessionState = SessionState.BEGIN_SENT
        self.peer_begin: Begin | None = None
        self.next_delivery_id: i64 = 0
        # Deliveries we sent that have no outcome yet: delivery-id to (our handle, tag).
        self.unsettled: dict[int, tuple[int, bytes]] = {}
        # Deliveries we received and gave an outcome that the peer has not settled yet.
        self._awaiting: dict[int, tuple[int, bytes]] = {}
        self.next_outgoing_id: i64 = 0
        self.next_incoming_id: i64 = 0
        # How many transfer frames the peer takes, and how many more we have promised to take.
        self.remote_window: i64 = 0
        self._incoming_left: i64 = limits.incoming_window
        self._renew_below: i64 = (limits.incoming_window + 1) // 2
        self._queued: deque[bytes] = deque()
        self._queued_bytes: int = 0

    @property
    def is_active(self) -> bool:
        """Whether frames may be written on it."""
        return self.state in (SessionState.BEGIN_SENT, SessionState.ACTIVE)

    @property
    def can_send(self) -> bool:
        """Whether the peer's window, our buffers and the unsettled bound leave room."""
        return (
            self.state is SessionState.ACTIVE
            and self.remote_window > 0
            and not self._queued
            and len(self.unsettled) < self.limits.unsettled_max
            and self.output.size < self.limits.buffered_bytes_max
        )

    @property
    def awaiting(self) -> dict[int, tuple[int, bytes]]:
        """Received deliveries whose outcome the peer has not settled yet (by delivery-id)."""
        return self._awaiting

    def end(self, error: Error | None = None) -> None:
        """Write end; SessionEnded follows with the peer's answer."""
        if self.is_active:
            self.output.perform(self.channel, End(error))
            self.state = SessionState.END_SENT

    def begin(self, remote_channel: int | None) -> None:
        """Write begin: ours, or the answer to the peer's."""
        self.output.perform(
            self.channel,
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self.limits.incoming_window,
                outgoing_window=self.limits.outgoing_window,
                handle_max=self.limits.handle_max,
            ),
        )

    def begun(self, begin: Begin) -> None:
        """Take the peer's begin."""
        self.peer_begin = begin
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        # A session that we have ended meanwhile only waits for the peer's end.
        if self.state is SessionState.BEGIN_SENT:
            self.state = SessionState.ACTIVE

    def count_incoming(self) -> None:
        """Count a transfer frame of the peer and renew its window in time.

        The peer's transfer-ids are not checked: pyamqp counts messages where AMQP counts frames.
        """
        self.next_incoming_id = (self.next_incoming_id + 1) & SERIAL
        self._incoming_left -= 1
        if self._incoming_left < self._renew_below:
            self.write_flow()

    def take_flow(self, flow: Flow) -> bool:
        """Take the peer's windows and send what waited; True if there is room where none was."""
        had_room = self.can_send
        # A peer that has not seen our begin leaves the id out and means our first.
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        ahead: int = (seen - self.next_outgoing_id) & SERIAL
        if ahead >= 0x80000000:
            ahead -= 0x100000000
        self.remote_window = max(0, ahead + flow.incoming_window)
        while self._queued and self.remote_window > 0:
            frame = self._queued.popleft()
            self._queued_bytes -= len(frame)
            self.output.writer.write(frame)
            self.count_outgoing()
        return self.can_send and not had_room

    def count_outgoing(self) -> None:
        """Count a transfer frame that was written."""
        self.remote_window -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL

    def send_frame(self, frame: bytes) -> None:
        """Write a transfer frame, or keep it until the peer's window opens."""
        if self.remote_window > 0 and not self._queued:
            self.output.writer.write(frame)
            self.count_outgoing()
            return
        self._queued.append(frame)
        self._queued_bytes += len(frame)

    @property
    def queued_bytes(self) -> int:
        """Bytes of transfers that wait for the peer's window."""
        return self._queued_bytes

    def flow(self) -> Flow:
        """A flow with the state of the session; a link adds its own."""
        self._incoming_left = self.limits.incoming_window
        return Flow(
            next_incoming_id=None if self.peer_begin is None else self.next_incoming_id,
            incoming_window=self.limits.incoming_window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=self.limits.outgoing_window,
        )

    def write_flow(self) -> None:
        """Tell the peer our windows."""
        if self.is_active:
            self.output.perform(self.channel, self.flow())

    def write_dispositions(
        self, role: bool, delivery_ids: list[int], settled: bool, state: bytes
    ) -> None:
        """Write dispositions, one frame for each run of consecutive ids."""
        if not delivery_ids or not self.is_active:
            return
        writer = self.output.writer
        ids = delivery_ids if len(delivery_ids) == 1 else sorted(delivery_ids)
        first: i64 = ids[0]
        last = first
        for delivery_id in ids:
            if delivery_id > last + 1:
                write_disposition(writer, self.channel, role, first, last, settled, state)
                first = delivery_id
            last = delivery_id
        write_disposition(writer, self.channel, role, first, last, settled, state)
