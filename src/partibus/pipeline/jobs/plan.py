"""`plan`: how traffic would spread over fragments, by the broker's own routing (S6).

The rule that places messages in the broker is a Spark expression, too; it runs here over the keys
of captured traffic, for each candidate key and number of fragments. What is recommended follows
from numbers that are all told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partibus.pipeline.jobs.errors import JobFailed, told
from partibus.pipeline.jobs.progress import Progress, silent
from partibus.pipeline.jobs.rows import key_of
from partibus.pipeline.partitioning import fragment_of

AS_SENT = "as sent"
FRAGMENTS = (2, 4, 16)
FRAGMENTS_MAX = 1024
HOT_KEYS = 10
# Below this in its busiest minute, an entity gains nothing from fragments (M5).
LOW_TRAFFIC_PER_S = 10.0
# A fragment with more than this times the mean is a hot one.
SKEW_MAX = 1.5
_S_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Spread:
    """One candidate over so many fragments. Shares are of all messages."""

    fragments: int
    messages: list[int]
    # The fullest fragment against the mean: 1 is even.
    skew: float
    idle: int
    # What senders would be refused while the worst, or an average, fragment is down.
    refused_worst: float
    refused_mean: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """Traffic under one key."""

    key: str
    keys: int
    keyed: int
    keyless: int
    hot: list[tuple[str, int]]
    spreads: list[Spread]

    @property
    def hottest(self) -> float:
        """The share of the hottest key in all messages."""
        total = self.keyed + self.keyless
        return self.hot[0][1] / total if self.hot and total else 0.0


@dataclass(slots=True)
class Plan:
    """What was found, and what follows."""

    messages: int
    per_second: float
    candidates: list[Candidate]
    partitioned: bool = False
    key: str = ""
    fragments: int = 1
    reasons: list[str] = field(default_factory=list)


def plan(
    frame: DataFrame,
    *,
    keys: Sequence[str] = (),
    fragments: Sequence[int] = FRAGMENTS,
    detects_duplicates: bool = False,
    progress: Progress = silent,
) -> Plan:
    """Plan for the messages of a DataFrame: a capture's, or an entity's.

    `keys` are SQL expressions over their columns, besides the key that they were sent with; where
    duplicates are detected, a message without a key is pinned by its id.
    """
    if not fragments or min(fragments) < 1 or max(fragments) > FRAGMENTS_MAX:
        raise JobFailed(f"a number of fragments is from 1 to {FRAGMENTS_MAX}")
    sent = key_of(frame)
    if detects_duplicates:
        sent = f.coalesce(sent, f.col("messageId"))
    expressions = {AS_SENT: sent, **{key: _expression(frame, key) for key in keys}}
    candidates = []
    for done, (name, expression) in enumerate(expressions.items()):
        progress(f"routed by {name}", done, len(expressions))
        with told():
            candidates.append(_candidate(frame, name, expression, sorted(set(fragments))))
    total = candidates[0].keyed + candidates[0].keyless
    found = Plan(total, _busiest(frame), candidates)
    recommend(found)
    return found


def _expression(frame: DataFrame, text: str) -> Column:
    try:
        found = f.expr(text).cast("string")
        frame.select(found)
    except AnalysisException as error:
        first = str(error).partition("\n")[0]
        raise JobFailed(f'the key "{text}" cannot be used: {first}') from error
    return found


def _candidate(frame: DataFrame, name: str, key: Column, counts: list[int]) -> Candidate:
    grouped = frame.groupBy(key.alias("key")).agg(f.count("*").alias("messages")).cache()
    try:
        keyed = grouped.where("key IS NOT NULL")
        row = keyed.agg(f.count("*").alias("keys"), f.sum("messages").alias("messages")).first()
        assert row is not None
        lone = grouped.where("key IS NULL").first()
        keyless = lone.messages if lone else 0
        hot = keyed.orderBy(f.desc("messages"), "key").limit(HOT_KEYS).collect()
        routed = [_routed(keyed, count) for count in counts]
    finally:
        grouped.unpersist()
    spreads = [spread_of(each, keyless) for each in routed]
    hottest = [(each.key, each.messages) for each in hot]
    return Candidate(name, row.keys, row.messages or 0, keyless, hottest, spreads)


def _routed(keyed: DataFrame, fragments: int) -> list[int]:
    """How many messages the keys bring to each fragment, as the broker decides it."""
    place = fragment_of("key", fragments).alias("fragment")
    found = keyed.groupBy(place).agg(f.sum("messages").alias("messages")).collect()
    messages = {row.fragment: row.messages for row in found}
    return [messages.get(fragment, 0) for fragment in range(1, fragments + 1)]


def spread_of(keyed: list[int], keyless: int) -> Spread:
    """What fragments get: their keys' messages, and an even share of those without a key."""
    size = len(keyed)
    share, rest = divmod(keyless, size)
    messages = [pinned + share + (at < rest) for at, pinned in enumerate(keyed)]
    total = sum(messages)
    return Spread(
        size,
        messages,
        max(messages) * size / total if total else 1.0,
        messages.count(0),
        # Messages without a key step over a fragment that is down.
        max(keyed) / total if total else 0.0,
        sum(keyed) / size / total if total else 0.0,
    )


def _busiest(frame: DataFrame) -> float:
    """Messages a second in the busiest minute."""
    if "enqueuedTime" not in frame.columns:
        return 0.0
    minute = f.floor(f.unix_micros("enqueuedTime") / f.lit(_S_PER_MINUTE * 1_000_000))
    with told():
        row = frame.groupBy(minute.alias("minute")).count().agg(f.max("count").alias("n")).first()
    return (row.n or 0) / _S_PER_MINUTE if row else 0.0


def recommend(found: Plan) -> None:
    """Say what the numbers speak for."""
    if not found.messages:
        found.reasons.append("there is no traffic to plan for")
        return
    if found.per_second < LOW_TRAFFIC_PER_S:
        found.reasons.append(
            f"the busiest minute has {found.per_second:.1f} messages a second: a conventional "
            f"entity is simpler and keeps one order (below {LOW_TRAFFIC_PER_S:.0f} a second)"
        )
        return
    found.partitioned = True
    choices = [(each, spread) for each in found.candidates for spread in each.spreads]
    # That of which the fullest fragment has least to do: an outage of it touches least. With no
    # more fragments than have a share in that.
    best, spread = min(choices, key=lambda c: (max(c[1].messages), c[1].idle, c[1].fragments))
    found.key, found.fragments = best.key, spread.fragments
    found.reasons += [
        f"by {best.key} over {spread.fragments} fragments, the fullest has {spread.skew:.2f} times "
        "the mean",
        f"with its worst fragment down, {spread.refused_worst:.1%} of the messages are refused",
    ]
    if best.hot and best.hottest > 1 / spread.fragments:
        found.reasons.append(
            f"the key '{best.hot[0][0]}' alone has {best.hottest:.1%} of the messages, more than a "
            "fragment's share: split it, or send without a key what needs no order"
        )
    if spread.skew > SKEW_MAX or spread.idle:
        found.reasons.append("no candidate is even: try other keys")
    if not best.keyed:
        found.reasons.append("messages have no key, so their order is not kept across fragments")
