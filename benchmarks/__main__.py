"""Measure partibus beside RabbitMQ: `make bench`, or `make bench QUICK=1` for a first look."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import endurance, matrix, report
from benchmarks.compiled import NotCompiled, compiled_python
from benchmarks.load.plan import RECEIVE, SEND, Plan
from benchmarks.measure import measure
from benchmarks.rabbitmq.peer import PeerError
from benchmarks.subjects import PARTITIONED, Partibus, RabbitMQ, Subject
from benchmarks.targets import Figures, Names, endurance_targets, matrix_targets

RESULTS = Path(__file__).resolve().parent / "results"
PARTS = ("matrix", "sdk", "backlog", "idle")
IN_FLIGHT_SDK = (8, 64)


@dataclass(frozen=True)
class Extent:
    """How much a run measures: the quick form takes under 3 minutes, the full one under 25."""

    scale: matrix.Scale
    sdk: int
    backlog: int
    probe: int
    idle_s: float


QUICK = Extent(matrix.Scale(1, 20_000, 500), 200, 100_000, 20_000, 5)
FULL = Extent(matrix.Scale(3, 60_000, 2_000), 2_000, 1_000_000, 60_000, 20)


def say(text: str) -> None:
    print(text, flush=True)


def _facts() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False, cwd=RESULTS.parent,
    ).stdout.strip()  # fmt: skip
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "partibus": commit,
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.platform()}",
        "Python": platform.python_version(),
    }


class Bench:
    """One run: the subjects that are up, and what has been found so far."""

    def __init__(self, extent: Extent, quick: bool) -> None:
        self.extent = extent
        self.quick = quick
        self.nodes = max(os.cpu_count() or 1, 2)
        self.pythons = {"plain": Path(sys.executable)}
        self.run = report.Run(_facts(), "")
        self.subjects: list[Subject] = []

    def compile(self) -> None:
        try:
            self.pythons = {"compiled": compiled_python(), **self.pythons}
        except NotCompiled as error:
            say(f"not compiled: {error}")

    @property
    def best(self) -> str:
        return next(iter(self.pythons))

    def name(self, kind: str, nodes: int) -> str:
        return f"partibus {kind}, {nodes} node{'s' if nodes > 1 else ''}"

    def start(self, stack: contextlib.ExitStack, *, rival: bool) -> None:
        if rival:
            try:
                self._add(stack, RabbitMQ())
                self.run.rival = self.subjects[0].name
            except PeerError as error:
                say(f"without RabbitMQ: {error}")
        for kind, python in self.pythons.items():
            for nodes in (1, self.nodes):
                if self.quick and nodes > 1 and kind != self.best:
                    continue
                self._add(stack, Partibus(self.name(kind, nodes), python, nodes))

    def _add(self, stack: contextlib.ExitStack, subject: Subject) -> None:
        stack.callback(subject.stop)
        self.subjects.append(subject)

    def idle(self) -> None:
        self.run.idles = endurance.idle(self.subjects, self.extent.idle_s, say)

    def matrix(self) -> None:
        wanted = matrix.cells(quick=self.quick)
        self.run.results = matrix.run(self.subjects, wanted, self.extent.scale, say)

    def sdk(self) -> None:
        for subject in self.subjects:
            if not isinstance(subject, Partibus) or self.best not in subject.name:
                continue
            if self.quick and subject.nodes == 1:
                continue
            for count in IN_FLIGHT_SDK:
                for operation in (SEND, RECEIVE):
                    plan = Plan(subject.endpoint(PARTITIONED), operation, self.extent.sdk, 1, count)
                    sample = measure(subject, plan, "benchmarks.sdk")
                    label = f"{subject.name}, {operation}, {count} in flight"
                    self.run.sdk[label] = sample
                    say(f"SDK {label}: {sample.rate:.0f}/s, {sample.cpu_us:.0f} us")

    def backlog(self) -> None:
        """On a broker of its own, so that nothing is left of the load before."""
        queues = endurance.QUEUES[:1] if self.quick else endurance.QUEUES
        for queue in queues:
            name = self.name(self.best, self.nodes)
            subject = Partibus(name, self.pythons[self.best], self.nodes)
            try:
                found = endurance.backlog(
                    subject, queue, self.extent.backlog, self.extent.probe, say
                )
            finally:
                subject.stop()
            self.run.backlogs.append(found)

    def judge(self) -> None:
        figures = Figures(self.run.results)
        for kind in self.pythons:
            names = Names(self.name(kind, 1), self.name(kind, self.nodes), self.run.rival)
            self.run.targets[f"Figures to reach, {kind}"] = matrix_targets(figures, names)
        others = endurance_targets(self.run.backlogs, self.run.idles)
        self.run.targets["Backlog and idle"] = others


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, 1 KB only")
    parser.add_argument("--only", action="append", choices=PARTS, help="parts (default: all)")
    parser.add_argument("--no-rabbitmq", action="store_true")
    parser.add_argument("--no-compiled", action="store_true")
    args = parser.parse_args()
    parts = args.only or PARTS
    bench = Bench(QUICK if args.quick else FULL, args.quick)
    if not args.no_compiled:
        bench.compile()
    begun, day = time.monotonic(), time.strftime("%Y-%m-%d", time.gmtime())
    with contextlib.ExitStack() as stack:
        if {"matrix", "sdk", "idle"} & set(parts):
            bench.start(stack, rival=not args.no_rabbitmq)
        for part in ("idle", "matrix", "sdk"):
            if part in parts:
                getattr(bench, part)()
    if "backlog" in parts:
        bench.backlog()
    bench.judge()
    bench.run.facts["took"] = f"{(time.monotonic() - begun) / 60:.1f} minutes"
    what = "quick" if args.quick else "full" if not args.only else "-".join(args.only)
    path = RESULTS / f"{day}-{what}"
    report.write(bench.run, path)
    say(f"written to {path.relative_to(RESULTS.parent.parent)}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
