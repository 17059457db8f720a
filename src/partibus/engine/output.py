"""What a connection has to send: frames in the order they were written.

Shared by the connection, its sessions and its links. Not a queue with back-pressure of its own:
the driver takes all of it after every call, and senders look at `size` before they add more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from librt.strings import BytesWriter

from partibus.wire.composites import compose
from partibus.wire.frames import FRAME_AMQP, FRAME_SIZE_MIN, write_frame
from partibus.wire.performatives import Error

# A buffer of this size is used again: growing a new one for every write costs page faults. A
# larger one is given back, so that thousands of idle connections do not hold on to their peaks.
_KEPT_MAX: Final = 65536


class Output:
    """Bytes to be sent, and the largest frame the peer takes."""

    __slots__ = ("frame_size_max", "tracked", "writer")

    def __init__(self) -> None:
        self.writer: BytesWriter = BytesWriter()
        self.frame_size_max: int = FRAME_SIZE_MIN
        # How the driver wants errors of the peer's told; None: as they are.
        self.tracked: Callable[[Error], Error] | None = None

    @property
    def size(self) -> int:
        """Bytes that wait to be taken."""
        return len(self.writer)

    def told(self, error: Error) -> Error:
        """An error of the peer's as it is told."""
        return error if self.tracked is None else self.tracked(error)

    def perform(self, channel: int, performative: Any) -> None:
        """Append a frame with this performative."""
        write_frame(self.writer, FRAME_AMQP, channel, compose(performative))

    def take(self) -> bytes:
        """All that was written since the last call."""
        if len(self.writer) == 0:
            return b""
        data = self.writer.getvalue()
        if len(data) > _KEPT_MAX:
            self.writer = BytesWriter()
        else:
            self.writer.truncate(0)
        return data
