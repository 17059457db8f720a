"""The options of `format("servicebus")`: read, checked, and said back clearly where they are wrong.

Names are compared without regard to case. The connection string is never part of a text that is
shown or logged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from urllib.parse import urlsplit

from partibus.client.connection_string import Destination, read_connection_string
from partibus.client.encoding import to_ms

EARLIEST = "earliest"
LATEST = "latest"
CONSUME = "consume"
NAME_MAX = 128
DELAY_MS_DEFAULT = 15 * 60 * 1000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
COUNTER_MASK = (1 << 48) - 1

_ALIASES = {"maxoffsetspertrigger": "maxmessagespertrigger"}
_SHARED = (
    "connectionString", "httpEndpoint", "caCertificate", "queue", "topic", "subscription",
    "subQueue", "timeoutSeconds",
)  # fmt: skip
_READ = (
    "mode", "readerName", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "maxMessagesPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "minMessagesPerTrigger", "maxTriggerDelay", "maxTriggerDelayMs", "minPartitions",
    "maxRecordsPerPartition", "fragmentsPerTask", "failOnDataLoss", "includeBody",
    "includeProperties",
)  # fmt: skip
_WRITE = (
    "bodyColumn", "messageIdColumn", "sessionIdColumn", "partitionKeyColumn", "writerName",
    "writerBatch",
)  # fmt: skip
# Spark puts these in by itself.
_SPARKS = frozenset({"path", "checkpointlocation", "queryname"})

# Where a fragment's reading begins: a word, or a position for each fragment.
Positions = str | dict[int, int]


class WrongOption(ValueError):
    """An option is missing, unknown, or has a value that it cannot have."""


class _Values:
    """Options by name, each asked for at most once."""

    def __init__(self, given: Mapping[str, str], allowed: tuple[str, ...]) -> None:
        spelled = {name.lower(): name for name in allowed}
        self._found: dict[str, str] = {}
        for name, value in given.items():
            key = name.lower()
            if key in _SPARKS:
                continue
            if key not in spelled:
                near = get_close_matches(key, spelled, 1)
                hint = f"; did you mean '{spelled[near[0]]}'?" if near else ""
                raise WrongOption(
                    f"unknown option '{name}'{hint} Allowed: {', '.join(sorted(allowed))}"
                )
            self._found[_ALIASES.get(key, key)] = value

    def text(self, name: str, default: str = "") -> str:
        return self._found.get(name.lower(), default)

    def is_given(self, name: str) -> bool:
        return name.lower() in self._found

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise WrongOption(f"option '{name}' is a number from {least} on, not '{text}'")
        return int(text)

    def choice(self, name: str, *values: str) -> str:
        text = self.text(name, values[0]).lower()
        if text not in values:
            raise WrongOption(f"option '{name}' is one of {', '.join(values)}, not '{text}'")
        return text

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, *(("true", "false") if default else ("false", "true"))) == "true"


@dataclass(frozen=True, slots=True)
class Place:
    """Which entity, and the way to it. The connection string is not shown."""

    connection_string: str = field(repr=False)
    entity: str
    http_endpoint: str = ""
    ca_certificate: str = ""
    timeout_s: float = 60.0

    def destination(self) -> Destination:
        """What the connection string says."""
        return read_connection_string(self.connection_string)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was asked for."""

    place: Place
    mode: str = "browse"
    reader_name: str = ""
    # Whether no name was meant: one that is given empty is.
    is_nameless_by_choice: bool = False
    starting: Positions = ""
    ending: Positions = LATEST
    starting_ms: int | None = None
    ending_ms: int | None = None
    messages_per_trigger: int = 0
    bytes_per_trigger: int = 0
    min_messages_per_trigger: int = 0
    max_trigger_delay_ms: int = DELAY_MS_DEFAULT
    min_partitions: int = 0
    records_per_partition: int = 0
    fragments_per_task: int = 0
    fail_on_data_loss: bool = True
    include_body: bool = True
    include_properties: bool = True


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer was asked for; columns by what they become."""

    place: Place
    columns: dict[str, str]
    writer_name: str = ""
    writer_batch: int = 0


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """What these options mean to a reader. Raises WrongOption."""
    values = _Values(given, _SHARED + _READ)
    starting_ms = _time("startingTimestamp", values)
    ending_ms = _time("endingTimestamp", values)
    if starting_ms is not None and values.text("startingOffsets"):
        raise WrongOption("give 'startingOffsets' or 'startingTimestamp', not both")
    if ending_ms is not None and values.text("endingOffsets"):
        raise WrongOption("give 'endingOffsets' or 'endingTimestamp', not both")
    ending = _positions("endingOffsets", values, LATEST)
    if ending == EARLIEST:
        raise WrongOption("option 'endingOffsets' is 'latest' or JSON, not 'earliest'")
    options = ReadOptions(
        place=_place(values, is_written=False),
        mode=values.choice("mode", "browse", CONSUME),
        reader_name=values.text("readerName"),
        is_nameless_by_choice=values.is_given("readerName") and not values.text("readerName"),
        starting=_positions("startingOffsets", values, ""),
        ending=ending,
        starting_ms=starting_ms,
        ending_ms=ending_ms,
        messages_per_trigger=values.number("maxMessagesPerTrigger", 0),
        bytes_per_trigger=values.number("maxBytesPerTrigger", 0),
        min_messages_per_trigger=values.number("minMessagesPerTrigger", 0),
        max_trigger_delay_ms=_span("maxTriggerDelay", values)
        or values.number("maxTriggerDelayMs", DELAY_MS_DEFAULT),
        min_partitions=values.number("minPartitions", 0),
        records_per_partition=values.number("maxRecordsPerPartition", 0),
        fragments_per_task=values.number("fragmentsPerTask", 0),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        include_body=values.flag("includeBody", True),
        include_properties=values.flag("includeProperties", True),
    )
    if options.mode == CONSUME:
        _check_consuming(options, values)
    if len(options.reader_name) > NAME_MAX:
        raise WrongOption(f"option 'readerName' has at most {NAME_MAX} characters")
    return options


def _check_consuming(options: ReadOptions, values: _Values) -> None:
    if not options.reader_name:
        raise WrongOption("mode 'consume' needs a 'readerName': batches are reserved under it")
    for name in ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"):
        if values.text(name) and values.text(name).lower() != EARLIEST:
            raise WrongOption(
                f"mode 'consume' takes the messages that are there and those that come, "
                f"the oldest first: it has no '{name}'"
            )
    if options.bytes_per_trigger or options.min_messages_per_trigger:
        raise WrongOption("mode 'consume' is limited by 'maxMessagesPerTrigger' only")


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """What these options mean to a writer. Raises WrongOption."""
    values = _Values(given, _SHARED + _WRITE)
    columns = {
        target: values.text(f"{target}Column", target)
        for target in ("body", "messageId", "sessionId", "partitionKey")
    }
    options = WriteOptions(
        place=_place(values, is_written=True),
        columns=columns,
        writer_name=values.text("writerName"),
        writer_batch=values.number("writerBatch", 0, least=0),
    )
    if options.writer_batch and not options.writer_name:
        raise WrongOption("option 'writerBatch' needs the 'writerName' whose batch it is")
    return options


def _place(values: _Values, *, is_written: bool) -> Place:
    text = values.text("connectionString")
    if not text:
        raise WrongOption("option 'connectionString' is missing")
    try:
        named = read_connection_string(text).entity
    except ValueError as error:
        raise WrongOption(f"option 'connectionString': {error}") from None
    endpoint = values.text("httpEndpoint")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise WrongOption("option 'httpEndpoint' is an http:// or https:// address")
    return Place(
        text,
        _entity(values, named, is_written=is_written),
        endpoint.rstrip("/"),
        values.text("caCertificate"),
        float(values.number("timeoutSeconds", 60)),
    )


def _entity(values: _Values, named: str | None, *, is_written: bool) -> str:
    queue, topic = values.text("queue"), values.text("topic")
    subscription = values.text("subscription")
    sub_queue = values.choice("subQueue", "", "deadletter", "transferdeadletter")
    if is_written and (subscription or sub_queue):
        raise WrongOption("a writer names a 'queue' or a 'topic', and no part of it")
    if subscription and not topic:
        raise WrongOption("option 'subscription' needs the 'topic' that it belongs to")
    if topic and not subscription and not is_written:
        raise WrongOption("a topic is read through one of its subscriptions: give 'subscription'")
    if bool(queue) + bool(topic) > 1:
        raise WrongOption("give 'queue' or 'topic', not both")
    entity = f"{topic}/subscriptions/{subscription}" if subscription else queue or topic
    entity = entity or named or ""
    if not entity:
        raise WrongOption("give a 'queue', or a 'topic' and a 'subscription'")
    suffixes = {
        "": "",
        "deadletter": "/$deadletterqueue",
        "transferdeadletter": "/$transfer/$deadletterqueue",
    }
    return entity + suffixes[sub_queue]


def _time(name: str, values: _Values) -> int | None:
    """Milliseconds since 1970, or ISO 8601 with a time zone."""
    text = values.text(name)
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return to_ms(datetime.fromisoformat(text))
    except ValueError:
        raise WrongOption(
            f"option '{name}' is a time like 2026-01-31T12:00:00+00:00, or milliseconds "
            f"since 1970, not '{text}'"
        ) from None


def _span(name: str, values: _Values) -> int:
    """A span as Spark's other sources write it; 0 where there is none."""
    text = values.text(name)
    if not text:
        return 0
    found = re.fullmatch(r"(\d{1,9}) *(ms|s|m|h)", text.strip().lower(), re.ASCII)
    if found is None or not int(found[1]):
        raise WrongOption(f"option '{name}' is a span like 500ms, 30s, 15m or 1h, not '{text}'")
    return int(found[1]) * _UNITS_MS[found[2]]


def _positions(name: str, values: _Values, default: str) -> Positions:
    text = values.text(name, default)
    if text.lower() in ("", EARLIEST, LATEST):
        return text.lower()
    try:
        found = json.loads(text)
        # A whole sequence number says its fragment once more.
        return {int(fragment): int(number) & COUNTER_MASK for fragment, number in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise WrongOption(
            f"option '{name}' is 'earliest', 'latest' or JSON of fragments and sequence numbers "
            f'like {{"1": 120, "2": 0}}, not \'{text}\''
        ) from None
