"""`migrate`: a queue to another partitioning, under its own name (M5).

The broker moves the messages itself, by forwarding: whole, once, in order within each key, over
crashes. Spark proves it: what was there is compared with what arrived. Meanwhile clients find the
queue disabled, because what they sent would overtake what moves. Every step can be repeated, and
which are done stands in a file, so that a migration goes on where it was.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from partibus.client import Client, EntityNotFound, SessionCannotBeLocked
from partibus.client.administration import Administration, Description
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.counters import EntityCounters, read_counters
from partibus.pipeline.jobs.errors import Discrepancy, JobFailed, told
from partibus.pipeline.jobs.fingerprints import SCHEMA, compare, keep
from partibus.pipeline.jobs.progress import Progress, silent

NEW, OLD = ".migrating", ".before"
# Until every node has heard that a name changed hands.
HEARD_S = 2.0
LOOK_EVERY_S = 0.5
# A move that stands still for so long needs somebody to look at it.
PATIENCE_S = 120.0
KEPT = (
    "LockDuration", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount",
    "EnableBatchedOperations", "AutoDeleteOnIdle", "UserMetadata", "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)  # fmt: skip


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


def migrate(
    spark: SparkSession,
    broker: Broker,
    entity: str,
    *,
    partitioned: bool,
    state: str,
    leave_deferred: bool = False,
    accept_differences: bool = False,
    progress: Progress = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> Migrated:
    """Make a queue partitioned, or conventional. `state` is a local directory for its file.

    Raises Discrepancy where what arrived is not what was there, and leaves all as it is then.
    """
    migration = _Migration(spark, broker, entity, partitioned, Path(state), progress, sleep)
    with broker.administration() as admin:
        migration.admin = admin
        with told():
            migration.run(leave_deferred, accept_differences)
    return migration.done


class _Migration:
    """One migration: the steps, each of which may be repeated."""

    admin: Administration

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        entity: str,
        partitioned: bool,
        directory: Path,
        progress: Progress,
        sleep: Callable[[float], None],
    ) -> None:
        self._spark = spark
        self._broker = broker
        self._progress = progress
        self._sleep = sleep
        self._directory = directory
        self._name, self._new, self._old = entity, entity + NEW, entity + OLD
        self.done = self._known(entity, partitioned)

    def _known(self, entity: str, partitioned: bool) -> Migrated:
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / "migration.json"
        if not file.exists():
            mark = f"stands in for a queue that is migrated: {os.urandom(8).hex()}"
            return Migrated(entity, partitioned, mark, old=entity + OLD)
        known = Migrated(**json.loads(file.read_text()))
        if (known.entity, known.partitioned) != (entity, partitioned):
            raise JobFailed(
                f"'{self._directory}' belongs to the migration of '{known.entity}'; choose another "
                "directory, or delete it if that one is over"
            )
        return known

    def _reached(self, step: str) -> None:
        self.done.step = step
        new = self._directory / "migration.json.new"
        new.write_text(json.dumps(asdict(self.done), indent=2))
        new.replace(self._directory / "migration.json")

    def run(self, leave_deferred: bool, accept_differences: bool) -> None:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("created", lambda: self._create(leave_deferred)),
            ("fenced", self._fence),
            ("known", self._fingerprint),
            ("sessions", self._copy_session_states),
            ("moved", self._move),
            ("verified", lambda: self._verify(accept_differences)),
            ("swapped", self._swap),
        ]
        names = ["begun", *(name for name, _ in steps)]
        for at, (name, step) in enumerate(steps, 1):
            if names.index(self.done.step) < at:
                self._progress(name, at - 1, len(steps))
                # Steps take long, and the broker hangs up on who says nothing.
                self.admin.close()
                step()
                self._reached(name)
        self.admin.close()
        self._clear()
        self._reached("swapped")

    # The steps --------------------------------------------------------------------------------

    def _create(self, leave_deferred: bool) -> None:
        """Look whether it can be done, and make the new queue."""
        found = self.admin.get(self._name)
        if "RequiresSession" not in found or "/subscriptions/" in self._name.lower():
            raise JobFailed(
                f"'{self._name}' is no queue: messages of a topic lie in its subscriptions. Make "
                "another topic with such subscriptions, and swap names when these are empty"
            )
        was = found.get("EnablePartitioning") == "true"
        if was == self.done.partitioned:
            kind = "partitioned" if was else "conventional"
            raise JobFailed(f"'{self._name}' is {kind} already")
        if found.get("ForwardTo"):
            raise JobFailed(f"'{self._name}' forwards its messages: there is nothing to migrate")
        self._check_names()
        self._check_forwarders()
        counters = read_counters(self._broker, self._name)
        if counters.unavailable:
            raise JobFailed(f"fragment {counters.unavailable[0]} does not answer; try again later")
        deferred = _states(counters, "deferred")
        if deferred and not leave_deferred:
            raise JobFailed(
                f"'{self._name}' has {deferred} deferred messages, which are known by their "
                "sequence numbers: receive them first, or let them stay in "
                f"'{self._old}' (--leave-deferred)"
            )
        if not self._exists(self._new):
            size = int(str(found["MaxSizeInMegabytes"])) // (len(counters.fragments_of("active")))
            kept = {name: found[name] for name in KEPT if found.get(name)}
            partitioning = {"EnablePartitioning": self.done.partitioned, "MaxSizeInMegabytes": size}
            self.admin.create("Queue", self._new, {**kept, **partitioning})

    def _fence(self) -> None:
        """Put a disabled queue in its place, so that nothing comes or goes but by us."""
        if not self._stands_in(self._name):
            if not self._exists(self._old):
                stub = {"Status": "Disabled", "UserMetadata": self.done.mark}
                self.admin.create("Queue", self._old, stub)
            if not self._stands_in(self._old):
                raise JobFailed(f"somebody has made a queue '{self._old}' meanwhile")
            self.admin.extension("POST", f"entities/{self._name}/swap", {"with": self._old})
        self._sleep(HEARD_S)

    def _fingerprint(self) -> None:
        """Remember what is there."""
        self.done.messages = keep(self._rows(self._old), self._fingerprints())

    def _copy_session_states(self) -> None:
        if self.admin.get(self._new).get("RequiresSession") != "true":
            return
        with Client.from_connection_string(self._broker.connection_string) as client:
            for name in client.list_sessions(self._old):
                try:
                    with client.accept_session(self._old, name) as session:
                        text = session.state()
                except SessionCannotBeLocked as error:
                    raise JobFailed(f"session '{name}' is still locked; run it again") from error
                if text is not None:
                    with client.accept_session(self._new, name) as session:
                        session.set_state(text)

    def _move(self) -> None:
        """Let the broker forward everything, and wait until it has."""
        self.admin.update("Queue", self._old, {"ForwardTo": self._new, "Status": "Active"})
        waited_s, last = 0.0, -1
        while True:
            counters = read_counters(self._broker, self._old)
            left = _states(counters, "active") + counters.present("transfer")
            total = max(self.done.messages, left)
            self._progress("moved", total - left, total)
            if not left and not counters.unavailable:
                return
            waited_s = 0.0 if left != last else waited_s + LOOK_EVERY_S
            last = left
            if waited_s > PATIENCE_S:
                raise JobFailed(
                    f"{left} messages of '{self._old}' do not move to '{self._new}'; look for what "
                    "is down, and run it again: it goes on"
                )
            self._sleep(LOOK_EVERY_S)

    def _verify(self, accept_differences: bool) -> None:
        stuck = read_counters(self._broker, self._old).present("transfer_dead_letter")
        found = compare(self._spark, self._fingerprints(), self._rows(self._new))
        if found.is_none and not stuck:
            return
        said = (
            f"of {found.messages_before} messages {found.messages_after} arrived, "
            f"{stuck} could not be moved, and {found.keys_different} keys differ: "
            f"{', '.join(found.keys)}"
        )
        if not accept_differences:
            raise Discrepancy(
                f"{said}. Messages that expired meanwhile are such a difference. '{self._name}' "
                "stays disabled; look at both queues, and run it again with --accept-differences"
            )
        self.done.notes.append(said)

    def _swap(self) -> None:
        """The new queue gets the name; what comes due in the old one follows."""
        if self._stands_in(self._name):
            self.admin.extension("POST", f"entities/{self._name}/swap", {"with": self._new})
        self.admin.update("Queue", self._old, {"ForwardTo": self._name})
        if self._exists(self._new) and self._stands_in(self._new):
            self.admin.delete(self._new)

    def _clear(self) -> None:
        """Delete the old queue, where nothing is left in it; else say what."""
        self.done.left = {}
        if not self._exists(self._old):
            return
        counters = read_counters(self._broker, self._old)
        found = {
            "scheduled": _states(counters, "scheduled"),
            "deferred": _states(counters, "deferred"),
            "dead letters": counters.present("dead_letter"),
            "transfers": counters.present("transfer") + counters.present("transfer_dead_letter"),
            "active": _states(counters, "active"),
        }
        self.done.left = {name: number for name, number in found.items() if number}
        if not self.done.left:
            self.admin.delete(self._old)
        elif not found["scheduled"] and not found["active"]:
            # So that deferred messages and dead letters can be received there.
            self.admin.update("Queue", self._old, {"ForwardTo": ""})

    # What they need ---------------------------------------------------------------------------

    def _exists(self, name: str) -> bool:
        try:
            self.admin.get(name)
        except EntityNotFound:
            return False
        return True

    def _stands_in(self, name: str) -> bool:
        """Whether this is the disabled queue of this migration."""
        found: Description = self.admin.get(name)
        return found.get("UserMetadata") == self.done.mark

    def _check_names(self) -> None:
        """The names that are needed are free, or taken by an earlier run of this migration."""
        if self._exists(self._old):
            raise JobFailed(
                f"'{self._old}' is there already, with what an earlier migration has left behind; "
                "receive it, delete that queue, and begin again"
            )
        if self._exists(self._new):
            counters = read_counters(self._broker, self._new)
            if any(each.accepted for each in counters.fragments.values()):
                raise JobFailed(f"'{self._new}' is there already, and has been used: delete it")

    def _check_forwarders(self) -> None:
        paths = ["$Resources/queues"]
        paths += [f"{each['Name']}/subscriptions" for each in self.admin.list("$Resources/topics")]
        for path in paths:
            for each in self.admin.list(path):
                for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
                    target = str(each.get(name) or "").rstrip("/").lower()
                    if target == self._name.lower() or target.endswith(f"/{self._name.lower()}"):
                        raise JobFailed(
                            f"'{each['Name']}' ({path}) forwards to '{self._name}', which is "
                            "disabled while it is migrated: stop that first"
                        )

    def _rows(self, name: str) -> DataFrame:
        reader = self._spark.read.format("servicebus").schema(SCHEMA)
        return reader.options(**self._broker.options(name)).load().where("state = 'active'")

    def _fingerprints(self) -> str:
        return (self._directory.resolve() / "fingerprints").as_uri()


def _states(counters: EntityCounters, state: str) -> int:
    return sum(each.states[state] for each in counters.fragments_of("active"))
