"""Spark and the broker: how fast queues are read, written and streamed, beside Parquet and peek.

    python -m benchmarks.spark --messages 1000000

One broker, one Spark session on this machine, everything in one run, because only ratios of one run
mean anything on a shared machine. Prints a table, and whether the figures to reach are reached, and
writes JSON where `--json` says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from benchmarks.processes import cpu_seconds, tree
from benchmarks.steady import beside, percentile
from benchmarks.targets import Target

from partibus.pipeline import local_session
from partibus.testing.serve import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MILLION = 1_000_000
BODY_BYTES = 200
REPEATS = 3
PEEKED = 20_000
# Of small batches the last count: the engine compiles itself during the first hundred.
MICRO_BATCHES = 150
MICRO_COUNTED = 50
MICRO_MESSAGES = 16
# How long a query is watched that finds nothing to do.
IDLE_S = 5.0
# Of the messages that have no keys, or application properties, too.
TAGGED_SHARE = 4
# How long senders are watched beside each reader, in turn.
SENDERS_S = 10.0
SENDERS_ROUNDS = 3


class Bench:
    """One broker, one session, and what was measured."""

    def __init__(self, broker: LiveBroker, spark: SparkSession, messages: int) -> None:
        self.broker = broker
        self.spark = spark
        self.messages = messages
        self.results: dict[str, dict[str, Any]] = {}

    def options(self, queue: str) -> dict[str, str]:
        return {"connectionString": self.broker.connection_string, "queue": queue}

    def read(self, queue: str, **options: str) -> DataFrame:
        return self.spark.read.format("servicebus").options(**self.options(queue), **options).load()

    def rate(self, name: str, messages: int, work: Callable[[], None], repeats: int = 1) -> float:
        """The best of some runs; what they cost all processes, broker and Spark, on average."""
        spans: list[float] = []
        cpu_before_s = cpu_seconds(tree(os.getpid()))
        for _ in range(repeats):
            begin = time.perf_counter()
            work()
            spans.append(time.perf_counter() - begin)
        cpu_s = (cpu_seconds(tree(os.getpid())) - cpu_before_s) / repeats / messages * MILLION
        rate = messages / min(spans)
        self.results[name] = {
            "rate": round(rate),
            "seconds": round(min(spans), 3),
            "cpu_seconds_per_million": round(cpu_s, 1),
        }
        costs = f"{min(spans):8.2f} s {cpu_s:8.1f} CPU s a million"
        print(f"{name:<46} {rate:>12,.0f} /s {costs}", flush=True)
        return rate

    def write(self) -> None:
        """With a key in each message, then without, then with application properties."""
        message_id = "concat('message-', id) AS messageId"
        key = "concat('customer ', id % 1000) AS partitionKey"
        body = f"rpad(concat('body of ', id), {BODY_BYTES}, '.') AS body"
        # One of them is different in each message.
        properties = (
            "map('region', concat('r', id % 7), 'total', string(id)) AS applicationProperties"
        )
        # The first write of a session pays for the start of processes.
        self.save("small", 1000, message_id, key, body)
        few = self.messages // TAGGED_SHARE
        for name, queue, count, columns in (
            ("write, durable, keyed", "orders", self.messages, (message_id, key, body)),
            ("write, durable, without keys", "keyless", few, (message_id, body)),
            ("write, durable, keyed, with properties", "tagged", few,
             (message_id, key, properties, body)),
        ):  # fmt: skip
            self.rate(name, count, partial(self.save, queue, count, *columns))

    def save(self, queue: str, count: int, *columns: str) -> None:
        frame = self.spark.range(count).selectExpr(*columns)
        frame.write.format("servicebus").options(**self.options(queue)).mode("append").save()

    def read_batches(self, directory: Path) -> None:
        plain = self.read("orders", includeProperties="false")
        plain.write.parquet(str(directory / "parquet"))
        self.read_all = _to_nothing(plain)
        self.read_parquet = _to_nothing(self.spark.read.parquet(str(directory / "parquet")))
        read = self.rate("read, no properties", self.messages, self.read_all, REPEATS)
        tagged = _to_nothing(self.read("tagged"))
        count = self.messages // TAGGED_SHARE
        self.rate("read, all columns, with properties", count, tagged, REPEATS)
        ceiling = self.rate(
            "read Parquet of the same rows", self.messages, self.read_parquet, REPEATS
        )
        peek = self.rate("peek with the stock SDK", PEEKED, self.peek)
        self.results["ratios"] = {
            "read / Parquet": round(read / ceiling, 3),
            "read / SDK peek": round(read / peek, 1),
        }

    def senders(self) -> None:
        """What ordinary sends take while Spark reads a queue, and while it reads Parquet."""
        spans: dict[str, list[float]] = {"Parquet": [], "the queue": []}
        works = {"Parquet": self.read_parquet, "the queue": self.read_all}
        for _ in range(SENDERS_ROUNDS):
            for name, work in works.items():
                spans[name] += beside(self.broker.connection_string, "small", SENDERS_S, work)
        for name, each in spans.items():
            p50, p99 = percentile(each, 0.5), percentile(each, 0.99)
            key = f"send while Spark reads {name}"
            self.results[key] = {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "n": len(each)}
            print(f"{key:<46} {p99:>12,.1f} ms p99 {p50:8.1f} ms p50", flush=True)
        queue, parquet = (percentile(spans[name], 0.99) for name in ("the queue", "Parquet"))
        self.results["ratios"]["senders' p99, queue / Parquet"] = round(queue / parquet, 2)

    def peek(self) -> None:
        client = ServiceBusClient.from_connection_string(self.broker.connection_string)
        with client, client.get_queue_receiver("orders") as receiver:
            seen, sequence = 0, 0
            while seen < PEEKED:
                messages = receiver.peek_messages(250, sequence_number=sequence)
                if not messages:
                    return
                seen += len(messages)
                sequence = (messages[-1].sequence_number or 0) + 1

    def stream(self, directory: Path) -> None:
        def run() -> None:
            # Each time from the beginning.
            checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=directory)
            query = (
                self.spark.readStream.format("servicebus")
                .options(**self.options("orders"), startingOffsets="earliest", readerName="")
                .option("maxMessagesPerTrigger", "100000")
                .option("includeProperties", "false")
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        self.rate("stream, 100,000 a batch", self.messages, run, REPEATS)

    def micro_batches(self, directory: Path) -> None:
        """The median time of a batch of a few messages, with the engine warm."""
        query = self.small(directory)
        client = ServiceBusClient.from_connection_string(self.broker.connection_string)
        with client, client.get_queue_sender("small") as sender:
            for number in range(MICRO_BATCHES):
                sender.send_messages(
                    [
                        ServiceBusMessage("x" * BODY_BYTES, partition_key=f"{number}")
                        for _ in range(MICRO_MESSAGES)
                    ]
                )
                query.processAllAvailable()
        query.stop()
        spans = [each.durationMs for each in query.recentProgress if each.numInputRows]
        self.median("micro-batch", f"micro-batch of {MICRO_MESSAGES}", spans[-MICRO_COUNTED:])

    def empty_batches(self, directory: Path) -> None:
        """What a query costs that finds nothing to do."""
        self.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
        query = self.small(directory)
        query.processAllAvailable()
        time.sleep(IDLE_S)
        query.stop()
        self.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        spans = [each.durationMs for each in query.recentProgress if not each.numInputRows]
        self.median("empty micro-batch", "empty micro-batch", spans)

    def small(self, directory: Path) -> StreamingQuery:
        return (
            self.spark.readStream.format("servicebus")
            .options(**self.options("small"), startingOffsets="earliest", readerName="")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(directory / "checkpoint-small"))
            .start()
        )

    def median(self, key: str, name: str, spans: list[dict[str, int]]) -> None:
        steps = sorted({step for span in spans for step in span})
        medians = {step: statistics.median(s.get(step, 0) for s in spans) for step in steps}
        median = medians.pop("triggerExecution")
        self.results[key] = {"median_ms": median, "batches": len(spans), "steps_ms": medians}
        parts = ", ".join(f"{step} {ms:.0f}" for step, ms in medians.items() if ms)
        print(f"{name + ', median':<46} {median:>12,.0f} ms   {parts}", flush=True)


def _to_nothing(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def targets(results: dict[str, dict[str, Any]]) -> list[Target]:
    """The figures to reach, as they were measured."""
    ratios = results["ratios"]

    def rate(name: str, least: int) -> Target:
        return Target(name, results[name]["rate"], least, at_least=True, unit=" /s")

    return [
        rate("read, no properties", 250_000),
        Target("read, against Parquet", ratios["read / Parquet"], 0.15, at_least=True),
        rate("read, all columns, with properties", 80_000),
        Target("read, against the stock SDK's peek", ratios["read / SDK peek"], 20, at_least=True),
        rate("write, durable, keyed", 40_000),
        Target("micro-batch of 16, median", results["micro-batch"]["median_ms"], 150, unit=" ms"),
        Target(
            "senders' p99 while a queue is read, against while Parquet is",
            ratios["senders' p99, queue / Parquet"],
            1.5,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partibus-bench-") as scratch:
        directory = Path(scratch)
        with LiveBroker(directory) as broker:
            for queue in ("orders", "tagged", "keyless"):
                broker.create_queue(queue, enable_partitioning=True, max_size_in_megabytes=5120)
            broker.create_queue("small", enable_partitioning=True)
            spark = local_session("benchmark")
            # The first query of a session pays for the engine's start.
            spark.range(1000).write.format("noop").mode("overwrite").save()
            bench = Bench(broker, spark, given.messages)
            bench.write()
            bench.read_batches(directory)
            bench.stream(directory)
            bench.micro_batches(directory)
            bench.empty_batches(directory)
            bench.senders()
            spark.stop()
    bench.results["machine"] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for each in targets(bench.results):
        verdict = "reached" if each.reached else "NOT REACHED"
        bound = "at least" if each.at_least else "at most"
        print(f"{each.text}: {each.value:,}{each.unit}, {bound} {each.limit:,}: {verdict}")
    print(json.dumps(bench.results["machine"]))
    if given.json:
        given.json.write_text(json.dumps(bench.results, indent=2) + "\n")


if __name__ == "__main__":
    main()
