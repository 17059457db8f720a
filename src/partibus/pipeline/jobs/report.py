"""`report`: how an entity's traffic looks: skew, hot keys, arrivals, latency, dead letters.

Numbers only, of captured messages or those that are there; the page that shows them is made in
report_page. Latency is from arrival to capture; of messages that wait, it is how long they do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partibus.pipeline.jobs.errors import told
from partibus.pipeline.jobs.progress import Progress, silent
from partibus.pipeline.jobs.rows import key_of

HOT_KEYS = 15
REASONS_MAX = 15
ARRIVAL_BARS = 96
# Upper ends of the bars of latencies, in seconds; the last has none.
LATENCY_ENDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 1800, 3600, 21600, 86400)
PERCENTILES = (0.5, 0.9, 0.99)
# How exact they are: a thousandth of the rows.
ACCURACY = 1000
_US_PER_S = 1_000_000
# Widths that a bar of arrivals may have, in seconds.
_WIDTHS = (1, 5, 15, 60, 300, 900, 3600, 21600, 86400, 604800)


@dataclass(slots=True)
class Report:
    """All numbers of a report; times are seconds since 1970."""

    source: str
    messages: int = 0
    bytes: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    # [{fragment, messages, bytes}]
    fragments: list[dict[str, int]] = field(default_factory=list)
    # The fullest fragment against the mean; and 0 for even, 1 for everything in one.
    skew: float = 1.0
    gini: float = 0.0
    keys: int = 0
    keyless: int = 0
    hot_keys: list[dict[str, Any]] = field(default_factory=list)
    arrival_width_s: int = 1
    arrivals: list[dict[str, int]] = field(default_factory=list)
    latency_is_age: bool = False
    latency: dict[str, float] = field(default_factory=dict)
    latencies: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def report(
    frame: DataFrame,
    source: str,
    *,
    dead_letters: DataFrame | None = None,
    progress: Progress = silent,
) -> Report:
    """Report on the messages of a DataFrame: a capture's, or an entity's."""
    found = Report(source)
    steps = (_sizes, _hot_keys, _arrivals, _latencies)
    rows = frame.cache()
    try:
        with told():
            for done, step in enumerate(steps):
                progress("examined", done, len(steps))
                step(rows, found)
            if dead_letters is not None:
                _reasons(dead_letters, found)
    finally:
        rows.unpersist()
    progress("examined", len(steps), len(steps))
    return found


def _sizes(rows: DataFrame, found: Report) -> None:
    length = f.coalesce(f.length("body"), f.lit(0)) if "body" in rows.columns else f.lit(0)
    time = f.unix_micros("enqueuedTime")
    grouped = rows.groupBy("fragment").agg(
        f.count("*").alias("messages"),
        f.sum(length).alias("bytes"),
        f.min(time).alias("first"),
        f.max(time).alias("last"),
    )
    held = sorted(grouped.collect(), key=lambda row: int(row.fragment))
    found.fragments = [
        {"fragment": row.fragment, "messages": row.messages, "bytes": row.bytes} for row in held
    ]
    found.messages = sum(row.messages for row in held)
    found.bytes = sum(row.bytes for row in held)
    if held:
        found.first_s = min(row.first for row in held) / _US_PER_S
        found.last_s = max(row.last for row in held) / _US_PER_S
        numbers = [row.messages for row in held]
        found.skew = max(numbers) * len(numbers) / sum(numbers)
        found.gini = gini(numbers)


def gini(numbers: list[int]) -> float:
    """How unequal numbers are: 0 where all are the same, near 1 where one has everything."""
    total, size = sum(numbers), len(numbers)
    if not total:
        return 0.0
    ranked = sum(rank * number for rank, number in enumerate(sorted(numbers), 1))
    return 2 * ranked / (size * total) - (size + 1) / size


def _hot_keys(rows: DataFrame, found: Report) -> None:
    grouped = rows.groupBy(key_of(rows).alias("key")).count()
    summary = grouped.agg(
        f.count("key").alias("keys"),
        f.sum(f.when(f.col("key").isNull(), f.col("count"))).alias("keyless"),
    ).first()
    assert summary is not None
    found.keys, found.keyless = summary.keys, summary.keyless or 0
    hot = grouped.where("key IS NOT NULL").orderBy(f.desc("count"), "key").limit(HOT_KEYS)
    found.hot_keys = [{"key": row.key, "messages": row["count"]} for row in hot.collect()]


def _arrivals(rows: DataFrame, found: Report) -> None:
    span_s = found.last_s - found.first_s
    found.arrival_width_s = next(
        (width for width in _WIDTHS if span_s / width <= ARRIVAL_BARS), int(span_s / ARRIVAL_BARS)
    )
    bar = f.floor(f.unix_micros("enqueuedTime") / f.lit(found.arrival_width_s * _US_PER_S))
    counted = rows.groupBy(bar.alias("bar")).count().orderBy("bar").collect()
    found.arrivals = [
        {"from_s": row.bar * found.arrival_width_s, "messages": row["count"]} for row in counted
    ]


def _latencies(rows: DataFrame, found: Report) -> None:
    found.latency_is_age = "capturedTime" not in rows.columns
    seen: Column = f.current_timestamp() if found.latency_is_age else f.col("capturedTime")
    latency = (f.unix_micros(seen) - f.unix_micros("enqueuedTime")) / f.lit(_US_PER_S)
    seconds = rows.select(f.greatest(latency, f.lit(0.0)).alias("s"))
    wanted = [float(each) for each in PERCENTILES]
    row = seconds.agg(
        f.percentile_approx("s", wanted, ACCURACY).alias("percentiles"), f.max("s").alias("max")
    ).first()
    if row is None or row.max is None:
        return
    names = [f"p{round(each * 100)}" for each in PERCENTILES]
    found.latency = {**dict(zip(names, row.percentiles, strict=True)), "max": row.max}
    bar = f.lit(len(LATENCY_ENDS))
    for at, end in reversed(list(enumerate(LATENCY_ENDS))):
        bar = f.when(f.col("s") <= end, f.lit(at)).otherwise(bar)
    counted = {row.bar: row["count"] for row in seconds.groupBy(bar.alias("bar")).count().collect()}
    ends = [*LATENCY_ENDS, None]
    found.latencies = [
        {"upto_s": end, "messages": counted.get(at, 0)} for at, end in enumerate(ends)
    ]


def _reasons(dead: DataFrame, found: Report) -> None:
    grouped = dead.groupBy("deadLetterReason").count()
    rows = grouped.orderBy(f.desc("count"), "deadLetterReason").limit(REASONS_MAX).collect()
    found.dead_letters = [
        {"reason": row.deadLetterReason or "(none)", "messages": row["count"]} for row in rows
    ]
