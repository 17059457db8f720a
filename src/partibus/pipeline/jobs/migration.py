"""One migration: its file, its queues, and what both its way forth and its way back need.

Three queues take part. The one that is migrated gives its name to a disabled one and is called
NAME.before; NAME.migrating is the one that is to take its place. Which steps are done stands in a
file, and what is true of the queues is asked of the broker, so every step can be repeated. Nothing
is decided here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from partibus.client import EntityNotFound
from partibus.client.administration import Administration, Description
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.counters import EntityCounters, read_counters
from partibus.pipeline.jobs.errors import JobFailed
from partibus.pipeline.jobs.fingerprints import SCHEMA, Difference, compare
from partibus.pipeline.jobs.progress import Progress, silent

NEW, OLD = ".migrating", ".before"
# Until every node has heard that a name changed hands.
HEARD_S = 2.0
LOOK_EVERY_S = 0.5
# A move that stands still for so long needs somebody to look at it.
PATIENCE_S = 120.0

SWAPPED, UNDOING, UNDONE = "swapped", "undoing", "undone"


@dataclass(slots=True)
class Migrated:
    """What a migration has done so far; kept in its file after each step."""

    entity: str
    partitioned: bool
    mark: str
    step: str = "begun"
    messages: int = -1
    # What stays behind in the old queue: by what it is.
    left: dict[str, int] = field(default_factory=dict)
    old: str = ""
    notes: list[str] = field(default_factory=list)
    # How it was before: its status; scheduled messages, and those that had expired.
    status: str = "Active"
    scheduled: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class Means:
    """What a migration works with."""

    spark: SparkSession
    broker: Broker
    progress: Progress = silent
    sleep: Callable[[float], None] = time.sleep


class Migration:
    """One migration, as its file and the broker know it."""

    def __init__(self, means: Means, admin: Administration, directory: Path, done: Migrated):
        self.spark = means.spark
        self.broker = means.broker
        self.progress = means.progress
        self.sleep = means.sleep
        self.admin = admin
        self._directory = directory
        self.done = done
        self.name, self.new, self.old = done.entity, done.entity + NEW, done.entity + OLD

    def reached(self, step: str) -> None:
        """Write down that a step is done."""
        self.done.step = step
        new = self._directory / "migration.json.new"
        new.write_text(json.dumps(asdict(self.done), indent=2))
        new.replace(self._directory / "migration.json")

    @property
    def fingerprints(self) -> str:
        """Where it is kept what the messages were."""
        return (self._directory.resolve() / "fingerprints").as_uri()

    # Queues -----------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether there is an entity of this name."""
        try:
            self.admin.get(name)
        except EntityNotFound:
            return False
        return True

    def stands_in(self, name: str) -> bool:
        """Whether this is the disabled queue of this migration."""
        found: Description = self.admin.get(name)
        return found.get("UserMetadata") == self.done.mark

    def swap(self, one: str, other: str) -> None:
        """Exchange two names."""
        self.admin.extension("POST", f"entities/{one}/swap", {"with": other})

    def counters(self, name: str) -> EntityCounters:
        """What became of the messages of a queue."""
        return read_counters(self.broker, name)

    def rows(self, name: str) -> DataFrame:
        """The active messages of a queue."""
        reader = self.spark.read.format("servicebus").schema(SCHEMA)
        return reader.options(**self.broker.options(name)).load().where("state = 'active'")

    def difference(self, name: str) -> Difference:
        """What a queue has beside what was there before."""
        return compare(self.spark, self.fingerprints, self.rows(name))

    def wait_until_moved(self, source: str, target: str, step: str) -> None:
        """Wait until the broker has forwarded all that is ready in a queue."""
        waited_s, last = 0.0, -1
        while True:
            counters = self.counters(source)
            left = states(counters, "active") + counters.present("transfer")
            total = max(self.done.messages, left)
            self.progress(step, total - left, total)
            if not left and not counters.unavailable:
                return
            waited_s = 0.0 if left != last else waited_s + LOOK_EVERY_S
            last = left
            if waited_s > PATIENCE_S:
                raise JobFailed(
                    f"{left} messages of '{source}' do not move to '{target}'; look for what is "
                    "down"
                )
            self.sleep(LOOK_EVERY_S)


def begin(directory: Path, entity: str, partitioned: bool) -> Migrated:
    """What was begun in a directory, or a new beginning; refused where it is of another queue."""
    directory.mkdir(parents=True, exist_ok=True)
    known = read(directory)
    if known is None:
        mark = f"stands in for a queue that is migrated: {os.urandom(8).hex()}"
        return Migrated(entity, partitioned, mark, old=entity + OLD)
    check(known, directory, entity, partitioned)
    return known


def read(directory: Path) -> Migrated | None:
    """What was begun in a directory."""
    file = directory / "migration.json"
    return Migrated(**json.loads(file.read_text())) if file.exists() else None


def check(known: Migrated, directory: Path, entity: str, partitioned: bool) -> None:
    """Refuse a directory that belongs to another migration."""
    if (known.entity.lower(), known.partitioned) != (entity.lower(), partitioned):
        kind = "partitioned" if known.partitioned else "conventional"
        raise JobFailed(
            f"'{directory}' belongs to the migration of '{known.entity}' to {kind}; choose "
            "another directory, or delete it if that one is over"
        )


def states(counters: EntityCounters, state: str) -> int:
    """How many messages of a queue are in a state."""
    return sum(each.states[state] for each in counters.fragments_of("active"))


def expired(*counters: EntityCounters) -> int:
    """How many messages have expired, or were set aside, since these queues were made."""
    return sum(
        fragment.gone["expired"] + fragment.gone["dead_lettered"]
        for each in counters
        for fragment in (*each.fragments_of("active"), *each.fragments_of("transfer"))
    )
