"""Answers `GET /health`, in the words of the vendor's emulator. Anyone may ask.

Healthy is who can take and give messages. While some stores or nodes are down the answer is still
200 and names them: partitioned queues go on without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from partibus.management.calls import Call, Service, route
from partibus.management.pipelines import states_of
from partibus.pipeline_files import DOWN, FAILED
from partibus.runtime.node import Node


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


def routes(service: Service) -> list[BaseRoute]:
    """The paths of this module."""
    return [route(service, path, {"GET": answer}) for path in ("/health", "/health/")]


async def answer(call: Call) -> Response:
    """How the namespace is."""
    now = health_of(call.node)
    status = 200 if now.can_serve else 503
    body = body_of(now)
    pipelines = await states_of(call.service.data, call.node.clock)
    if pipelines:
        # They say nothing about whether messages are taken and given.
        not_well = [each.name for each in pipelines if each.state in (FAILED, DOWN)]
        body["pipelines"] = {"total": len(pipelines), "down": not_well}
    return JSONResponse(body, status, {"cache-control": "no-store"})


def health_of(node: Node) -> Health:
    """What this node knows of the namespace."""
    nodes = node.placement.nodes
    return Health(
        stores=node.stores,
        stores_down=tuple(node.unavailable_stores()),
        nodes=nodes,
        nodes_down=tuple(index for index in range(nodes) if not node.peer(index).up),
    )


def body_of(now: Health) -> dict[str, object]:
    """The answer's JSON."""
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
