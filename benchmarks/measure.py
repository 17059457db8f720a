"""One measurement: a load process against a broker, and what the broker spent meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.plan import Outcome, Plan
from benchmarks.processes import machine_busy_seconds
from benchmarks.subjects import Subject

ROOT = Path(__file__).resolve().parent.parent
# What the broker still does for the messages after the last confirmation is counted, too.
TAIL_S = 0.4
# Above this share of a core the load process may be what limits the rate.
BUSY_SHARE = 0.75


@dataclass(frozen=True)
class Sample:
    """What was seen. `other_load` is the share of the machine that somebody else used."""

    rate: float
    rest_s: float
    cpu_us: float
    generator_us: float
    generator_share: float
    p50_ms: float
    p99_ms: float
    refused: int
    other_load: float


class LoadFailed(RuntimeError):
    """The load process gave up; the text says why."""


def measure(subject: Subject, plan: Plan, module: str = "benchmarks.load") -> Sample:
    """Run a plan in a process of its own."""
    argv = [sys.executable, "-m", module]
    with subprocess.Popen(
        argv, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        load.stdin.write(plan.to_json() + "\n")
        load.stdin.flush()
        if load.stdout.readline() != "ready\n":
            raise LoadFailed(f"{subject.name}: the load could not begin")
        cpu, machine, begun = subject.cpu_seconds(), machine_busy_seconds(), time.monotonic()
        load.stdin.write("go\n")
        load.stdin.flush()
        line = load.stdout.readline()
        if not line:
            raise LoadFailed(f"{subject.name}: the load ended early")
        outcome = Outcome.from_json(line)
        time.sleep(TAIL_S)
        used = subject.cpu_seconds() - cpu
        busy = machine_busy_seconds() - machine
        elapsed = time.monotonic() - begun
    return _sample(outcome, used, max(busy - used - outcome.generator_cpu_seconds, 0) / elapsed)


def _sample(outcome: Outcome, used: float, other_load: float) -> Sample:
    return Sample(
        rate=outcome.rate,
        rest_s=outcome.rest_seconds,
        cpu_us=used / outcome.messages * 1e6,
        generator_us=outcome.generator_cpu_seconds / outcome.messages * 1e6,
        generator_share=outcome.generator_cpu_seconds / outcome.messages * outcome.rate,
        p50_ms=outcome.p50_ms,
        p99_ms=outcome.p99_ms,
        refused=outcome.refused,
        other_load=other_load,
    )
