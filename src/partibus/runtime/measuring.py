"""Numbers for operators: what each node has counted, gathered from all nodes.

A node answers for its own stores and doors. Everything is counted anyway, with each commit or each
frame, so asking costs and changes nothing. How the numbers are written is the door's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from partibus.broker.descriptions import Entity
from partibus.broker.records import COUNTER_FIELDS, SubQueue
from partibus.runtime.driver import Driver
from partibus.runtime.peers import Peer, ask
from partibus.runtime.requests import Measure

# A paused node answers late or not at all; its numbers are missing then.
MEASURE_S_MAX = 2.0
# However many fragments there are, so many are told of; the rest is counted as left out.
FRAGMENTS_MAX = 50_000

# The numbers of a fragment that only grow, and how they are called.
TOTALS = ("accepted", "completed", "dead_lettered", "expired", "forwarded", "discarded")
STATES = ("active", "deferred", "scheduled")
assert set(TOTALS + STATES) <= set(COUNTER_FIELDS)


class FragmentMeasure(msgspec.Struct, array_like=True, frozen=True):
    """One fragment or sub-queue of it: how many messages of each state, and since its making."""

    entity: str
    partition: int
    subqueue: str
    bytes: int
    states: dict[str, int]
    totals: dict[str, int]


class StoreMeasure(msgspec.Struct, array_like=True, frozen=True):
    """One store."""

    store: int
    is_up: bool
    commits: int
    commit_ms: int
    failures: int
    waiting: int


class NodeMeasure(msgspec.Struct, array_like=True, frozen=True):
    """One node."""

    stores: list[StoreMeasure]
    fragments: list[FragmentMeasure]
    fragments_left_out: int
    # What the doors and the hop have counted, by their own names.
    gauges: dict[str, int]
    totals: dict[str, int]


class Measured(NamedTuple):
    """How a number is had, when it is asked for."""

    gauges: dict[str, Callable[[], int]]
    totals: dict[str, Callable[[], int]]


write_measure = msgspec.msgpack.Encoder().encode
read_measure = msgspec.msgpack.Decoder(NodeMeasure).decode


def measure_node(
    drivers: Mapping[int, Driver], entity: Callable[[int], Entity | None], measured: Measured
) -> NodeMeasure:
    """What one node has to say."""
    fragments: list[FragmentMeasure] = []
    left_out = 0
    for driver in drivers.values():
        for key, fragment in driver.fragments.items():
            known = entity(key.entity)
            if known is None:
                continue
            if len(fragments) >= FRAGMENTS_MAX:
                left_out += 1
                continue
            counters = fragment.counters
            fragments.append(
                FragmentMeasure(
                    known.name,
                    key.partition,
                    SubQueue(key.subqueue).name.lower(),
                    counters.bytes,
                    {name: getattr(counters, name) for name in STATES},
                    {name: getattr(counters, name) for name in TOTALS},
                )
            )
    stores = [
        StoreMeasure(
            driver.store,
            driver.up,
            driver.commits,
            driver.commit_ms,
            driver.failures,
            driver.waiting,
        )
        for driver in drivers.values()
    ]
    return NodeMeasure(
        stores,
        fragments,
        left_out,
        {name: read() for name, read in measured.gauges.items()},
        {name: read() for name, read in measured.totals.items()},
    )


class Namespace(Protocol):
    """What must be known of a node to ask all of them."""

    @property
    def nodes(self) -> range:
        """The numbers of all nodes."""

    def peer(self, index: int) -> Peer:
        """A node by its number."""


async def measure(node: Namespace) -> dict[int, NodeMeasure | None]:
    """What every node has to say; None of those that do not answer."""
    answers = await asyncio.gather(*(_ask(node.peer(index)) for index in node.nodes))
    return dict(zip(node.nodes, answers, strict=True))


async def _ask(peer: Peer) -> NodeMeasure | None:
    try:
        reply = await asyncio.wait_for(ask(peer, Measure()), MEASURE_S_MAX)
    except TimeoutError:
        return None
    return None if reply.content is None else read_measure(reply.content)
