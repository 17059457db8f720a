"""What the matrix cannot show: a deep backlog, a restart on top of it, and doing nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import processes
from benchmarks.load.plan import RECEIVE, SEND, Plan
from benchmarks.matrix import IN_FLIGHT
from benchmarks.measure import Sample, measure
from benchmarks.subjects import CONVENTIONAL, PARTITIONED, Partibus, Subject

CONNECTIONS = 4
SIZE = 1000
# After the start, before idleness is watched.
SETTLE_S = 3

Say = Callable[[str], None]


@dataclass(frozen=True)
class Backlog:
    """Costs on an empty and on a deep queue of the same broker, memory, and the restart."""

    queue: str
    messages: int
    empty: dict[str, Sample]
    deep: dict[str, Sample]
    node_rss_mb: float
    restart_s: float
    restart_after_kill_s: float


@dataclass(frozen=True)
class Idle:
    """All processes of a broker with nothing to do."""

    subject: str
    core_share: float
    rss_mb: float
    processes: int


def _plan(subject: Subject, queue: str, operation: str, messages: int) -> Plan:
    endpoint = subject.endpoint(queue)
    window = IN_FLIGHT // CONNECTIONS
    return Plan(endpoint, operation, messages, window, CONNECTIONS, SIZE)


def _pair(subject: Subject, queue: str, messages: int) -> dict[str, Sample]:
    plans = {each: _plan(subject, queue, each, messages) for each in (SEND, RECEIVE)}
    return {each: measure(subject, plan) for each, plan in plans.items()}


def backlog(subject: Partibus, queue: str, messages: int, probe: int, say: Say) -> Backlog:
    """Measure with the queue empty, fill it, measure again, and start the broker over it."""
    empty = _pair(subject, queue, probe)
    filled = measure(subject, _plan(subject, queue, SEND, messages))
    say(f"{queue}: {messages} messages sent at {filled.rate:.0f}/s")
    deep = _pair(subject, queue, probe)
    node_rss = max(processes.rss_mb(pid) for pid in subject.pids())
    subject.terminate()
    restart = subject.start()
    # Proof that ready is honest: the backlog can be received from at once.
    measure(subject, _plan(subject, queue, RECEIVE, probe // 10))
    subject.kill()
    after_kill = subject.start()
    measure(subject, _plan(subject, queue, RECEIVE, probe // 10))
    say(f"{queue}: node {node_rss:.0f} MB, ready in {restart:.2f} s, {after_kill:.2f} s after kill")
    return Backlog(queue, messages, empty, deep, node_rss, restart, after_kill)


def idle(subjects: list[Subject], seconds: float, say: Say) -> list[Idle]:
    """Watch brokers that have nothing to do, all at the same time."""
    time.sleep(SETTLE_S)
    before = {subject.name: subject.cpu_seconds() for subject in subjects}
    time.sleep(seconds)
    found: list[Idle] = []
    for subject in subjects:
        share = (subject.cpu_seconds() - before[subject.name]) / seconds
        sizes = [processes.rss_mb(pid) for pid in subject.pids()]
        found.append(Idle(subject.name, share, sum(sizes), len(sizes)))
        say(f"{subject.name} idle: {share:.2%} of a core, {sum(sizes):.0f} MB")
    return found


QUEUES = (PARTITIONED, CONVENTIONAL)
