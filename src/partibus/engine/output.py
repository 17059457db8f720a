"""What a connection has to send: frames in the order they were written.

Shared by the connection, its sessions and its links. Not a queue with back-pressure of its own:
the driver takes all of it after every call, and senders look at `size` before they add more.
"""

from __future__ import annotations

from typing import Any

from librt.strings import BytesWriter

from partibus.wire.composites import compose
from partibus.wire.frames import FRAME_AMQP, FRAME_SIZE_MIN, write_frame


class Output:
    """Bytes to be sent, and the largest frame the peer takes."""

    __slots__ = ("frame_size_max", "writer")

    def __init__(self) -> None:
        self.writer: BytesWriter = BytesWriter()
        self.frame_size_max: int = FRAME_SIZE_MIN

    @property
    def size(self) -> int:
        """Bytes that wait to be taken."""
        return len(self.writer)

    def perform(self, channel: int, performative: Any) -> None:
        """Append a frame with this performative."""
        write_frame(self.writer, FRAME_AMQP, channel, compose(performative))

    def take(self) -> bytes:
        """All that was written since the last call."""
        if len(self.writer) == 0:
            return b""
        data = self.writer.getvalue()
        self.writer = BytesWriter()
        return data
