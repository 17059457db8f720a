"""Run one plan: open all links, say ready, wait for a line, drive the load, print the outcome."""

from __future__ import annotations

import gc
import os
import select
import sys
import time

from benchmarks.load.dialogue import open_link
from benchmarks.load.frames import Broken
from benchmarks.load.latency import Latencies
from benchmarks.load.line import Line
from benchmarks.load.plan import RATED, SEND, Outcome, Plan
from benchmarks.load.receiver import Purse, Receiver
from benchmarks.load.sender import Sender

SILENCE_MAX_S = 20


def _lines(plan: Plan, poll: select.epoll, latencies: Latencies) -> list[Line]:
    purse = Purse(plan.messages)
    lines: list[Line] = []
    for index in range(plan.connections):
        name = f"load-{os.getpid()}-{index}"
        opened = open_link(plan.endpoint, name, receiver=plan.operation != SEND)
        share = plan.messages * (index + 1) // plan.connections
        share -= plan.messages * index // plan.connections
        if plan.operation == SEND:
            lines.append(Sender(opened, poll, latencies, plan, share))
        else:
            lines.append(Receiver(opened, poll, latencies, plan, purse))
    return lines


def _drive(lines: list[Line], poll: select.epoll, messages: int) -> tuple[float, float]:
    """Drive the load to its end; the rate of the first messages and the seconds of the rest."""
    rated = rated_at = 0.0
    start = time.perf_counter()
    by_fd = {line.sock.fileno(): line for line in lines}
    for line in lines:
        line.start()
    while (confirmed := sum(line.confirmed for line in lines)) < messages:
        if not rated and confirmed >= messages * RATED:
            rated_at = time.perf_counter()
            rated = confirmed / (rated_at - start)
        events = poll.poll(SILENCE_MAX_S)
        if not events:
            states = ", ".join(line.state() for line in lines)
            raise Broken(f"silence after {confirmed} of {messages} messages: {states}")
        for fd, event in events:
            line = by_fd[fd]
            if event & select.EPOLLOUT:
                line.on_writable()
            if event & ~select.EPOLLOUT:
                line.on_readable()
    end = time.perf_counter()
    return rated or messages / (end - start), end - rated_at if rated else 0.0


def main() -> int:
    plan = Plan.from_json(sys.stdin.readline())
    poll = select.epoll()
    latencies = Latencies()
    try:
        lines = _lines(plan, poll, latencies)
        gc.disable()
        print("ready", flush=True)
        sys.stdin.readline()
        cpu = time.process_time()
        rate, rest = _drive(lines, poll, plan.messages)
        used = time.process_time() - cpu
    except (Broken, OSError) as error:
        print(f"{plan.operation} {plan.endpoint.address}: {error}", file=sys.stderr)
        return 1
    p50, p99 = latencies.percentiles_ms(0.5, 0.99)
    refused = sum(line.refused for line in lines)
    print(Outcome(plan.messages, refused, rate, rest, used, p50, p99).to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
