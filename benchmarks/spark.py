"""Spark and the broker: how fast queues are read, written and streamed, beside Parquet and peek.

    python -m benchmarks.spark --messages 1000000

One broker, one Spark session on this machine, everything in one run, because only ratios of one run
mean anything on a shared machine. Prints a table and writes JSON where `--json` says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.pipeline import local_session
from partibus.testing.serve import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY_BYTES = 200
REPEATS = 3
PEEKED = 20_000
MICRO_BATCHES = 30
MICRO_MESSAGES = 16


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
        spans: list[float] = []
        for _ in range(repeats):
            begin = time.perf_counter()
            work()
            spans.append(time.perf_counter() - begin)
        rate = messages / min(spans)
        self.results[name] = {"rate": round(rate), "seconds": round(min(spans), 3)}
        print(f"{name:<46} {rate:>12,.0f} /s   {min(spans):8.2f} s", flush=True)
        return rate

    def write(self) -> None:
        frame = self.spark.range(self.messages).selectExpr(
            "concat('message-', id) AS messageId",
            "concat('customer ', id % 1000) AS partitionKey",
            f"rpad(concat('body of ', id), {BODY_BYTES}, '.') AS body",
        )

        def save() -> None:
            frame.write.format("servicebus").options(**self.options("orders")).mode("append").save()

        self.rate("write, durable, keyed", self.messages, save)

    def read_batches(self, directory: Path) -> None:
        def to_nothing(frame: DataFrame) -> Callable[[], None]:
            return lambda: frame.write.format("noop").mode("overwrite").save()

        plain = self.read("orders", includeProperties="false")
        plain.write.parquet(str(directory / "parquet"))
        read = self.rate("read, no properties", self.messages, to_nothing(plain), REPEATS)
        whole = to_nothing(self.read("orders"))
        self.rate("read, all columns", self.messages, whole, REPEATS)
        parquet = to_nothing(self.spark.read.parquet(str(directory / "parquet")))
        ceiling = self.rate("read Parquet of the same rows", self.messages, parquet, REPEATS)
        peek = self.rate("peek with the stock SDK", PEEKED, self.peek)
        self.results["ratios"] = {
            "read / Parquet": round(read / ceiling, 3),
            "read / SDK peek": round(read / peek, 1),
        }

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
            query = (
                self.spark.readStream.format("servicebus")
                .options(**self.options("orders"), startingOffsets="earliest")
                .option("maxMessagesPerTrigger", "100000")
                .option("includeProperties", "false")
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(directory / "checkpoint-stream"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        self.rate("stream, 100,000 a batch", self.messages, run)

    def micro_batches(self, directory: Path) -> None:
        """The median time of a batch of a few messages, with the engine warm."""
        query = (
            self.spark.readStream.format("servicebus")
            .options(**self.options("small"), startingOffsets="earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(directory / "checkpoint-small"))
            .start()
        )
        client = ServiceBusClient.from_connection_string(self.broker.connection_string)
        spans: list[int] = []
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
        for progress in query.recentProgress:
            if progress.numInputRows:
                spans.append(progress.durationMs["triggerExecution"])
        median = statistics.median(spans[len(spans) // 3 :])
        self.results["micro-batch"] = {"median_ms": median, "batches": len(spans)}
        print(f"{'micro-batch of 16, median':<46} {median:>12,.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partibus-bench-") as scratch:
        directory = Path(scratch)
        with LiveBroker(directory) as broker:
            broker.create_queue("orders", enable_partitioning=True, max_size_in_megabytes=5120)
            broker.create_queue("small", enable_partitioning=True)
            spark = local_session("benchmark")
            # The first query of a session pays for the engine's start.
            spark.range(1000).write.format("noop").mode("overwrite").save()
            bench = Bench(broker, spark, given.messages)
            bench.write()
            bench.read_batches(directory)
            bench.stream(directory)
            bench.micro_batches(directory)
            spark.stop()
    bench.results["machine"] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(bench.results["ratios"]), json.dumps(bench.results["machine"]))
    if given.json:
        given.json.write_text(json.dumps(bench.results, indent=2) + "\n")


if __name__ == "__main__":
    main()
