"""What sessions, schedules, transactions and duplicate detection cost beside plain messages.

    python -m benchmarks.features [--messages N] [--scheduled N] [--only PART] [--write]

Each is compared with the plain path in the same run, by the CPU of all processes of the broker per
message; rounds of both take turns, and the median counts. Rates are not looked at: they depend on
who else uses the machine. `--write` keeps the table in results/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.load.plan import RECEIVE, SEND, Plan
from benchmarks.measure import TAIL_S, measure
from benchmarks.own_client import RECEIVE_SESSIONS, RECEIVE_TRANSACTED, TRANSACT
from benchmarks.subjects import Partibus
from benchmarks.targets import Target

from partibus.broker.descriptions import QueueDescription
from partibus.runtime.serving import CATALOG_NAME
from partibus.store.catalog import Catalog

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS = 3
NODES = 2
CONNECTIONS = 8
WINDOW = 250
SESSIONS = 1_000
IN_TRANSACTION = 10
SCHEDULE_AHEAD_S = 3600
OWN_CLIENT = "benchmarks.own_client"
KINDS = {"conventional": False, "partitioned": True}

Round = Callable[[], float]


class Features:
    """One run against one broker."""

    def __init__(self, subject: Partibus, messages: int, scheduled: int) -> None:
        self.subject = subject
        self.messages = messages
        self.scheduled = scheduled
        self.targets: list[Target] = []
        catalog = Catalog.open(subject.data / "namespace" / CATALOG_NAME)
        for kind, partitioned in KINDS.items():
            for name, properties in (
                ("plain", {}),
                ("session", {"requires_session": True}),
                ("once", {"requires_duplicate_detection": True}),
                ("scheduled", {}),
                ("full", {"max_size_mb": 5120}),
            ):
                queue = QueueDescription(
                    f"{kind}-{name}",
                    enable_partitioning=partitioned,
                    lock_ms=300_000,
                    **properties,  # type: ignore[arg-type]
                )
                catalog.create_queue(queue, round(time.time() * 1000))
        catalog.close()

    def run(self, queue: str, operation: str, module: str = "benchmarks.load", **more: int) -> None:
        window, connections = more.pop("window", WINDOW), CONNECTIONS
        messages = more.pop("messages", self.messages)
        endpoint = self.subject.endpoint(queue)
        plan = Plan(endpoint, operation, messages, window, connections, **more)
        measure(self.subject, plan, module)

    @contextmanager
    def cost(self, found: list[float], messages: int | None = None) -> Iterator[None]:
        """Add the CPU per message, in microseconds, of what is done in here."""
        before = self.subject.cpu_seconds()
        yield
        time.sleep(TAIL_S)
        spent = self.subject.cpu_seconds() - before
        found.append(spent / (messages or self.messages) * 1e6)

    def compare(self, text: str, limit: float, plain: Callable[[], None],
                other: Callable[[], None]) -> None:  # fmt: skip
        """Rounds of both in turn; the ratio of their medians is the figure."""
        base: list[float] = []
        more: list[float] = []
        for _ in range(ROUNDS):
            with self.cost(base):
                plain()
            with self.cost(more):
                other()
        self.note(text, limit, base, more)

    # Parts ----------------------------------------------------------------------------------------

    def duplicates(self, kind: str) -> None:
        def through(queue: str) -> None:
            self.run(queue, SEND)
            self.run(queue, RECEIVE)

        self.compare(
            f"duplicate detection, send and receive, {kind}", 3.0,
            lambda: through(f"{kind}-plain"), lambda: through(f"{kind}-once"),
        )  # fmt: skip

    def scheduling(self, kind: str) -> None:
        def plain() -> None:
            self.run(f"{kind}-plain", SEND)
            self.run(f"{kind}-plain", RECEIVE)

        def scheduled() -> None:
            # Due when all of them are there, so that all of them wait on disk.
            due_s = time.time() + 3 + self.messages / 4000
            self.run(f"{kind}-scheduled", SEND, due_ms=int(due_s * 1000))
            time.sleep(max(due_s - time.time(), 0) + 1)
            self.run(f"{kind}-scheduled", RECEIVE)

        self.compare(f"scheduling, send, activate and receive, {kind}", 2.0, plain, scheduled)

    def transactions(self, kind: str) -> None:
        queue = f"{kind}-plain"

        def work(operation: str) -> Callable[[], None]:
            return lambda: self.run(queue, operation, OWN_CLIENT, window=IN_TRANSACTION)

        self.compare(
            f"transactions of {IN_TRANSACTION}, send, {kind}", 2.0, work(SEND), work(TRANSACT)
        )
        self.compare(
            f"transactions of {IN_TRANSACTION}, receive and complete, {kind}", 2.0,
            work(RECEIVE), work(RECEIVE_TRANSACTED),
        )  # fmt: skip

    def sessions(self, kind: str) -> None:
        each = max(self.messages // SESSIONS, 1)

        def plain() -> None:
            self.run(f"{kind}-plain", RECEIVE, OWN_CLIENT, window=each)

        def sessions() -> None:
            self.run(f"{kind}-session", RECEIVE_SESSIONS, OWN_CLIENT, window=each)

        base: list[float] = []
        more: list[float] = []
        for _ in range(ROUNDS):
            self.run(f"{kind}-plain", SEND)
            self.run(f"{kind}-session", SEND, keys=SESSIONS, sessions=True)
            with self.cost(base):
                plain()
            with self.cost(more):
                sessions()
        text = f"sessions, {SESSIONS} of {each} messages, {CONNECTIONS} consumers, {kind}"
        self.note(text, 2.0, base, more)

    def million(self, kind: str) -> None:
        """The plain path before and after very many messages were scheduled beside it."""
        queue = f"{kind}-full"
        figures: list[list[float]] = []
        for _ in range(2):
            found: list[float] = []
            for _ in range(ROUNDS):
                with self.cost(found):
                    self.run(queue, SEND)
                    self.run(queue, RECEIVE)
            figures.append(found)
            if len(figures) == 1:
                due_ms = int((time.time() + SCHEDULE_AHEAD_S) * 1000)
                self.run(queue, SEND, messages=self.scheduled, due_ms=due_ms, size=100)
        text = f"send and receive beside {self.scheduled:,} scheduled messages, {kind}"
        self.note(text, 1.3, *figures)

    def note(self, text: str, limit: float, base: list[float], more: list[float]) -> None:
        target = Target(text, median(more) / median(base), limit)
        self.targets.append(target)
        print(
            f"{text}: {median(base):.0f} us plain, {median(more):.0f} us, {target.value:.2f}x "
            f"(at most {limit}x)",
            flush=True,
        )


PARTS = ("duplicates", "scheduling", "transactions", "sessions", "million")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--scheduled", type=int, default=1_000_000)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    subject = Partibus("partibus", Path(sys.executable), NODES)
    try:
        features = Features(subject, args.messages, args.scheduled)
        features.run("conventional-plain", SEND)
        features.run("conventional-plain", RECEIVE)
        for part in args.only or PARTS:
            for kind in args.kind or KINDS:
                getattr(features, part)(kind)
    finally:
        subject.stop()
    if args.write:
        _write(features.targets, args.messages)


def _write(targets: list[Target], messages: int) -> None:
    lines = [
        "# What features cost beside plain messages",
        "",
        f"CPU of all processes of the broker per message of 1 KB, as a ratio to the plain path in "
        f"the same run; {messages:,} messages, median of {ROUNDS} rounds, plain Python, {NODES} "
        "nodes (benchmarks/features.py).",
        "",
        "| what | ratio | at most | reached |",
        "|---|---|---|---|",
    ]
    for each in targets:
        reached = "yes" if each.reached else "no"
        lines.append(f"| {each.text} | {each.value:.2f} | {each.limit} | {reached} |")
    path = RESULTS / time.strftime("%Y-%m-%d-features.md", time.gmtime())
    path.write_text("\n".join(lines) + "\n")
    print(f"written to {path.relative_to(RESULTS.parent.parent)}")


if __name__ == "__main__":
    main()
