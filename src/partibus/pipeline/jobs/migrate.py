"""`migrate`: a queue to another partitioning, under its own name (M5).

The broker moves the messages itself, by forwarding: whole, once, in order within each key, over
crashes. Spark proves it: what was there is compared with what arrived. Meanwhile clients find the
queue disabled, because what they sent would overtake what moves. Until the names are swapped at the
end it can go on or go back (migrate_undo), whatever has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from partibus.client import Client, MessagingError, SessionCannotBeLocked
from partibus.client.administration import Description
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.counters import EntityCounters
from partibus.pipeline.jobs.errors import Discrepancy, JobFailed, told
from partibus.pipeline.jobs.fingerprints import keep
from partibus.pipeline.jobs.migrate_undo import go_back
from partibus.pipeline.jobs.migration import (
    HEARD_S,
    SWAPPED,
    UNDOING,
    UNDONE,
    Means,
    Migrated,
    Migration,
    begin,
    check,
    expired,
    read,
    states,
)
from partibus.pipeline.jobs.progress import Progress, silent

KEPT = (
    "LockDuration", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount",
    "EnableBatchedOperations", "AutoDeleteOnIdle", "UserMetadata", "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)  # fmt: skip
# Sizes that an entity may have; which of them, the profile says.
SIZES_MB = (1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920)
MEGABYTE = 1024 * 1024
IDS_SHOWN = 3


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
    sleep: Callable[[float], None] | None = None,
) -> Migrated:
    """Make a queue partitioned, or conventional. `state` is a local directory for its file.

    Raises Discrepancy where what arrived is not what was there. Whatever it raises, all messages
    are in the queues that it names, and it can go on or be undone.
    """
    directory = Path(state)
    done = begin(directory, entity, partitioned)
    if done.step in (UNDOING, UNDONE):
        raise JobFailed(
            f"this migration of '{entity}' "
            + (
                "was undone: delete its directory to begin another"
                if done.step == UNDONE
                else "is being undone: run it again with --undo"
            )
        )
    means = Means(spark, broker, progress, *([sleep] if sleep else []))
    with broker.administration() as admin:
        migration = Migration(means, admin, directory, done)
        try:
            with told():
                _Forth(migration).run(leave_deferred, accept_differences)
        except (JobFailed, MessagingError) as error:
            raise JobFailed(f"{_ended(error)}. {standing(done)}") from error
        except Discrepancy as error:
            raise Discrepancy(f"{_ended(error)}. {standing(done)}") from error
    return done


def undo_migration(
    spark: SparkSession,
    broker: Broker,
    entity: str,
    *,
    partitioned: bool,
    state: str,
    progress: Progress = silent,
    sleep: Callable[[float], None] | None = None,
) -> Migrated:
    """Take a migration back that is not over: the queue is itself again, with its messages.

    Raises Discrepancy where what came back is not what was there; the queue has its name again
    then, too.
    """
    directory = Path(state)
    done = read(directory)
    if done is None:
        raise JobFailed(f"no migration was begun in '{directory}': there is nothing to undo")
    check(done, directory, entity, partitioned)
    means = Means(spark, broker, progress, *([sleep] if sleep else []))
    with broker.administration() as admin:
        try:
            with told():
                go_back(Migration(means, admin, directory, done))
        except (JobFailed, MessagingError) as error:
            if done.step != UNDOING:
                raise
            raise JobFailed(f"{_ended(error)}. {standing(done)}") from error
    return done


def standing(done: Migrated) -> str:
    """Where the messages are, and what can be done, for who reads of a failure."""
    name, old = done.entity, done.old
    new = name + ".migrating"
    if done.step == "begun":
        return "Nothing was changed"
    if done.step == "created":
        return (
            f"'{name}' has all its messages; if it is disabled, they are in '{old}'. Run the same "
            "command again to go on, or with --undo to go back"
        )
    if done.step == UNDOING:
        return (
            f"'{name}' is disabled; its messages are in '{old}' and '{new}'. Run it again with "
            "--undo to go on"
        )
    if done.step in (SWAPPED, UNDONE):
        return "Run the same command again to tidy up"
    return (
        f"'{name}' stays disabled; its messages are in '{old}' and '{new}'. Run the same command "
        "again to go on, or with --undo to go back"
    )


def _ended(error: Exception) -> str:
    return str(error).rstrip(". ")


class _Forth:
    """The steps, each of which may be repeated."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration
        self._admin = migration.admin
        self._done = migration.done
        self._name, self._new, self._old = migration.name, migration.new, migration.old

    def run(self, leave_deferred: bool, accept_differences: bool) -> None:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("created", lambda: self._create(leave_deferred)),
            ("fenced", self._fence),
            ("known", self._fingerprint),
            ("sessions", self._copy_session_states),
            ("moved", self._move),
            ("verified", lambda: self._verify(accept_differences)),
            (SWAPPED, self._swap),
        ]
        names = ["begun", *(name for name, _ in steps)]
        for at, (name, step) in enumerate(steps, 1):
            if names.index(self._done.step) < at:
                self._migration.progress(name, at - 1, len(steps))
                # Steps take long, and the broker hangs up on who says nothing.
                self._admin.close()
                step()
                self._migration.reached(name)
        self._admin.close()
        self._clear()
        self._migration.reached(SWAPPED)

    # The steps --------------------------------------------------------------------------------

    def _create(self, leave_deferred: bool) -> None:
        """Look whether it can be done, and make the new queue."""
        found = self._admin.get(self._name)
        if "RequiresSession" not in found or "/subscriptions/" in self._name.lower():
            raise JobFailed(
                f"'{self._name}' is no queue, and only queues are migrated: messages of a topic "
                "lie in its subscriptions, and nothing can be sent to one of these alone. Make "
                "another topic with such subscriptions, let senders use it, and delete this one "
                "when its subscriptions are empty"
            )
        was = found.get("EnablePartitioning") == "true"
        if was == self._done.partitioned:
            kind = "partitioned" if was else "conventional"
            raise JobFailed(f"'{self._name}' is {kind} already")
        if found.get("ForwardTo"):
            raise JobFailed(f"'{self._name}' forwards its messages: there is nothing to migrate")
        self._check_names()
        self._check_forwarders()
        counters = self._migration.counters(self._name)
        if counters.unavailable:
            raise JobFailed(f"fragment {counters.unavailable[0]} does not answer; try again later")
        deferred = states(counters, "deferred")
        if deferred and not leave_deferred:
            raise JobFailed(
                f"'{self._name}' has {deferred} deferred messages, which are known by their "
                "sequence numbers: receive them first, or let them stay in "
                f"'{self._old}' (--leave-deferred)"
            )
        self._done.status = str(found.get("Status") or "Active")
        if not self._migration.exists(self._new):
            size = self._size_mb(found, counters)
            kept = {name: found[name] for name in KEPT if found.get(name)}
            partitioning = {
                "EnablePartitioning": self._done.partitioned,
                "MaxSizeInMegabytes": size,
            }
            self._admin.create("Queue", self._new, {**kept, **partitioning})

    def _fence(self) -> None:
        """Put a disabled queue in its place, so that nothing comes or goes but by us."""
        if not self._migration.stands_in(self._name):
            if not self._migration.exists(self._old):
                stub = {"Status": "Disabled", "UserMetadata": self._done.mark}
                self._admin.create("Queue", self._old, stub)
            if not self._migration.stands_in(self._old):
                raise JobFailed(f"somebody has made a queue '{self._old}' meanwhile")
            self._migration.swap(self._name, self._old)
        self._migration.sleep(HEARD_S)

    def _fingerprint(self) -> None:
        """Remember what is there."""
        counters = self._migration.counters(self._old)
        self._done.scheduled = states(counters, "scheduled")
        self._done.expired = expired(counters)
        rows = self._migration.rows(self._old)
        if self._admin.get(self._old).get("RequiresDuplicateDetection") == "true":
            # Copies that were too far apart to be taken for duplicates would be close together.
            again = rows.groupBy("messageId").count().where("count > 1").limit(IDS_SHOWN).collect()
            if again:
                raise JobFailed(
                    f"'{self._name}' detects duplicates and has several messages of the same id "
                    f"({', '.join(str(row.messageId) for row in again)}): the new queue would drop "
                    "them. Go back, and receive them first"
                )
        self._done.messages = keep(rows, self._migration.fingerprints)

    def _copy_session_states(self) -> None:
        if self._admin.get(self._new).get("RequiresSession") != "true":
            return
        with Client.from_connection_string(self._migration.broker.connection_string) as client:
            for name in client.list_sessions(self._old):
                try:
                    with client.accept_session(self._old, name) as session:
                        text = session.state()
                except SessionCannotBeLocked as error:
                    raise JobFailed(f"session '{name}' is still locked") from error
                if text is not None:
                    with client.accept_session(self._new, name) as session:
                        session.set_state(text)

    def _move(self) -> None:
        """Let the broker forward everything, and wait until it has."""
        self._admin.update("Queue", self._old, {"ForwardTo": self._new, "Status": "Active"})
        self._migration.wait_until_moved(self._old, self._new, "moved")

    def _verify(self, accept_differences: bool) -> None:
        found = self._migration.difference(self._new)
        old, new = self._migration.counters(self._old), self._migration.counters(self._new)
        stuck = old.present("transfer_dead_letter")
        # What was scheduled may have come due meanwhile, and has followed.
        due = self._done.scheduled - states(old, "scheduled")
        if not found.keys_different and found.late <= due and not stuck:
            return
        gone = expired(old, new) - self._done.expired
        said = (
            f"of {found.messages_before} messages {found.messages_after - found.late} arrived, "
            f"{gone} expired meanwhile, {stuck} could not be moved (they are in "
            f"'{self._old}/$transfer/$deadletterqueue'), {found.late} came from elsewhere, and "
            f"{found.keys_different} keys differ: {', '.join(found.keys)}"
        )
        if not accept_differences:
            raise Discrepancy(f"{said}. To go on all the same, add --accept-differences")
        self._done.notes.append(said)

    def _swap(self) -> None:
        """The new queue gets the name; what comes due in the old one follows."""
        if self._migration.stands_in(self._name):
            self._migration.swap(self._name, self._new)
        self._admin.update("Queue", self._old, {"ForwardTo": self._name})
        if self._done.status != "Active":
            self._admin.update("Queue", self._name, {"Status": self._done.status})
        if self._migration.exists(self._new) and self._migration.stands_in(self._new):
            self._admin.delete(self._new)

    def _clear(self) -> None:
        """Delete the old queue, where nothing is left in it; else say what."""
        self._done.left = {}
        if not self._migration.exists(self._old):
            return
        counters = self._migration.counters(self._old)
        found = {
            "scheduled": states(counters, "scheduled"),
            "deferred": states(counters, "deferred"),
            "dead letters": counters.present("dead_letter"),
            "transfers": counters.present("transfer") + counters.present("transfer_dead_letter"),
            "active": states(counters, "active"),
        }
        self._done.left = {name: number for name, number in found.items() if number}
        if not self._done.left:
            self._admin.delete(self._old)
        elif not found["scheduled"] and not found["active"]:
            # So that deferred messages and dead letters can be received there.
            self._admin.update("Queue", self._old, {"ForwardTo": ""})

    # What they need ---------------------------------------------------------------------------

    def _size_mb(self, found: Description, counters: EntityCounters) -> int:
        """The size of a fragment stays; a conventional queue must hold what all of them held."""
        size = int(str(found["MaxSizeInMegabytes"])) // len(counters.fragments_of("active"))
        held = int(str(found.get("SizeInBytes") or 0))
        if self._done.partitioned or held < size * MEGABYTE:
            return size
        larger = [each for each in SIZES_MB if each > size and held < each * MEGABYTE]
        if not larger:
            raise JobFailed(
                f"'{self._name}' holds {held // MEGABYTE} MB, which no conventional queue does"
            )
        self._done.notes.append(f"the new queue has {larger[0]} MB, to hold what was there")
        return larger[0]

    def _check_names(self) -> None:
        """The names that are needed are free, or taken by an earlier run of this migration."""
        if self._migration.exists(self._old):
            raise JobFailed(
                f"'{self._old}' is there already, with what an earlier migration has left behind; "
                "receive it, delete that queue, and begin again"
            )
        if self._migration.exists(self._new):
            counters = self._migration.counters(self._new)
            if any(each.accepted for each in counters.fragments.values()):
                raise JobFailed(f"'{self._new}' is there already, and has been used: delete it")

    def _check_forwarders(self) -> None:
        paths = ["$Resources/queues"]
        paths += [f"{each['Name']}/subscriptions" for each in self._admin.list("$Resources/topics")]
        for path in paths:
            for each in self._admin.list(path):
                for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
                    target = str(each.get(name) or "").rstrip("/").lower()
                    if target == self._name.lower() or target.endswith(f"/{self._name.lower()}"):
                        raise JobFailed(
                            f"'{each['Name']}' ({path}) forwards to '{self._name}', which is "
                            "disabled while it is migrated: stop that first"
                        )
