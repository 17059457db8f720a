"""`partibus queue`, `topic` and `subscription`: create, list, show, update, delete.

Spoken over HTTP, as any administration client does. Every property of the documents can be set by
its own name with --set; the usual ones have options. Partitioning is on unless it is refused: a
person at a shell is asked once, programs say what they want.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from partibus.cli.connecting import administration, reached
from partibus.cli.output import show_done, show_list, show_one, shown
from partibus.client.administration import Administration, Description
from partibus.client.errors import ServerBusy

LIST_COLUMNS = ("Name", "Status", "EnablePartitioning", "Active", "DeadLetter", "SizeInBytes")
# With the paths that go behind the name of a topic.
SUBSCRIPTIONS = "subscriptions"
LOW_TRAFFIC_HINT = (
    "hint: for low traffic a conventional entity (--no-partitioned) is recommended; this cannot be "
    "changed later"
)


def settings_of(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Properties given as NAME=VALUE."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"'{text}' is not NAME=VALUE, as LockDuration=PT1M")
        found[name] = value
    return found


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    callback=settings_of,
    metavar="NAME=VALUE",
    help="A property by its name in the documents, as LockDuration=PT1M. Repeat it.",
)
partitioned_option = click.option(
    "--partitioned/--no-partitioned",
    default=True,
    show_default=True,
    help="Spread over all stores; cannot be changed later.",
)
sessions_option = click.option("--sessions", is_flag=True, help="Messages belong to sessions.")
confirmed = click.confirmation_option("--yes", prompt="Delete it with all its messages?")


def with_arguments(*names: str) -> Callable[[Any], Any]:
    """The names that a command takes."""

    def add(command: Any) -> Any:
        for name in reversed(names):
            command = click.argument(name)(command)
        return command

    return add


def counted(description: Description) -> Description:
    """A description with the counts that a list shows."""
    counts = description.get("CountDetails")
    counts = counts if isinstance(counts, dict) else {}
    found: Description = dict(description)
    found["Active"] = counts.get("ActiveMessageCount")
    found["DeadLetter"] = counts.get("DeadLetterMessageCount")
    return found


def show_all(admin: Administration, feed: str, columns: tuple[str, ...], output: str) -> None:
    """Print a feed."""
    found = list(admin.list(feed))
    rows = found if output == "json" else [counted(each) for each in found]
    show_list(rows, columns, output)


def group_of(kind: str, feed: str) -> click.Group:
    """The commands of queues or topics, which differ in little."""
    word = kind.lower()
    may_have_sessions: Callable[[Any], Any] = sessions_option if kind == "Queue" else _as_it_is
    group = click.Group(word, help=f"{kind}s: create, list, show, update, delete, purge.")

    @group.command("create", help=f"Make a {word}. Partitioned unless --no-partitioned is given.")
    @click.argument("name")
    @partitioned_option
    @may_have_sessions
    @set_option
    @shown
    @reached
    def create(
        name: str,
        partitioned: bool,
        settings: dict[str, str],
        output: str,
        connection_string: str | None,
        data: Path,
        sessions: bool = False,
    ) -> None:
        properties: dict[str, object] = {"EnablePartitioning": partitioned, **settings}
        if sessions:
            properties["RequiresSession"] = True
        with administration(connection_string, data) as admin:
            show_one(admin.create(kind, name, properties), output)
        if partitioned and output == "table":
            click.echo(LOW_TRAFFIC_HINT, err=True)

    @group.command("list", help=f"All {word}s, with their counts.")
    @shown
    @reached
    def list_all(output: str, connection_string: str | None, data: Path) -> None:
        with administration(connection_string, data) as admin:
            show_all(admin, feed, LIST_COLUMNS, output)

    _add_rest(group, kind, ("name",), lambda name: str(name))
    return group


def _as_it_is(command: Any) -> Any:
    return command


def _add_rest(
    group: click.Group, kind: str, names: tuple[str, ...], path_of: Callable[..., str]
) -> None:
    """Show, update, delete and purge, which are the same for all entities."""
    word = kind.lower()

    @group.command("show", help=f"What a {word} is, with its counts.")
    @with_arguments(*names)
    @shown
    @reached
    def show(output: str, connection_string: str | None, data: Path, **named: str) -> None:
        with administration(connection_string, data) as admin:
            show_one(admin.get(path_of(**named)), output)

    @group.command("update", help=f"Change properties of a {word} that may change.")
    @with_arguments(*names)
    @set_option
    @shown
    @reached
    def update(
        settings: dict[str, str],
        output: str,
        connection_string: str | None,
        data: Path,
        **named: str,
    ) -> None:
        if not settings:
            raise click.UsageError("say what to change: --set NAME=VALUE")
        with administration(connection_string, data) as admin:
            show_one(admin.update(kind, path_of(**named), settings), output)

    @group.command("delete", help=f"Delete a {word} with all its messages.")
    @with_arguments(*names)
    @confirmed
    @shown
    @reached
    def delete(output: str, connection_string: str | None, data: Path, **named: str) -> None:
        path = path_of(**named)
        with administration(connection_string, data) as admin:
            admin.delete(path)
        show_done({"deleted": path}, "deleted", output)

    @group.command("purge", help=f"Delete all messages of a {word}, but not the {word}.")
    @with_arguments(*names)
    @click.confirmation_option("--yes", prompt="Delete all its messages for good?")
    @shown
    @reached
    def purge(output: str, connection_string: str | None, data: Path, **named: str) -> None:
        path = path_of(**named)
        with administration(connection_string, data) as admin:
            paths = [path]
            if kind == "Topic":
                # It holds scheduled messages only; the others are its subscriptions'.
                feed = admin.list(f"{path}/{SUBSCRIPTIONS}")
                paths += [subscription_path(path, str(each["Name"])) for each in feed]
            deleted = sum(_purged(admin, each) for each in paths)
        show_done({"deleted": deleted}, f"{deleted} deleted", output)


def _purged(admin: Administration, path: str) -> int:
    """Empty an entity, however many steps it takes; how many messages that were."""
    deleted = 0
    while True:
        step: Any = admin.extension("POST", f"entities/{path}/purge")
        deleted += int(step["deleted"])
        if step["complete"]:
            return deleted
        if not step["deleted"]:
            where = ", ".join(map(str, step["unfinished"]))
            raise ServerBusy(
                f"{deleted} deleted from '{path}'; not from its fragments {where}, which are not "
                "available"
            )


def subscription_path(topic: str, name: str) -> str:
    """Where a subscription stands."""
    return f"{topic}/{SUBSCRIPTIONS}/{name}"


def _subscription_group() -> click.Group:
    group = click.Group(
        "subscription", help="Subscriptions: create, list, show, update, delete, purge."
    )

    @group.command("create")
    @with_arguments("topic", "name")
    @sessions_option
    @set_option
    @shown
    @reached
    def create(
        topic: str,
        name: str,
        sessions: bool,
        settings: dict[str, str],
        output: str,
        connection_string: str | None,
        data: Path,
    ) -> None:
        """Make a subscription; it gets every message until its rules say otherwise."""
        properties: dict[str, object] = dict(settings)
        if sessions:
            properties["RequiresSession"] = True
        with administration(connection_string, data) as admin:
            path = subscription_path(topic, name)
            show_one(admin.create("Subscription", path, properties), output)

    @group.command("list")
    @with_arguments("topic")
    @shown
    @reached
    def list_all(topic: str, output: str, connection_string: str | None, data: Path) -> None:
        """All subscriptions of a topic, with their counts."""
        columns = ("Name", "Status", "Active", "DeadLetter", "ForwardTo")
        with administration(connection_string, data) as admin:
            show_all(admin, f"{topic}/{SUBSCRIPTIONS}", columns, output)

    _add_rest(group, "Subscription", ("topic", "name"), subscription_path)
    return group


queue_commands = group_of("Queue", "$Resources/queues")
topic_commands = group_of("Topic", "$Resources/topics")
subscription_commands = _subscription_group()
