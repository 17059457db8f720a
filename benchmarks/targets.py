"""The figures to reach, computed from what was measured; each says whether it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.endurance import Backlog, Idle
from benchmarks.load.plan import RECEIVE, SEND
from benchmarks.matrix import KEYS, Cell, Result
from benchmarks.subjects import CONVENTIONAL, PARTITIONED

OPERATIONS = {SEND: "send", RECEIVE: "receive and complete"}
KINDS = {
    "conventional": Cell(CONVENTIONAL, 1000, 0, True),
    "partitioned": Cell(PARTITIONED, 1000, 0, True),
    "partitioned, keyed": Cell(PARTITIONED, 1000, KEYS, True),
}
SINGLE = Cell(CONVENTIONAL, 1000, 0, False)


@dataclass(frozen=True)
class Target:
    """A figure, its value, and the limit it must keep."""

    text: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = "x"

    @property
    def reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Figures:
    """The medians of a run, looked up by what they are of; None where not measured."""

    def __init__(self, results: list[Result]) -> None:
        self._by_key = {(each.subject, each.cell, each.operation): each for each in results}

    def get(self, subject: str, cell: Cell, operation: str, field: str) -> float | None:
        result = self._by_key.get((subject, cell, operation))
        return result.median(field) if result else None

    def ratio(
        self,
        field: str,
        operation: str,
        above: tuple[str, Cell],
        below: tuple[str, Cell],
    ) -> float | None:
        one, other = self.get(*above, operation, field), self.get(*below, operation, field)
        return one / other if one is not None and other else None


@dataclass(frozen=True)
class Names:
    """Which subjects of the run are compared."""

    one: str
    two: str
    rival: str


def matrix_targets(figures: Figures, names: Names) -> list[Target]:
    """What the matrix says about the figures to reach."""
    groups = (_against_rival, _throughput, _two_nodes, _partitioning)
    return [target for group in groups for target in group(figures, names)]


def _against_rival(figures: Figures, names: Names) -> Iterator[Target]:
    rival = (names.rival, KINDS["conventional"])
    for operation, verb in OPERATIONS.items():
        for kind in ("conventional", "partitioned"):
            for name in (names.one, names.two):
                value = figures.ratio("cpu_us", operation, (name, KINDS[kind]), rival)
                if value is not None:
                    text = f"CPU per message, {verb}, {kind}, {name} against RabbitMQ"
                    yield Target(text, value, 0.5)
    for operation, verb in OPERATIONS.items():
        for name in (names.one, names.two):
            value = figures.ratio("p50_ms", operation, (name, SINGLE), (names.rival, SINGLE))
            if value is not None:
                text = f"median latency, one in flight, {verb}, {name} against RabbitMQ"
                yield Target(text, value, 1.0)


def _throughput(figures: Figures, names: Names) -> Iterator[Target]:
    rival = (names.rival, KINDS["conventional"])
    wanted = {
        (SEND, names.one): 1.0,
        (RECEIVE, names.one): 1.5,
        (SEND, names.two): 1.5,
        (RECEIVE, names.two): 1.5,
    }
    for (operation, name), limit in wanted.items():
        for kind in ("conventional", "partitioned"):
            value = figures.ratio("rate", operation, (name, KINDS[kind]), rival)
            if value is not None:
                text = f"throughput, {OPERATIONS[operation]}, {kind}, {name} against RabbitMQ"
                yield Target(text, value, limit, at_least=True)


def _two_nodes(figures: Figures, names: Names) -> Iterator[Target]:
    for operation, verb in OPERATIONS.items():
        for kind, cell in KINDS.items():
            value = figures.ratio("cpu_us", operation, (names.two, cell), (names.one, cell))
            if value is not None:
                text = f"CPU per message, {verb}, {kind}, {names.two} against {names.one}"
                yield Target(text, value, 1.3)


def _partitioning(figures: Figures, names: Names) -> Iterator[Target]:
    conventional = KINDS["conventional"]
    for kind, limit in (("partitioned", 1.3), ("partitioned, keyed", 2.5)):
        for operation, verb in OPERATIONS.items():
            for name in (names.one, names.two):
                above, below = (name, KINDS[kind]), (name, conventional)
                value = figures.ratio("cpu_us", operation, above, below)
                if value is not None:
                    text = f"P10: CPU per message, {verb}, {kind} against conventional, {name}"
                    yield Target(text, value, limit)


def endurance_targets(backlogs: list[Backlog], idles: list[Idle]) -> list[Target]:
    """What backlog and idleness say about the figures to reach."""
    found: list[Target] = []
    for each in backlogs:
        depth = f"{each.queue}, backlog of {each.messages:,}"
        for operation, verb in OPERATIONS.items():
            value = each.deep[operation].cpu_us / each.empty[operation].cpu_us
            found.append(Target(f"CPU per message, {verb}, {depth} against empty", value, 1.3))
        found += [
            Target(f"memory of the largest node, {depth}", each.node_rss_mb, 400, unit=" MB"),
            Target(f"restart to ready, {depth}", each.restart_s, 3, unit=" s"),
            Target(
                f"restart to ready after SIGKILL, {depth}", each.restart_after_kill_s, 3, unit=" s"
            ),
        ]
    for watched in idles:
        if "RabbitMQ" not in watched.subject:
            share = watched.core_share * 100
            found.append(Target(f"idle, {watched.subject}, CPU of a core", share, 1, unit=" %"))
            found.append(
                Target(f"idle, {watched.subject}, memory", watched.rss_mb, 120, unit=" MB")
            )
    return found
