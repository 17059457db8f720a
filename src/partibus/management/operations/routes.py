"""The paths of what operators do, below `/$partibus/`."""

from __future__ import annotations

from starlette.routing import BaseRoute

from partibus.management.calls import Service, route
from partibus.management.operations import access_rules, exporting, peeking, purging, renaming

NAMESPACE = "/$partibus"
ENTITY = "/$partibus/entities/{entity:path}"


def routes(service: Service) -> list[BaseRoute]:
    """All of them."""
    found: list[BaseRoute] = [
        route(service, f"{NAMESPACE}/configuration", {"GET": exporting.export}),
        route(service, f"{ENTITY}/messages", {"GET": peeking.peek}),
        route(service, f"{ENTITY}/purge", {"POST": purging.empty}),
        route(service, f"{ENTITY}/rename", {"POST": renaming.rename}),
        route(service, f"{ENTITY}/swap", {"POST": renaming.swap}),
    ]
    for scope in (NAMESPACE, ENTITY):
        path = f"{scope}/access-rules"
        one = {"GET": access_rules.show, "PUT": access_rules.put, "DELETE": access_rules.delete}
        found += [
            route(service, path, {"GET": access_rules.list_all}),
            route(service, path + "/{rule}", one),
            route(service, path + "/{rule}/rotate", {"POST": access_rules.rotate}),
            route(service, path + "/{rule}/regenerate", {"POST": access_rules.regenerate}),
        ]
    return found
