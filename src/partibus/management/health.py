"""Answers `GET /health`, in the words of the vendor's emulator, on the HTTP port.

Healthy is who can take and give messages. While some stores or nodes are down the answer is still
200 and names them: partitioned queues go on without them. Nothing else of HTTP is spoken here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0
CONNECTIONS_MAX = 128


@dataclass(frozen=True, slots=True)
class Health:
    """What a node knows of the namespace: how many there are, and which do not answer."""

    stores: int
    stores_down: tuple[int, ...]
    nodes: int
    nodes_down: tuple[int, ...]

    @property
    def can_serve(self) -> bool:
        """Whether there is a store left that takes messages."""
        return len(self.stores_down) < self.stores


class HealthDoor:
    """The HTTP port of one node."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health
        self._server: asyncio.AbstractServer | None = None
        self._open = 0

    async def listen(self, listening: socket.socket) -> None:
        """Answer on this socket, from now on."""
        self._server = await asyncio.start_server(
            self._serve, sock=listening, limit=REQUEST_BYTES_MAX
        )

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(head, self._health))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            # Who asks too slowly, too much or not at all gets no answer.
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def answer(head: bytes, health: Callable[[], Health]) -> bytes:
    """The whole answer to a request with this head."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD") or path.rstrip(b"/") != b"/health":
        return _response("404 Not Found", {"message": "There is only GET /health here."}, method)
    now = health()
    status = "200 OK" if now.can_serve else "503 Service Unavailable"
    return _response(status, _body(now), method)


def _body(now: Health) -> dict[str, object]:
    if not now.can_serve:
        status, message = "unhealthy", "Service not available. Please try after some time."
    elif now.stores_down or now.nodes_down:
        status, message = "limited", "Service is healthy, but some stores or nodes are down."
    else:
        status, message = "healthy", "Service is healthy."
    return {
        "status": status,
        "message": message,
        "stores": {"total": now.stores, "down": list(now.stores_down)},
        "nodes": {"total": now.nodes, "down": list(now.nodes_down)},
    }


def _response(status: str, body: dict[str, object], method: bytes) -> bytes:
    content = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else content)
