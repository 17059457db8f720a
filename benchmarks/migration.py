"""Moving a queue to another partitioning and back: how long it takes, and whether all arrives.

    python -m benchmarks.migration --messages 1000000

One broker and one Spark session on this machine. Each way is verified by the job itself and audited
afterwards; a discrepancy ends the run. Beside the time, what the processes cost: CPU of the broker
and of Spark, and the most memory that either held.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.processes import cpu_seconds, rss_mb, tree

from partibus.pipeline import local_session
from partibus.pipeline.jobs.audit import audit
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.migrate import migrate
from partibus.testing.serve import LiveBroker

BODY_BYTES = 200
KEYS = 10_000
LOOK_EVERY_S = 2.0


class Costs:
    """CPU and memory of the broker, and of everything else that this process has started."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._cpu: dict[str, dict[int, float]] = {"broker": {}, "Spark": {}}
        self.peak_mb = {"broker": 0.0, "Spark": 0.0}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_s(self) -> dict[str, float]:
        """What each has used so far, those processes included that are gone."""
        return {name: sum(each.values()) for name, each in self._cpu.items()}

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            memory = {"broker": 0.0, "Spark": 0.0}
            for pid in tree(os.getpid()):
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                is_spark = b"pyspark" in command or b"java" in command or pid == os.getpid()
                name = "Spark" if is_spark else "broker"
                memory[name] += rss_mb(pid)
                used = cpu_seconds([pid]) or self._cpu[name].get(pid, 0.0)
                self._cpu[name][pid] = used
            for name, held in memory.items():
                self.peak_mb[name] = max(self.peak_mb[name], held)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as directory, LiveBroker(Path(directory)) as running:
        running.create_queue("orders", max_size_in_megabytes=5120)
        broker = Broker(running.connection_string)
        costs = Costs()
        spark = local_session("migration")
        frame = spark.range(messages).selectExpr(
            f"concat('key ', id % {KEYS}) AS partitionKey", f"repeat('x', {BODY_BYTES}) AS body"
        )
        options = broker.options("orders")
        frame.write.format("servicebus").options(**options).mode("append").save()
        for number, partitioned in enumerate((True, False)):
            begin, before = time.perf_counter(), costs.cpu_s()
            state = str(Path(directory) / f"state-{number}")
            done = migrate(spark, broker, "orders", partitioned=partitioned, state=state)
            took_s = time.perf_counter() - begin
            used = {name: after - before[name] for name, after in costs.cpu_s().items()}
            assert done.messages == messages, done
            found = audit(spark, broker, "orders")
            assert found.is_clean, found.discrepancies
            kind = "partitioned" if partitioned else "conventional"
            print(f"to {kind}: {took_s:.1f} s, {messages / took_s:,.0f} messages/s, audited clean")
            for name, seconds in used.items():
                each_us = seconds / messages * 1_000_000
                print(f"  CPU, {name}: {seconds:.0f} s, {each_us:.0f} us a message", flush=True)
        costs.stop()
        for name, held in costs.peak_mb.items():
            print(f"most memory, {name}: {held:.0f} MB in all its processes")
        spark.stop()


if __name__ == "__main__":
    main()
