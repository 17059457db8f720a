"""The bulk doors as HTTP routes under `/$partibus/bulk/`.

An entity is named as clients name it (`orders`, `orders/$deadletterqueue`,
`news/subscriptions/all`). Who reads needs the right Listen, who writes Send.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from partibus.broker.access import Right
from partibus.broker.errors import InvalidArgument
from partibus.management.bulk import listing
from partibus.management.bulk.consuming import BulkConsuming
from partibus.management.bulk.readers import BulkReaders
from partibus.management.bulk.reading import BulkReading
from partibus.management.bulk.writing import BulkWriting
from partibus.management.calls import Call, Service, route
from partibus.management.refusals import BodyTooLarge
from partibus.wire.columns import READ_COLUMNS

PREFIX = "/$partibus/bulk/{entity:path}"
# What one attempt may hold; a task sends several.
ATTEMPT_BYTES_MAX = 256 * 1024 * 1024
# Positions of all fragments.
POSITIONS_MAX = 64 * 1024
# What names the attempts of a batch.
MANIFEST_MAX = 16 * 1024 * 1024
ARROW = "application/vnd.apache.arrow.stream"


def routes(service: Service) -> list[Route]:
    """The routes of the bulk doors."""
    return [
        *listing.routes(service),
        *_reading(service),
        *_readers(service),
        *_consumers(service),
        *_writing(service),
    ]


def _reading(service: Service) -> list[Route]:
    reading = BulkReading(service.node, service.side)

    async def positions(call: Call) -> Response:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        query = call.request.query_params
        at = query.get("at")
        return JSONResponse(
            await reading.positions(
                path, None if at is None else _number("at", at), query.get("reader", "")
            )
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
            query.get("reader", ""),
        )
        # What is refused is known with the first chunk, before the answer has begun.
        await anext(stream)
        return StreamingResponse(stream, media_type=ARROW)

    return [
        route(service, PREFIX + "/fragments", {"GET": positions}),
        route(service, PREFIX + "/fragments/{fragment:int}/messages", {"GET": messages}),
    ]


def _readers(service: Service) -> list[Route]:
    readers = BulkReaders(service.node)

    async def move(call: Call) -> Response:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        positions = _positions(await call.body(POSITIONS_MAX))
        await readers.move(path, call.part("reader"), positions)
        return JSONResponse({})

    async def remove(call: Call) -> Response:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        await readers.remove(path, call.part("reader"))
        return JSONResponse({})

    return [route(service, PREFIX + "/readers/{reader}", {"PUT": move, "DELETE": remove})]


def _consumers(service: Service) -> list[Route]:
    consuming = BulkConsuming(service.node, service.side)

    def named(call: Call) -> tuple[str, str]:
        path = call.part("entity")
        call.require(Right.LISTEN, path)
        return path, call.part("reader")

    async def begin(call: Call) -> Response:
        return JSONResponse(await consuming.begin(*named(call)))

    async def advance(call: Call) -> Response:
        path, reader = named(call)
        query = call.request.query_params
        epoch = _number("epoch", query.get("epoch", ""))
        most = _number("most", query.get("most", "0"))
        done = _positions(await call.body(POSITIONS_MAX))
        return JSONResponse(await consuming.advance(path, reader, epoch, done, most))

    async def remove(call: Call) -> Response:
        await consuming.remove(*named(call))
        return JSONResponse({})

    async def messages(call: Call) -> Response:
        path, reader = named(call)
        query = call.request.query_params
        stream = consuming.messages(
            path,
            reader,
            int(call.part("fragment")),
            _number("after", query.get("after", "")),
            _number("upto", query.get("upto", "")),
            query.get("columns", ",".join(READ_COLUMNS)).split(","),
        )
        await anext(stream)
        return StreamingResponse(stream, media_type=ARROW)

    place = PREFIX + "/consumers/{reader}"
    return [
        route(service, place, {"POST": begin, "PUT": advance, "DELETE": remove}),
        route(service, place + "/reserved/{fragment:int}", {"GET": messages}),
    ]


def _writing(service: Service) -> list[Route]:
    writing = BulkWriting(service.node, service.side, service.staging)

    async def stage(call: Call) -> Response:
        path, writer, batch = _batch(call)
        spread = _number("spread", call.request.query_params.get("spread", "0"))
        body = _bounded(call.request.stream())
        found = await writing.stage(path, writer, batch, call.part("attempt"), spread, body)
        return JSONResponse(found)

    async def discard(call: Call) -> Response:
        await writing.discard(*_batch(call), call.part("attempt"))
        return JSONResponse({})

    async def publish(call: Call) -> Response:
        path, writer, batch = _batch(call)
        return JSONResponse(
            await writing.publish(path, writer, batch, _attempts(await call.body(MANIFEST_MAX)))
        )

    batch = "/writers/{writer}/{batch:int}"
    return [
        route(service, PREFIX + batch, {"POST": publish}),
        route(service, PREFIX + batch + "/{attempt}", {"PUT": stage, "DELETE": discard}),
    ]


def _batch(call: Call) -> tuple[str, str, int]:
    """Entity, writer and number of a batch, for who may send."""
    path = call.part("entity")
    call.require(Right.SEND, path)
    return path, call.part("writer"), int(call.part("batch"))


async def _bounded(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in body:
        size += len(chunk)
        if size > ATTEMPT_BYTES_MAX:
            raise BodyTooLarge(ATTEMPT_BYTES_MAX)
        yield chunk


def _attempts(body: bytes) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(body, type=dict[str, dict[str, int]])
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"The body names attempts and how many messages of each go where: {error}."
        ) from error


def _positions(body: bytes) -> dict[int, int]:
    try:
        return msgspec.json.decode(body, type=dict[int, int], strict=False)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"The body names fragments and positions: {error}.") from error


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidArgument(f"'{name}' is a number, not '{text}'.")
    return int(text)
