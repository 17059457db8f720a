"""An ordinary sender at a steady rate, in a process of its own: what does a send take meanwhile?

    python -m benchmarks.steady CONNECTION_STRING QUEUE SECONDS

Says "ready", waits for a line, sends one message after the other with the stock SDK, and prints
the milliseconds that each took as JSON. `beside` starts one and keeps the machine busy with
something until it has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

RATE = 100
BODY_BYTES = 200
# Sends before it counts.
WARM_UP = 50
ROOT = Path(__file__).resolve().parent.parent


def beside(
    connection_string: str, queue: str, seconds: float, work: Callable[[], None]
) -> list[float]:
    """The milliseconds of sends while the work is done over and over."""
    command = [sys.executable, "-m", "benchmarks.steady", connection_string, queue, str(seconds)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        if sender.stdout.readline() != "ready\n":
            raise RuntimeError("the sender could not begin")
        sender.stdin.write("go\n")
        sender.stdin.flush()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            work()
        found: list[float] = json.loads(sender.stdout.readline())
    return found


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main(connection_string: str, queue: str, seconds: str) -> None:
    body = b"x" * BODY_BYTES
    spans: list[float] = []
    client = ServiceBusClient.from_connection_string(connection_string)
    with client, client.get_queue_sender(queue) as sender:
        for _ in range(WARM_UP):
            sender.send_messages(ServiceBusMessage(body))
        print("ready", flush=True)
        sys.stdin.readline()
        begin = due = time.monotonic()
        while due < begin + float(seconds):
            time.sleep(max(due - time.monotonic(), 0))
            sent = time.perf_counter()
            sender.send_messages(ServiceBusMessage(body))
            spans.append((time.perf_counter() - sent) * 1000)
            # Who was held up does not hurry afterwards: the rate is what stays.
            due = max(due + 1 / RATE, time.monotonic())
    print(json.dumps(spans), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
