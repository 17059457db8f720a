"""The bulk doors as HTTP routes under `/$partibus/bulk/`.

An entity is named as clients name it (`orders`, `orders/$deadletterqueue`,
`news/subscriptions/all`). Who reads needs the right Listen, who writes Send.
"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from partibus.broker.access import Right
from partibus.broker.errors import InvalidArgument
from partibus.management.bulk.reading import BulkReading
from partibus.management.calls import Call, Service, route
from partibus.wire.columns import READ_COLUMNS

PREFIX = "/$partibus/bulk/{entity:path}"
ARROW = "application/vnd.apache.arrow.stream"


def routes(service: Service) -> list[Route]:
    """The routes of the bulk doors."""
    reading = BulkReading(service.node, service.side)

    async def positions(call: Call) -> Response:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        at = call.request.query_params.get("at")
        return JSONResponse(
            await reading.positions(path, None if at is None else _number("at", at))
        )

    async def messages(call: Call) -> Response:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        query = call.request.query_params
        stream = reading.messages(
            path,
            int(call.part("fragment")),
            _number("after", query.get("after", "0")),
            _number("upto", query.get("upto", "")),
            query.get("columns", ",".join(READ_COLUMNS)).split(","),
        )
        # What is refused is known with the first chunk, before the answer has begun.
        await anext(stream)
        return StreamingResponse(stream, media_type=ARROW)

    return [
        route(service, PREFIX + "/fragments", {"GET": positions}),
        route(service, PREFIX + "/fragments/{fragment:int}/messages", {"GET": messages}),
    ]


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidArgument(f"'{name}' is a number, not '{text}'.")
    return int(text)
