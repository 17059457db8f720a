"""One connection under load: bytes out as the socket takes them, frames in as they come."""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from struct import Struct

from benchmarks.load.dialogue import Opened
from benchmarks.load.frames import Broken
from benchmarks.load.latency import Latencies

READ_SIZE = 1 << 18
EPOLL_BOTH = select.EPOLLIN | select.EPOLLOUT
SIZE = Struct(">I").unpack_from


class Line(ABC):
    """What sender and receiver share. `confirmed` is what the broker has answered for."""

    def __init__(self, opened: Opened, poll: select.epoll, latencies: Latencies) -> None:
        self.sock: socket.socket = opened.sock
        self.latencies = latencies
        self.confirmed = 0
        self.refused = 0
        self._rest = opened.rest
        self._poll = poll
        self._unsent: memoryview | None = None
        poll.register(self.sock, select.EPOLLIN)

    def start(self) -> None:
        """The clock has started."""
        data, self._rest = self._rest, b""
        self._take(data)
        self.advance()

    def on_readable(self) -> None:
        data = self.sock.recv(READ_SIZE)
        if not data:
            raise Broken("the broker closed a connection under load")
        self._take(self._rest + data if self._rest else data)
        self.advance()

    def on_writable(self) -> None:
        pending, self._unsent = self._unsent, None
        if pending is not None:
            self.write(pending)
        if self._unsent is None:
            self._poll.modify(self.sock, select.EPOLLIN)
            self.advance()

    def write(self, data: memoryview | bytes) -> None:
        """Write, or keep what the socket does not take; `blocked` says whether it did not."""
        try:
            written = self.sock.send(data)
        except BlockingIOError:
            written = 0
        if written < len(data):
            self._unsent = memoryview(data)[written:]
            self._poll.modify(self.sock, EPOLL_BOTH)

    @property
    def blocked(self) -> bool:
        return self._unsent is not None

    def _take(self, data: bytes) -> None:
        self._rest = data[self.frames(data, len(data)) :]

    @abstractmethod
    def frames(self, data: bytes, end: int) -> int:
        """Look at all whole frames; return where the first incomplete one begins."""

    @abstractmethod
    def state(self) -> str:
        """What it waits for, to be read when it waits in vain."""

    @abstractmethod
    def advance(self) -> None:
        """Write what may be written now."""
