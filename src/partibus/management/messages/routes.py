"""The paths of message operations.

Only the methods that they have are taken: an entity may be called `a/messages`, and is managed
under that path with the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partibus.management.calls import Call, Handler, Service, answered
from partibus.management.messages import delivering, sending, settling

_OPERATIONS: Mapping[str, Mapping[str, Handler]] = {
    "/{entity:path}/messages/head": {
        "POST": delivering.peek_lock,
        "DELETE": delivering.receive_and_delete,
    },
    "/{entity:path}/messages/{message}/{token}": {
        "PUT": settling.unlock,
        "DELETE": settling.complete,
        "POST": settling.renew,
    },
    "/{entity:path}/messages": {"POST": sending.send},
}


def routes(service: Service) -> list[BaseRoute]:
    """The paths of this package."""
    return [
        Route(path, _endpoint(service, handler, method, path), methods=[method])
        for path, handlers in _OPERATIONS.items()
        for method, handler in handlers.items()
    ]


def _endpoint(
    service: Service, handler: Handler, method: str, path: str
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await answered(handler, Call(request, service), method, path)

    return answer
