"""The way back from a migration that is not over: the queue is itself again, with its messages.

What is on its way arrives first, and then all of it is forwarded back: so the order of each key is
kept, which half a move would not. Like the way forth, every step can be repeated. The name is given
back whatever the comparison says, because messages are better found than missed.
"""

from __future__ import annotations

from partibus.pipeline.jobs.errors import Discrepancy, JobFailed
from partibus.pipeline.jobs.migration import (
    HEARD_S,
    SWAPPED,
    UNDOING,
    UNDONE,
    Migration,
    states,
)


def go_back(migration: Migration) -> None:
    """Undo what was done."""
    done = migration.done
    if done.step == UNDONE:
        return
    if done.step == SWAPPED or _has_its_place(migration):
        to = "conventional" if done.partitioned else "partitioned"
        raise JobFailed(
            f"the new queue has the name '{done.entity}' already: this migration cannot be undone "
            f"any more. Finish it, and migrate back (--to {to}, with another --state)"
        )
    if done.step != UNDOING:
        migration.reached(UNDOING)
    if migration.stands_in(migration.name):
        _return_messages(migration)
        _note_differences(migration)
        # Not before the messages are back, so that nothing new comes before them.
        migration.admin.update("Queue", migration.old, {"ForwardTo": "", "Status": done.status})
        migration.swap(migration.name, migration.old)
    _tidy(migration)
    migration.reached(UNDONE)
    if done.notes:
        raise Discrepancy(f"'{migration.name}' is itself again, but {'; '.join(done.notes)}")


def _note_differences(migration: Migration) -> None:
    """Compare what came back with what was there, and write down what is not the same."""
    done = migration.done
    done.notes = []
    counters = migration.counters(migration.old)
    stuck = counters.present("transfer_dead_letter")
    if stuck:
        done.notes.append(
            f"{stuck} messages are in '{migration.name}/$transfer/$deadletterqueue', with the "
            "reasons why they could not be moved"
        )
    if done.messages >= 0:
        found = migration.difference(migration.old)
        due = done.scheduled - states(migration.counters(migration.old), "scheduled")
        if found.keys_different or found.late > due:
            done.notes.append(
                f"of {found.messages_before} messages {found.messages_after - found.late} came "
                f"back, and {found.keys_different} keys differ: {', '.join(found.keys)}"
            )
    migration.reached(UNDOING)


def _tidy(migration: Migration) -> None:
    """Delete the queues that have done their work."""
    if migration.exists(migration.old) and migration.stands_in(migration.old):
        migration.admin.delete(migration.old)
    if migration.exists(migration.new):
        counters = migration.counters(migration.new)
        if counters.unavailable or any(each.present for each in counters.fragments.values()):
            raise JobFailed(f"'{migration.new}' has messages, and is not deleted")
        migration.admin.delete(migration.new)


def _has_its_place(migration: Migration) -> bool:
    """Whether the names were swapped for good, though that was not written down."""
    if migration.done.step != "verified":
        return False
    return not migration.stands_in(migration.name)


def _return_messages(migration: Migration) -> None:
    """Have everything in the old queue again, in order."""
    old, new = migration.old, migration.new
    if not migration.exists(new):
        return
    arrived = any(each.accepted for each in migration.counters(new).fragments.values())
    found = migration.admin.get(old)
    if found.get("ForwardTo"):
        migration.wait_until_moved(old, new, "moved")
    elif not arrived:
        return
    # It takes what is forwarded and gives nothing to anybody.
    migration.admin.update("Queue", old, {"ForwardTo": "", "Status": "ReceiveDisabled"})
    # Not until it forwards no more: they would go round.
    migration.sleep(HEARD_S)
    migration.admin.update("Queue", new, {"ForwardTo": old, "Status": "Active"})
    migration.wait_until_moved(new, old, "moved back")
