"""How much a connection may take in before it is durable: beyond that its socket is not read.

Counts bytes, not messages: they are what a slow disk makes us keep in memory. Deliveries to slow
readers are paced elsewhere, by the transport's own write buffer.
"""

from __future__ import annotations

from typing import Protocol

# Bytes taken in that are not durable yet: above this nothing more is read from the socket.
HELD_BYTES_MAX = 8 * 1_048_576
HELD_BYTES_RESUME = HELD_BYTES_MAX // 2


class Readable(Protocol):
    """The part of a transport that is used here."""

    def pause_reading(self) -> None:
        """Deliver no more bytes."""

    def resume_reading(self) -> None:
        """Deliver bytes again."""

    def is_closing(self) -> bool:
        """Whether it is over."""


class Pacing:
    """The bytes of one connection that wait for the disk."""

    __slots__ = ("_is_paused", "_is_stopped", "_transport", "held")

    def __init__(self) -> None:
        self.held = 0
        self._transport: Readable | None = None
        self._is_paused = False
        # Whether reading is to stay paused however little is held.
        self._is_stopped = False

    def use(self, transport: Readable | None) -> None:
        """The socket that is read; None once it is gone."""
        self._transport = transport

    def hold(self, size: int) -> None:
        """This many bytes were taken in and are not durable yet."""
        self.held += size
        if self.held > HELD_BYTES_MAX:
            self._pause()

    def release(self, size: int) -> None:
        """They are now."""
        self.held -= size
        if self._is_paused and self.held <= HELD_BYTES_RESUME and not self._is_stopped:
            self._resume()

    def stop(self) -> None:
        """Read no more, until `go_on`."""
        self._is_stopped = True
        self._pause()

    def go_on(self) -> None:
        """Read again."""
        self._is_stopped = False
        self._resume()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._is_paused = False
