"""What forwarding costs per message, beside sending and receiving it.

    python -m benchmarks.forwarding [MESSAGES]

Messages of 1 KB are sent to a queue and received from it; then as many are sent to a queue that
forwards them and received from the one they are forwarded to. The difference in CPU of all
processes of the broker is the price of one hop. Three rounds, of which the median is shown.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.load.plan import RECEIVE, SEND, Plan
from benchmarks.measure import TAIL_S, measure
from benchmarks.subjects import Partibus

from partibus.broker.descriptions import QueueDescription
from partibus.runtime.serving import CATALOG_NAME
from partibus.store.catalog import Catalog

MESSAGES = 20_000
ROUNDS = 3
CONNECTIONS = 8
WINDOW = 250
SIZE = 1000
NODES = 2

# What is measured: where from, and where to.
PAIRS = (("conventional", False, False), ("partitioned", True, True), ("mixed", False, True))


def make_queues(subject: Partibus) -> None:
    catalog = Catalog.open(subject.data / "namespace" / CATALOG_NAME)
    now_ms = round(time.time() * 1000)
    for name, source, target in PAIRS:
        for description in (
            QueueDescription(f"{name}-target", enable_partitioning=target),
            QueueDescription(f"{name}-plain", enable_partitioning=target),
            QueueDescription(
                f"{name}-source", enable_partitioning=source, forward_to=f"{name}-target"
            ),
        ):
            catalog.create_queue(description, now_ms)
    catalog.close()


def microseconds(subject: Partibus, to: str, out_of: str, messages: int) -> float:
    """CPU of the broker per message, from its sending to its confirmed completion."""
    before = subject.cpu_seconds()
    for queue, operation in ((to, SEND), (out_of, RECEIVE)):
        plan = Plan(subject.endpoint(queue), operation, messages, WINDOW, CONNECTIONS, SIZE)
        measure(subject, plan)
    time.sleep(TAIL_S)
    return (subject.cpu_seconds() - before) / messages * 1e6


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    subject = Partibus("partibus", Path(sys.executable), NODES)
    try:
        make_queues(subject)
        microseconds(subject, "mixed-plain", "mixed-plain", messages // 4)
        for name, _, _ in PAIRS:
            plain, forwarded = [], []
            for _ in range(ROUNDS):
                plain.append(microseconds(subject, f"{name}-plain", f"{name}-plain", messages))
                forwarded.append(
                    microseconds(subject, f"{name}-source", f"{name}-target", messages)
                )
            base, whole = median(plain), median(forwarded)
            print(
                f"{name:14} send and receive {base:6.1f} us, with one hop {whole:6.1f} us: "
                f"the hop costs {whole - base:5.1f} us, {(whole - base) / base:.2f} times that"
            )
    finally:
        subject.stop()


if __name__ == "__main__":
    main()
