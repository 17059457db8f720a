"""`GET /metrics`: the whole namespace in Prometheus' text format, whichever node is asked.

For who has the right Manage, and for anyone with --dev. Names begin with `partibus_`; what only
grows ends in `_total` and starts again with its node or, for messages, never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from starlette.responses import Response
from starlette.routing import BaseRoute

from partibus.broker.access import Right
from partibus.management.bulk import listing
from partibus.management.calls import Call, Service, route
from partibus.management.pipelines import states_of
from partibus.pipeline_files import FINISHED, RUNNING, PipelineState
from partibus.runtime.bulk_readers import readers_of
from partibus.runtime.measuring import NodeMeasure, StoreMeasure, measure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MS_PER_S = 1000

Sample = tuple[Mapping[str, object], float]

_HELP = {
    "node_up": "Whether the node answers.",
    "store_up": "Whether the store is open and answers.",
    "store_waiting": "Operations that wait for the store's disk.",
    "store_commits_total": "Commits of the store since its node began.",
    "store_commit_seconds_total": "Time that commits of the store took.",
    "store_failures_total": "How often the store failed and was opened anew.",
    "messages": "Messages by state, per entity and fragment (partition; 0: not partitioned).",
    "message_bytes": "Bytes of the messages that lie in a fragment.",
    "messages_accepted_total": "Messages that a fragment has accepted since it was made.",
    "messages_completed_total": "Messages that were completed.",
    "messages_dead_lettered_total": "Messages that were dead-lettered.",
    "messages_expired_total": "Messages whose time was over.",
    "messages_forwarded_total": "Messages that were forwarded to another entity.",
    "messages_discarded_total": "Messages that were removed otherwise: purged, duplicates.",
    "connections": "Open connections, by door.",
    "hop_frames_total": "Frames that a node sent to others.",
    "hop_bytes_total": "Bytes that a node sent to others.",
    "wrong_tokens_total": "Tokens that were refused, at both doors.",
    "pipeline_up": "Whether the pipeline runs, or has done what it had to.",
    "pipeline_messages_total": "Messages that the pipeline has read since Spark began.",
    "pipeline_messages_per_second": "The same per second, over the last minute.",
    "pipeline_lag": "Messages that wait for the pipeline, also while it is paused.",
    "pipeline_batch_seconds": "How long the last batch of the pipeline took.",
    "pipeline_failures_total": "How often the pipeline failed since Spark began.",
    **listing.HELP,
    "fragments_left_out": "Fragments that are not told of because there are too many.",
}


def routes(service: Service) -> list[BaseRoute]:
    """The path of this module."""
    return [route(service, "/metrics", {"GET": answer})]


async def answer(call: Call) -> Response:
    """All numbers of the namespace."""
    call.require(Right.MANAGE, "")
    found, (readers, _), pipelines, staged = await asyncio.gather(
        measure(call.node),
        readers_of(call.node),
        states_of(call.service.data, call.node.clock),
        listing.staged_of(call.service),
    )
    bulk = listing.samples(readers, staged, call.node.clock.now_ms())
    return Response(write(found, pipelines, bulk), media_type=CONTENT_TYPE)


def write(
    found: Mapping[int, NodeMeasure | None],
    pipelines: Iterable[PipelineState] = (),
    more: Iterable[listing.Sample] = (),
) -> str:
    """The numbers as text."""
    samples = _gather(found)
    for name, labels, value in (*_pipelines(pipelines), *more):
        samples.setdefault(name, []).append((labels, value))
    lines: list[str] = []
    for name, help_text in _HELP.items():
        if name in samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# HELP partibus_{name} {help_text}")
            lines.append(f"# TYPE partibus_{name} {kind}")
            lines += (_line(name, labels, value) for labels, value in samples[name])
    return "\n".join(lines) + "\n"


def _gather(found: Mapping[int, NodeMeasure | None]) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for index, node in found.items():
        for name, labels, value in _node(index, node):
            samples.setdefault(name, []).append((labels, value))
    return samples


def _node(
    index: int, node: NodeMeasure | None
) -> Iterator[tuple[str, Mapping[str, object], float]]:
    yield "node_up", {"node": index}, node is not None
    if node is None:
        return
    yield from _stores(index, node.stores)
    for each in node.fragments:
        where = {"entity": each.entity, "partition": each.partition, "subqueue": each.subqueue}
        yield "message_bytes", where, each.bytes
        for state, number in each.states.items():
            yield "messages", {**where, "state": state}, number
        for total, number in each.totals.items():
            yield f"messages_{total}_total", where, number
    yield "fragments_left_out", {"node": index}, node.fragments_left_out
    for name, number in node.gauges.items():
        if name.startswith("connections_"):
            door = name.removeprefix("connections_")
            yield "connections", {"node": index, "door": door}, number
    for name, number in node.totals.items():
        yield f"{name}_total", {"node": index}, number


def _stores(
    index: int, stores: Iterable[StoreMeasure]
) -> Iterator[tuple[str, Mapping[str, object], float]]:
    for each in stores:
        where = {"node": index, "store": each.store}
        yield "store_up", where, each.is_up
        yield "store_waiting", where, each.waiting
        yield "store_commits_total", where, each.commits
        yield "store_commit_seconds_total", where, each.commit_ms / MS_PER_S
        yield "store_failures_total", where, each.failures


def _pipelines(
    states: Iterable[PipelineState],
) -> Iterator[tuple[str, Mapping[str, object], float]]:
    for each in states:
        which = {"pipeline": each.name}
        yield "pipeline_up", which, each.state in (RUNNING, FINISHED)
        yield "pipeline_messages_total", which, each.messages
        yield "pipeline_messages_per_second", which, each.rate
        yield "pipeline_lag", which, each.lag_messages
        yield "pipeline_batch_seconds", which, each.batch_ms / MS_PER_S
        yield "pipeline_failures_total", which, each.failures


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    if not labels:
        return f"partibus_{name} {_number(value)}"
    inner = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
    return f"partibus_{name}{{{inner}}} {_number(value)}"


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
