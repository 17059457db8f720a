"""`partibus send`, `receive`, `peek` and `dlq`: messages, from the shell.

A message is printed before it is completed, so what a broken pipe did not take stays in the
entity. Times to live and property values are read as the documents write them.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click

from partibus.broker.durations import parse_duration
from partibus.cli.connecting import client, reached
from partibus.cli.output import show_done, show_line, show_list, shown
from partibus.client import Message, MessageState, ReceivedMessage
from partibus.client.sync_client import Client, Receiver

BATCH_MAX = 100
LINE_COLUMNS = ("sequenceNumber", "messageId", "body")
COLUMNS = ("sequenceNumber", "messageId", "state", "enqueuedTime", "deliveries", "body")
DEAD_COLUMNS = ("sequenceNumber", "messageId", "deadLetterReason", "enqueuedTime", "body")
DEAD_LETTER_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _span(_: click.Context, __: click.Parameter, text: str | None) -> timedelta | None:
    """A span of time: 30s, 5m, 2h, 1d, or ISO 8601 (PT30S)."""
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.replace(".", "", 1).isdigit():
        return timedelta(seconds=float(number) * _UNITS[unit])
    span_ms = parse_duration(text)
    if span_ms is None:
        raise click.BadParameter(f"'{text}' is no span of time, as 30s, 5m, 2h, 1d or PT30S")
    return timedelta(milliseconds=span_ms)


def _properties(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, object]:
    """Properties: name=value; true, false and numbers are taken as such, name="1" as a text."""
    found: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"'{text}' is not name=value")
        found[name] = _value(value)
    return found


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@click.command("send")
@click.argument("entity")
@click.argument("body", required=False)
@click.option("--file", type=click.File("rb"), help="Take the body from a file; - for input.")
@click.option("--lines", is_flag=True, help="Each line of the input or --file is a message.")
@click.option("--id", "message_id", help="The message id; one is made where it is left out.")
@click.option("--session", help="The session of the message.")
@click.option("--key", help="The partition key; leave it out unless order within it matters.")
@click.option("--subject", help="The subject (label).")
@click.option("--content-type", help="The content type.")
@click.option(
    "--property",
    "properties",
    callback=_properties,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the message. Repeat it.",
)
@click.option("--ttl", callback=_span, help="The time to live, as 30s, 5m, 2h, 1d.")
@click.option("--at", callback=_span, help="Have it enqueued after this span.")
@shown
@reached
def send_command(
    entity: str,
    body: str | None,
    file: Any,
    lines: bool,
    properties: dict[str, object],
    at: timedelta | None,
    output: str,
    connection_string: str | None,
    data: Path,
    **fields: Any,
) -> None:
    """Send BODY, a file, or the lines of the input, to a queue or topic.

    Says how many were accepted, which means that they are on disk.
    """
    if body is not None and file is not None:
        raise click.UsageError("BODY and --file exclude each other")
    named = {
        "message_id": fields["message_id"],
        "session_id": fields["session"],
        "partition_key": fields["key"],
        "subject": fields["subject"],
        "content_type": fields["content_type"],
        "time_to_live": fields["ttl"],
        "scheduled_enqueue_time": datetime.now(UTC) + at if at else None,  # noqa: TID251
    }
    bodies = _bodies(body, file, lines)
    accepted = 0
    with client(connection_string, data) as broker, broker.sender(entity) as sender:
        while batch := list(islice(bodies, BATCH_MAX)):
            sender.send([Message(each, properties=dict(properties), **named) for each in batch])
            accepted += len(batch)
    show_done({"accepted": accepted}, f"{accepted} accepted", output)


def _bodies(body: str | None, file: Any, lines: bool) -> Iterator[bytes]:
    stream = file or sys.stdin.buffer
    if body is not None:
        yield body.encode()
    elif lines:
        for line in stream:
            yield line.rstrip(b"\r\n")
    else:
        yield stream.read()


def from_where(command: Any) -> Any:
    """Which messages of an entity."""
    command = click.option("--dead-letters", is_flag=True, help="Those of the dead-letter queue.")(
        command
    )
    return click.option("--count", type=click.IntRange(1), help="At most so many.")(command)


@click.command("receive")
@click.argument("entity")
@from_where
@click.option("--wait", default=5.0, show_default=True, help="Seconds to wait for the next one.")
@click.option("--delete", is_flag=True, help="Receive-and-delete: at most once.")
@click.option("--keep", is_flag=True, help="Give them back after showing them (counted).")
@click.option("--session", help="Of this session.")
@click.option("--next-session", is_flag=True, help="Of the next session that has messages.")
@shown
@reached
def receive_command(
    entity: str,
    count: int | None,
    keep: bool,
    output: str,
    connection_string: str | None,
    data: Path,
    **options: Any,
) -> None:
    """Receive messages of a queue or subscription (topic/Subscriptions/name) and complete them."""
    with ExitStack() as stack:
        broker = stack.enter_context(client(connection_string, data))
        receiver = stack.enter_context(_receiver(broker, entity, options))
        for received, message in enumerate(receiver, 1):
            show_line(describe(message), LINE_COLUMNS, output)
            sys.stdout.flush()
            if keep:
                receiver.abandon(message)
            elif not options["delete"]:
                receiver.complete(message)
            if received == count:
                break


def _receiver(broker: Client, entity: str, options: dict[str, Any]) -> Receiver:
    mode: Any = "receive-and-delete" if options["delete"] else "peek-lock"
    if options["session"] or options["next_session"]:
        return broker.accept_session(
            entity, options["session"], mode=mode, max_wait=options["wait"], timeout=options["wait"]
        )
    sub_queue: Any = "dead-letter" if options["dead_letters"] else None
    return broker.receiver(entity, mode=mode, sub_queue=sub_queue, max_wait=options["wait"])


@click.command("peek")
@click.argument("entity")
@from_where
@shown
@reached
def peek_command(
    entity: str,
    count: int | None,
    dead_letters: bool,
    output: str,
    connection_string: str | None,
    data: Path,
) -> None:
    """Show messages of a queue or subscription in any state; nothing happens to them."""
    columns = DEAD_COLUMNS if dead_letters else COLUMNS
    sub_queue: Any = "dead-letter" if dead_letters else None
    with (
        client(connection_string, data) as broker,
        broker.receiver(entity, sub_queue=sub_queue) as receiver,
    ):
        rows = [describe(message) for message in islice(receiver.browse(), count)]
    show_list(rows, columns, output)


@click.group("dlq")
def dlq_commands() -> None:
    """Dead letters: what could not be delivered or was set aside."""


@dlq_commands.command("list")
@click.argument("entity")
@click.option("--count", type=click.IntRange(1), help="At most so many.")
@shown
@reached
@click.pass_context
def list_dead_letters_command(context: click.Context, /, **options: Any) -> None:
    """Show dead letters and why they are there."""
    context.invoke(peek_command, dead_letters=True, **options)


@dlq_commands.command("resubmit")
@click.argument("entity")
@click.option("--count", type=click.IntRange(1), help="At most so many.")
@click.option("--to", help="Where to send them. Default: the queue they come from.")
@click.option("--reason", help="Only those that were set aside for this reason.")
@shown
@reached
def resubmit_command(
    entity: str,
    count: int | None,
    to: str | None,
    reason: str | None,
    output: str,
    connection_string: str | None,
    data: Path,
) -> None:
    """Send dead letters to their queue again.

    Each is sent and then completed: a failure in between leaves it in both places, never in none.
    """
    if to is None and "/subscriptions/" in entity.lower():
        raise click.UsageError(
            "a subscription's dead letters need --to: sent to the topic, all subscriptions get them"
        )
    moved = kept = 0
    with (
        client(connection_string, data) as broker,
        broker.receiver(entity, sub_queue="dead-letter") as receiver,
        broker.sender(to or entity) as sender,
    ):
        others: list[ReceivedMessage] = []
        while moved != count:
            wanted = BATCH_MAX if count is None else min(BATCH_MAX, count - moved)
            messages = receiver.receive(wanted, timeout=1.0)
            if not messages:
                break
            chosen: list[ReceivedMessage] = []
            for each in messages:
                # The others stay locked until the end, so that they do not come again.
                (chosen if reason in (None, each.dead_letter_reason) else others).append(each)
            if chosen:
                sender.send([_without_reason(message) for message in chosen])
                receiver.complete(chosen)
            moved += len(chosen)
        kept = len(others)
        if others:
            receiver.abandon(others)
    left = f", {kept} of other reasons left" if kept else ""
    row = {"resubmitted": moved, "to": to or entity, "left": kept}
    show_done(row, f"{moved} resubmitted to {to or entity}{left}", output)


def _without_reason(message: ReceivedMessage) -> Message:
    for name in DEAD_LETTER_PROPERTIES:
        message.properties.pop(name, None)
    return message


@dlq_commands.command("purge")
@click.argument("entity")
@click.confirmation_option("--yes", prompt="Delete all dead letters for good?")
@shown
@reached
def purge_dead_letters_command(
    entity: str, output: str, connection_string: str | None, data: Path
) -> None:
    """Delete all dead letters."""
    deleted = 0
    with (
        client(connection_string, data) as broker,
        broker.receiver(entity, sub_queue="dead-letter", mode="receive-and-delete") as receiver,
    ):
        while messages := receiver.receive(BATCH_MAX, timeout=1.0):
            deleted += len(messages)
    show_done({"deleted": deleted}, f"{deleted} deleted", output)


def describe(message: ReceivedMessage) -> dict[str, object]:
    """A message as it is shown; a body that is no text comes in base64."""
    row: dict[str, object] = {
        "sequenceNumber": message.sequence_number,
        "messageId": message.message_id,
        "sessionId": message.session_id,
        "partitionKey": message.partition_key,
        "subject": message.subject,
        "contentType": message.content_type,
        "state": MessageState(message.state).name.lower(),
        "enqueuedTime": _time(message.enqueued_time),
        "expiresAt": _time(message.expires_at),
        "deliveries": message.delivery_count,
        "deadLetterReason": message.dead_letter_reason,
        "deadLetterErrorDescription": message.dead_letter_description,
        "properties": message.properties or None,
    }
    body = message.body
    if isinstance(body, bytes):
        try:
            row["body"] = body.decode()
        except UnicodeDecodeError:
            row["bodyBase64"] = base64.b64encode(body).decode()
    else:
        row["body"] = body
    return {name: value for name, value in row.items() if value is not None}


def _time(time: datetime | None) -> str | None:
    return time.isoformat(timespec="milliseconds") if time else None
