"""`/$partibus/pipelines`: how the pipelines of the namespace are; pausing, resuming, forgetting.

For who may manage the namespace, from whichever node. What runs them is another process, and the
files in between are all that is known of it here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from partibus.broker.access import Right
from partibus.broker.durations import format_duration
from partibus.broker.errors import EntityNotFound, InvalidOperation
from partibus.broker.names import name_key
from partibus.broker.pipelines import AVAILABLE_NOW, PipelineDescription
from partibus.management.bulk.consuming import BulkConsuming
from partibus.management.bulk.listing import path_of
from partibus.management.bulk.readers import BulkReaders
from partibus.management.calls import Call, Service, route
from partibus.pipeline_files import REMOVED, Lag, PipelineFiles, PipelineState
from partibus.runtime.bulk_readers import readers_of
from partibus.runtime.clock import Clock

PREFIX = "/$partibus/pipelines"


def routes(service: Service) -> list[BaseRoute]:
    """The paths of this module."""

    async def pause(call: Call) -> Response:
        return await order(call, paused=True)

    async def resume(call: Call) -> Response:
        return await order(call, paused=False)

    return [
        route(service, PREFIX, {"GET": list_all}),
        route(service, f"{PREFIX}/{{name}}", {"GET": show, "DELETE": remove}),
        route(service, f"{PREFIX}/{{name}}/pause", {"POST": pause}),
        route(service, f"{PREFIX}/{{name}}/resume", {"POST": resume}),
    ]


async def states_of(pipelines: Path | None, clock: Clock) -> tuple[PipelineState, ...]:
    """How the pipelines of a data directory are; none where there is none."""
    if pipelines is None:
        return ()
    return await asyncio.to_thread(PipelineFiles(pipelines).states, clock.now_ms())


async def list_all(call: Call) -> Response:
    """All pipelines, in short."""
    call.require(Right.MANAGE, "")
    states = await states_of(call.service.data, call.node.clock)
    left_over = await _left_over(call)
    shown = [_in_short(each) for each in (*states, *left_over)]
    return JSONResponse({"pipelines": shown})


async def show(call: Call) -> Response:
    """One pipeline: what it was declared as, and how it is."""
    call.require(Right.MANAGE, "")
    return JSONResponse(await asyncio.to_thread(_describe, call))


async def order(call: Call, *, paused: bool) -> Response:
    """Pause or resume a pipeline. It is done a moment later."""
    call.require(Right.MANAGE, "")

    def give() -> dict[str, object]:
        files, found = _find(call)
        files.give_order(found.name, paused=paused)
        return {"name": found.name, "paused": paused}

    return JSONResponse(await asyncio.to_thread(give))


async def remove(call: Call) -> Response:
    """Forget a pipeline that is not declared any more: its reader, its checkpoint, its order.

    One that is declared with another source or reader goes on; the former reader is removed.
    """
    call.require(Right.MANAGE, "")
    name = call.part("name")
    files = _files(call)
    left_over = await asyncio.to_thread(files.left_over, name) if files else []
    if files is None or not left_over:
        # Refused in other words where there is no such pipeline at all.
        await asyncio.to_thread(_find, call)
        raise InvalidOperation(
            f"The pipeline '{name}' is in the configuration; take it out of the file and start "
            "the broker again, or pause it."
        )
    for each in left_over:
        with suppress(EntityNotFound):
            if each.consumes:
                consuming = BulkConsuming(call.node, call.service.side)
                await consuming.remove(each.source, each.reader)
            else:
                await BulkReaders(call.node).remove(each.source, each.reader)
    await asyncio.to_thread(files.remove, left_over)
    return JSONResponse({"readers": [f"{each.source}: {each.reader}" for each in left_over]})


def _files(call: Call) -> PipelineFiles | None:
    return None if call.service.data is None else PipelineFiles(call.service.data)


async def _left_over(call: Call) -> list[PipelineState]:
    """Those that are not declared any more, with what waits for readers that nobody is."""
    files = _files(call)
    left_over = await asyncio.to_thread(files.left_over) if files else []
    if not left_over:
        return []
    readers, _ = await readers_of(call.node)
    return [
        PipelineState(
            name=each.pipeline,
            state=REMOVED,
            lag=tuple(
                Lag(reader.partition, reader.lag)
                for reader in readers
                if reader.reader == each.reader and path_of(reader).lower() == each.source.lower()
            ),
            error=f"messages of '{each.source}' are still kept for its reader '{each.reader}'; "
            f"partibus pipeline remove {each.pipeline}",
        )
        for each in left_over
    ]


def _find(call: Call) -> tuple[PipelineFiles, PipelineDescription]:
    name = call.part("name")
    if call.service.data is not None:
        files = PipelineFiles(call.service.data)
        declared = files.declared()
        for each in declared.pipelines if declared else ():
            if name_key(each.name) == name_key(name):
                return files, each
    raise EntityNotFound(f"There is no pipeline '{name}' in the configuration.")


def _describe(call: Call) -> dict[str, object]:
    files, found = _find(call)
    (state,) = (each for each in files.states(call.node.clock.now_ms()) if each.name == found.name)
    trigger = format_duration(found.trigger_ms) if found.trigger_ms else AVAILABLE_NOW
    return {
        **_in_short(state),
        "paused": files.order(found.name).paused,
        "lagByFragment": {str(each.partition): each.messages for each in state.lag},
        "source": found.source,
        "sourceOptions": found.source_options,
        "watermark": format_duration(found.watermark_ms) if found.watermark_ms else None,
        "sql": found.sql or None,
        "function": found.function or None,
        "target": found.target or None,
        "targetDirectory": found.target_directory or None,
        "trigger": trigger,
    }


def _in_short(state: PipelineState) -> dict[str, object]:
    return {
        "name": state.name,
        "state": state.state,
        "sinceMs": state.since_ms,
        "messages": state.messages,
        "messagesPerSecond": state.rate,
        "lag": state.lag_messages,
        "batch": state.batch,
        "batchMs": state.batch_ms,
        "failures": state.failures,
        "error": state.error or None,
    }
