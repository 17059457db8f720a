"""One HTTP request, as its handler sees it: who asks, what for, and the bytes that came with it.

Here is the one place where access over HTTP is checked, and the one where bodies are read. What
an operation does is in the modules of its routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from partibus.broker.access import Right, covers, resource_path, rights_allow
from partibus.broker.errors import OperationTimedOut, Unauthorized
from partibus.management.connection import HttpConnection
from partibus.management.refusals import BodyTooLarge, MethodNotAllowed
from partibus.management.settings import (
    BODY_S_MAX,
    DISCARD_BYTES_MAX,
    DISCARD_PAUSE_S,
    LINGER_S,
    HttpSettings,
)
from partibus.management.side_process import SideProcess
from partibus.runtime.clock import Clock
from partibus.runtime.granting import check_grant
from partibus.runtime.node import Node
from partibus.runtime.tracking import TrackingTexts

# What is routed at all; a handler that has none of its own for one of them says which there are.
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Service:
    """What all handlers of a door share."""

    node: Node
    settings: HttpSettings
    # The clients' time: what their tokens end by.
    clock: Clock
    tracking: TrackingTexts
    # Who reads and writes whole fragments.
    side: SideProcess
    # Where bulk writes wait to be published; None where messages are in memory only.
    staging: Path | None
    # The data directory, in which the files of pipelines are; None as above.
    data: Path | None = None


class Call:
    """One request."""

    __slots__ = ("request", "service")

    def __init__(self, request: Request, service: Service) -> None:
        self.request = request
        self.service = service

    @property
    def node(self) -> Node:
        """The node that answers."""
        return self.service.node

    @property
    def connection(self) -> HttpConnection:
        """The connection that the request came on, which may bring more."""
        connection: HttpConnection = self.request.state.connection
        return connection

    def part(self, name: str) -> str:
        """A part of the path that the route names."""
        return str(self.request.path_params[name])

    def require(self, right: Right, path: str, token: str | None = None) -> None:
        """Refuse who may not do this with this path ("": the whole namespace).

        What counts is this token, else the one that came with the request.
        """
        header = token or self.request.headers.get("authorization")
        if header is not None:
            self._check(header, right, resource_path(path), is_own=token is None)
        elif not self.service.settings.dev:
            raise Unauthorized("MissingToken: The request has no Authorization header.")

    def _check(self, token: str, right: Right, path: str, *, is_own: bool) -> None:
        now_ms = self.service.clock.now_ms()
        dev = self.service.settings.dev
        # Some clients sign for the entity, others for the very address that they ask.
        address = resource_path(self.request.url.path)
        part = address if is_own and covers(path, address) else None
        grant = check_grant(self.node, token, path, now_ms, dev=dev, part=part)
        if not rights_allow(grant.rights, right):
            names = ", ".join(str(each.name).capitalize() for each in right)
            raise Unauthorized(f"Unauthorized access. '{names}' claim(s) are required.")

    async def body(self, most: int, span_s: float = BODY_S_MAX) -> bytes:
        """The whole body, if it is no longer than this and comes in time."""
        body = bytearray()
        left = DISCARD_BYTES_MAX
        too_long = False
        try:
            async with asyncio.timeout(span_s) as limit:
                async for chunk in self.request.stream():
                    if len(body) + len(chunk) <= most and not too_long:
                        body += chunk
                        continue
                    if not too_long:
                        # Read on for a while: who is still writing would not see the answer.
                        too_long = True
                        limit.reschedule(asyncio.get_running_loop().time() + LINGER_S)
                    left -= len(chunk)
                    if left < 0:
                        break
                    await asyncio.sleep(DISCARD_PAUSE_S)
        except TimeoutError:
            if not too_long:
                raise OperationTimedOut(f"The body did not come within {span_s:g} s.") from None
        if too_long:
            raise BodyTooLarge(most)
        return bytes(body)


Handler = Callable[[Call], Awaitable[Response]]


async def answered(handler: Handler, call: Call, method: str, path: str) -> Response:
    """What a handler answers on a path of the door; with a span where this process is traced."""
    spans = call.node.spans
    if spans is None:
        return await handler(call)
    with spans.answering(method, path, call.request.headers) as span:
        response = await handler(call)
        span.answered(response.status_code)
        return response


def route(service: Service, path: str, handlers: Mapping[str, Handler]) -> Route:
    """A path of the door: which handler answers which method (HEAD is answered as GET)."""

    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        handler = handlers.get(method)
        if handler is None:
            raise MethodNotAllowed(request.method, tuple(handlers))
        return await answered(handler, Call(request, service), method, path)

    return Route(path, answer, methods=METHODS)
