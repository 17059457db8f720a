"""A node with an HTTP door on a loopback port, in this thread's loop, and a client of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from partibus.client.tokens import TOKEN_LIFE_MS, SharedKey
from partibus.management.server import HttpDoor
from partibus.management.settings import HttpSettings
from partibus.runtime.clock import SystemClock, clock_base_ms
from partibus.runtime.disk import ThreadDisk
from partibus.runtime.node import Node, Placement
from partibus.store.catalog import ROOT_RULE, Catalog, NamespaceSettings
from partibus.store.memory import MemoryStore

KEY = "cm9vdCBrZXk="
STORES = 2
PATIENCE_S = 20


class World:
    """One node, its door and its catalog."""

    def __init__(self, node: Node, catalog: Catalog, door: HttpDoor, port: int) -> None:
        self.node = node
        self.catalog = catalog
        self.door = door
        self.port = port

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection to the door."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def talk(self, request: bytes) -> bytes:
        """All that is answered to these bytes, until the door closes the connection."""
        async with self.connected() as (reader, writer):
            writer.write(request)
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""

    async def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """One request on a connection of its own: status, headers and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
        head += f"Content-Length: {len(body)}\r\n" if body else ""
        head += "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
        return parse(await self.talk(head.encode() + b"\r\n" + body))

    def token(self, path: str = "", rule: str = ROOT_RULE, key: str = KEY, end_s: int = 600) -> str:
        """A token for a path ("": the namespace) that ends after so many seconds."""
        now_ms = self.node.clock.now_ms() + end_s * 1000 - TOKEN_LIFE_MS
        return SharedKey(rule, key).token(f"http://test/{path}", now_ms).text


def parse(answer: bytes) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of one whole answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body.decode()


@contextlib.asynccontextmanager
async def open_world(
    directory: Path,
    settings: HttpSettings | None = None,
    profile: str = "standard",
    data: Path | None = None,
) -> AsyncIterator[World]:
    """A door that is open while it is used."""
    loop = asyncio.get_running_loop()
    namespace = NamespaceSettings("test", STORES, profile)
    catalog = Catalog.make(directory / "catalog.sqlite", namespace, lambda: KEY)
    node = Node(
        Placement(0, (), STORES),
        catalog,
        lambda _: MemoryStore(),
        lambda store: ThreadDisk(loop, f"store-{store}"),
        SystemClock(loop, clock_base_ms()),
        loop,
    )
    await node.start()
    door = HttpDoor(node, settings or HttpSettings("test"), loop, data=data)
    listening = socket.create_server(("127.0.0.1", 0))
    await door.listen(listening)
    try:
        yield World(node, catalog, door, listening.getsockname()[1])
    finally:
        await door.close()
        await node.stop()
        catalog.close()


def in_world(
    directory: Path,
    use: Callable[[World], Awaitable[None]],
    settings: HttpSettings | None = None,
    profile: str = "standard",
    data: Path | None = None,
) -> None:
    """Run one use of a door, within reason."""

    async def run() -> None:
        opened = open_world(directory, settings, profile, data)
        async with asyncio.timeout(PATIENCE_S), opened as world:
            await use(world)

    asyncio.run(run())
