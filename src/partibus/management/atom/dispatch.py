"""Which handler answers which path and method of entity management."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.routing import BaseRoute

from partibus.broker.errors import EntityNotFound, InvalidArgument
from partibus.management.atom import entities, listing, namespace_info, rules, subscriptions
from partibus.management.atom.paths import PATH_LENGTH_MAX, Kind, Target, read_path
from partibus.management.calls import Call, Service, route
from partibus.management.refusals import NOT_HOSTED, MethodNotAllowed

Handler = Callable[[Call, Target], Awaitable[Response]]

_HANDLERS: dict[Kind, dict[str, Handler]] = {
    Kind.ENTITY: {"GET": entities.get, "PUT": entities.put, "DELETE": entities.delete},
    Kind.SUBSCRIPTION: {
        "GET": subscriptions.get,
        "PUT": subscriptions.put,
        "DELETE": subscriptions.delete,
    },
    Kind.RULE: {"GET": rules.get, "PUT": rules.put, "DELETE": rules.delete},
    Kind.SUBSCRIPTIONS: {"GET": listing.subscriptions_of},
    Kind.RULES: {"GET": listing.rules_of},
    Kind.ENTITIES: {"GET": listing.entities},
    Kind.NAMESPACE: {"GET": namespace_info.get},
}


def routes(service: Service) -> list[BaseRoute]:
    """Every path that nobody else has taken."""
    return [route(service, "/{path:path}", dict.fromkeys(("GET", "PUT", "DELETE"), _answer))]


async def _answer(call: Call) -> Response:
    path = call.part("path")
    if len(path) > PATH_LENGTH_MAX:
        raise InvalidArgument(f"A path has at most {PATH_LENGTH_MAX} characters.")
    target = read_path(path)
    if target.kind is Kind.ENTITY and path.startswith("$"):
        raise EntityNotFound(NOT_HOSTED)
    handlers = _HANDLERS[target.kind]
    method = "GET" if call.request.method == "HEAD" else call.request.method
    handler = handlers.get(method)
    if handler is None:
        raise MethodNotAllowed(method, tuple(handlers))
    return await handler(call, target)
