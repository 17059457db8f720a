"""`audit`: is every message that was accepted accounted for, fragment by fragment?

Three independent witnesses are compared: the lifetime counters that each commit keeps, the
messages that can in fact be read, and, where there is one, a capture. A fragment that does not
answer cannot be audited, which counts against the entity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.counters import GONE, Counts, EntityCounters, read_counters
from partibus.pipeline.jobs.errors import told
from partibus.pipeline.jobs.progress import Progress, silent
from partibus.pipeline.jobs.rows import captured, subqueue_of

# How often messages are counted again where somebody used the entity meanwhile.
READS_MAX = 3
# Where dead letters of a sub-queue arrive.
_ARRIVALS = {"active": "dead_letter", "transfer": "transfer_dead_letter"}
_PLACES = "fragment INT, position LONG"


@dataclass(slots=True)
class Account:
    """One fragment or sub-queue: what came in, where it is, and what the other witnesses say."""

    fragment: int
    subqueue: str
    accepted: int
    completed: int
    dead_lettered: int
    expired: int
    forwarded: int
    discarded: int
    present: int
    missing: int
    # Messages that were read; None: not compared, because it was in use.
    read: int | None = None
    captured: int | None = None


@dataclass(slots=True)
class Audit:
    """The accounts of an entity, and what is wrong with them."""

    entity: str
    accounts: list[Account]
    discrepancies: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every message is accounted for."""
        return not self.discrepancies

    @property
    def totals(self) -> dict[str, int]:
        """All fragments of the entity itself together."""
        names = ("accepted", *GONE, "present", "missing")
        own = [each for each in self.accounts if each.subqueue == "active"]
        return {name: sum(getattr(each, name) for each in own) for name in names}


def audit(
    spark: SparkSession,
    broker: Broker,
    entity: str,
    *,
    capture: str = "",
    all_captured: bool = False,
    progress: Progress = silent,
) -> Audit:
    """Audit an entity, with all its sub-queues.

    `capture` is the directory of a capture of it (or of the sub-queue that `entity` names); with
    `all_captured` it must have every message that was ever there, which a capture with a reader
    name from the beginning has.
    """
    name, subqueue = subqueue_of(entity)
    progress("counted", 0, None)
    with told():
        counters, read = _count(spark, broker, name)
    found = Audit(counters.entity, [_account(each) for each in _sorted(counters)])
    for fragment in counters.unavailable:
        found.discrepancies.append(f"fragment {fragment} does not answer and cannot be audited")
    for account in found.accounts:
        account.read = read.get((account.fragment, account.subqueue))
    _check_balances(found)
    _check_read(found, counters)
    if capture:
        progress("compared with the capture", 0, None)
        with told():
            _check_capture(spark, broker, entity, subqueue, captured(spark, capture), found)
        if all_captured:
            _check_all_captured(found, counters, subqueue)
    return found


def _sorted(counters: EntityCounters) -> list[Counts]:
    return [counters.fragments[key] for key in sorted(counters.fragments)]


def _account(counts: Counts) -> Account:
    return Account(
        fragment=counts.fragment,
        subqueue=counts.subqueue,
        accepted=counts.accepted,
        **counts.gone,
        present=counts.present,
        missing=counts.missing,
    )


def _count(
    spark: SparkSession, broker: Broker, name: str
) -> tuple[EntityCounters, dict[tuple[int, str], int | None]]:
    """Counters, and how many messages can be read of what did not change meanwhile."""
    for attempt in range(READS_MAX):
        before = read_counters(broker, name)
        read: dict[tuple[int, str], int | None] = {}
        for subqueue, suffix in (("active", ""), ("dead_letter", "/$deadletterqueue")):
            held = [key for key, each in before.fragments.items() if key[1] == subqueue]
            if held:
                rows = places(spark, broker, name + suffix).groupBy("fragment").count().collect()
                numbers = {row.fragment: row["count"] for row in rows}
                read.update({key: numbers.get(key[0], 0) for key in held})
        after = read_counters(broker, name)
        changed = [
            key for key, each in after.fragments.items() if before.fragments.get(key) != each
        ]
        for key in changed:
            read[key] = None
        if not changed or attempt + 1 == READS_MAX:
            break
    return after, read


def places(spark: SparkSession, broker: Broker, path: str) -> DataFrame:
    """Fragment and position of each message that can be read now."""
    reader = spark.read.format("servicebus").schema(_PLACES).options(**broker.options(path))
    return reader.load()


def _check_balances(found: Audit) -> None:
    arrived = {(each.fragment, each.subqueue): each.accepted for each in found.accounts}
    not_compared = 0
    for each in found.accounts:
        where = f"fragment {each.fragment} ({each.subqueue})"
        if each.missing:
            found.discrepancies.append(
                f"{where}: {each.missing} of {each.accepted} accepted are not accounted for"
            )
        target = _ARRIVALS.get(each.subqueue)
        got = arrived.get((each.fragment, target), 0) if target else each.dead_lettered
        if got < each.dead_lettered:
            found.discrepancies.append(
                f"{where}: {each.dead_lettered} were dead-lettered, {got} arrived there"
            )
        if each.subqueue in ("active", "dead_letter") and each.read is None:
            not_compared += 1
    if not_compared:
        found.notes.append(
            f"{not_compared} fragments were in use: their messages were not counted one by one"
        )


def _check_read(found: Audit, counters: EntityCounters) -> None:
    """What can be read is what the counters say, scheduled messages aside."""
    for each in found.accounts:
        counts = counters.fragments[each.fragment, each.subqueue]
        expected = counts.states["active"] + counts.states["deferred"]
        if each.read is not None and each.read != expected:
            found.discrepancies.append(
                f"fragment {each.fragment} ({each.subqueue}): {expected} messages are counted, "
                f"{each.read} can be read"
            )


def _check_capture(
    spark: SparkSession,
    broker: Broker,
    path: str,
    subqueue: str,
    capture: DataFrame,
    found: Audit,
) -> None:
    """Each message once, none that was never accepted, and none left out on the way."""
    taken = capture.groupBy("fragment", "position").count()
    by_fragment = {
        row.fragment: row
        for row in taken.groupBy("fragment")
        .agg(f.count("*").alias("messages"), f.sum("count").alias("rows"))
        .collect()
    }
    last = taken.groupBy("fragment").agg(f.max("position").alias("last"))
    here = places(spark, broker, path).join(f.broadcast(last), "fragment")
    passed = here.where("position <= last").join(taken, ["fragment", "position"], "left_anti")
    left_out = {row.fragment: row["count"] for row in passed.groupBy("fragment").count().collect()}
    accounts = {each.fragment: each for each in found.accounts if each.subqueue == subqueue}
    for fragment in sorted(by_fragment.keys() | accounts.keys()):
        row, account = by_fragment.get(fragment), accounts.get(fragment)
        messages = row.messages if row else 0
        if account is not None:
            account.captured = messages
        if row and row.rows > messages:
            found.discrepancies.append(
                f"fragment {fragment}: {row.rows - messages} messages are captured more than once"
            )
        if messages > (account.accepted if account else 0):
            found.discrepancies.append(
                f"fragment {fragment}: {messages} messages are captured, and only "
                f"{account.accepted if account else 0} were ever accepted; is it a capture of this "
                "entity, in this life?"
            )
        if left_out.get(fragment):
            found.discrepancies.append(
                f"fragment {fragment}: the capture passed {left_out[fragment]} messages that are "
                "there, without taking them"
            )


def _check_all_captured(found: Audit, counters: EntityCounters, subqueue: str) -> None:
    for each in found.accounts:
        if each.subqueue != subqueue or each.captured is None:
            continue
        counts = counters.fragments[each.fragment, each.subqueue]
        # A scheduled message is not seen before its time, and never if it was cancelled.
        expected = each.accepted - counts.states["scheduled"] - each.discarded
        if each.captured < expected:
            found.discrepancies.append(
                f"fragment {each.fragment}: {expected - each.captured} messages were never captured"
            )
