"""All paths of the HTTP door, in the order in which they are tried.

A module of operations offers its routes; here they are put together with how refusals are told.
The paths of entities come last, because they can be anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute

from partibus.broker.errors import Refusal
from partibus.management import fragments, health, metrics, pipelines
from partibus.management.atom import dispatch
from partibus.management.bulk import routes as bulk
from partibus.management.calls import Service
from partibus.management.messages import routes as messages
from partibus.management.operations import routes as operations
from partibus.management.refusals import Refusals
from partibus.store import StoreError


def application(service: Service, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The whole door as an ASGI application, with pages for people to look at."""
    refusals = Refusals(service.tracking, service.node.wrong_tokens, service.clock)
    return Starlette(
        routes=[
            *pages,
            *health.routes(service),
            *metrics.routes(service),
            *fragments.routes(service),
            *pipelines.routes(service),
            *bulk.routes(service),
            *operations.routes(service),
            *messages.routes(service),
            *dispatch.routes(service),
        ],
        exception_handlers={
            Refusal: refusals.refused,
            StoreError: refusals.failed,
            HTTPException: refusals.not_routed,
            ClientDisconnect: refusals.left,
            Exception: refusals.wrong,
        },
    )
