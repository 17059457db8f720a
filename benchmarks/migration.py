"""Moving a queue to another partitioning and back: how long it takes, and whether all arrives.

    python -m benchmarks.migration --messages 1000000

One broker and one Spark session on this machine. Each way is verified by the job itself and audited
afterwards; a discrepancy ends the run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from partibus.pipeline import local_session
from partibus.pipeline.jobs.audit import audit
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.migrate import migrate
from partibus.testing.serve import LiveBroker

BODY_BYTES = 200
KEYS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as directory, LiveBroker(Path(directory)) as running:
        running.create_queue("orders", max_size_in_megabytes=5120)
        broker = Broker(running.connection_string)
        spark = local_session("migration")
        frame = spark.range(messages).selectExpr(
            f"concat('key ', id % {KEYS}) AS partitionKey", f"repeat('x', {BODY_BYTES}) AS body"
        )
        options = broker.options("orders")
        frame.write.format("servicebus").options(**options).mode("append").save()
        for number, partitioned in enumerate((True, False)):
            begin = time.perf_counter()
            state = str(Path(directory) / f"state-{number}")
            done = migrate(spark, broker, "orders", partitioned=partitioned, state=state)
            took_s = time.perf_counter() - begin
            assert done.messages == messages, done
            found = audit(spark, broker, "orders")
            assert found.is_clean, found.discrepancies
            kind = "partitioned" if partitioned else "conventional"
            print(f"to {kind}: {took_s:.1f} s, {messages / took_s:,.0f} messages/s, audited clean")
        spark.stop()


if __name__ == "__main__":
    main()
