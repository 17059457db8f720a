"""A network in memory, for hops that can be delayed and cut.

Bytes arrive in order, each after a delay; what was on its way when a connection was cut is lost,
and both ends are told. Which delay and which cut is for the caller to say: from a seed, the same
network behaves the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Make = Callable[[], asyncio.Protocol]


class SimulatedNetwork:
    """Listeners by path, and the connections between them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_ms: Callable[[], float] = lambda: 0
    ) -> None:
        self._loop = loop
        self._delay_ms = delay_ms
        self._listeners: dict[str, Make] = {}
        self.connections: list[Connection] = []

    def listen(self, path: str, make: Make) -> asyncio.AbstractServer:
        """Accept connections from now on; a listener that was here before is replaced."""
        self._listeners[path] = make
        return _Listener(self._loop, self._listeners, path)

    def connect(self, path: str, make: Make) -> asyncio.Protocol:
        """Connect to who listens there."""
        accept = self._listeners.get(path)
        if accept is None:
            raise ConnectionRefusedError(path)
        connection = Connection(self._loop, path, self._delay_ms)
        self.connections = [each for each in self.connections if not each.is_cut]
        self.connections.append(connection)
        return connection.join(make(), accept())

    def cut(self, path: str = "") -> None:
        """Cut every connection, or those to one listener."""
        for connection in self.connections:
            if not path or connection.path == path:
                connection.cut()

    def forget(self, path: str) -> None:
        """The process that listened here is gone."""
        self._listeners.pop(path, None)
        self.cut(path)


class Connection:
    """Two ends that can be cut apart."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, path: str, delay_ms: Callable[[], float]
    ) -> None:
        self.loop = loop
        self.path = path
        self.delay_ms = delay_ms
        self.is_cut = False
        self._ends: list[End] = []

    def join(self, client: asyncio.Protocol, server: asyncio.Protocol) -> asyncio.Protocol:
        """Connect two protocols; returns the first."""
        self._ends = [End(self, client), End(self, server)]
        for end, other in (self._ends, self._ends[::-1]):
            end.other = other
        for end in reversed(self._ends):
            end.protocol.connection_made(end)
        return client

    def cut(self) -> None:
        """Lose what is on the way, and tell both ends."""
        if not self.is_cut:
            self.is_cut = True
            for end in self._ends:
                self.loop.call_soon(end.protocol.connection_lost, None)


class End(asyncio.Transport):
    """One end: what is written here arrives at the other."""

    other: End

    def __init__(self, connection: Connection, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._connection = connection
        self._arrival_s = 0.0
        self._unread = 0
        self._travelling: deque[bytes] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Let the other end have it, in order, after a while."""
        if self._connection.is_cut:
            return
        loop = self._connection.loop
        due_s = loop.time() + self._connection.delay_ms() / 1000
        self._arrival_s = max(self._arrival_s, due_s)
        self._unread += len(data)
        # Timers of the same moment fire in any order, bytes arrive in that of their sending.
        self._travelling.append(bytes(data))
        loop.call_at(self._arrival_s, self._arrive)

    def _arrive(self) -> None:
        data = self._travelling.popleft()
        self._unread -= len(data)
        if not self._connection.is_cut:
            self.other.protocol.data_received(data)

    def get_write_buffer_size(self) -> int:
        """What the other end has not got yet."""
        return self._unread

    def is_closing(self) -> bool:
        """Whether the connection is over."""
        return self._connection.is_cut

    def close(self) -> None:
        """End the connection."""
        self._connection.cut()

    def abort(self) -> None:
        """End the connection."""
        self._connection.cut()


class _Listener(asyncio.AbstractServer):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, listeners: dict[str, Make], path: str
    ) -> None:
        self._loop = loop
        self._listeners = listeners
        self._path = path
        self._make = listeners[path]

    def close(self) -> None:
        if self.is_serving():
            del self._listeners[self._path]

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._listeners.get(self._path) is self._make

    async def start_serving(self) -> None:
        """It does from the beginning."""

    async def serve_forever(self) -> None:
        raise NotImplementedError

    async def wait_closed(self) -> None:
        """Closing takes no time."""
