"""Pipelines of a namespace: what one may be declared as.

A pipeline reads one entity, makes something of its messages by SQL or a function, and writes it to
an entity or a directory. Here its properties are read and checked; whether its entities exist is
the catalog's to say, and what Spark makes of its SQL shows when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from partibus.broker.durations import DAY_MS, SECOND_MS, parse_duration
from partibus.broker.names import check_plain_name
from partibus.broker.properties import InvalidDescription, Plain, unknown_property

PIPELINE_NAME_MAX = 64
SQL_CHARACTERS_MAX = 100_000
TRIGGER_DEFAULT_MS = 5 * SECOND_MS
TRIGGER_LEAST_MS = 100
TRIGGER_MOST_MS = DAY_MS
AVAILABLE_NOW = "AvailableNow"

PROPERTIES = (
    "Source", "SourceOptions", "Watermark", "Sql", "Function", "Target", "TargetDirectory",
    "Trigger",
)  # fmt: skip
# What a reader can be told besides what it reads. Where it is and with which key is known here.
SOURCE_OPTIONS = (
    "startingOffsets", "startingTimestamp", "maxMessagesPerTrigger", "maxBytesPerTrigger",
    "minMessagesPerTrigger", "maxTriggerDelay", "maxTriggerDelayMs", "minPartitions",
    "maxRecordsPerPartition", "fragmentsPerTask", "failOnDataLoss", "includeBody",
    "includeProperties", "mode", "readerName",
)  # fmt: skip

# The longest first: one ends in the other.
DEAD_LETTERS = ("/$transfer/$deadletterqueue", "/$deadletterqueue")
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


class PipelineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline as it was declared."""

    name: str
    # An entity as clients address it: orders, orders/$deadletterqueue, news/subscriptions/all.
    source: str
    source_options: dict[str, str] = {}
    # How late a message may be for its window; 0: windows are of no concern.
    watermark_ms: int = 0
    # One of the two.
    sql: str = ""
    function: str = ""
    # One of the two.
    target: str = ""
    target_directory: str = ""
    # 0: once through what there is, and no more.
    trigger_ms: int = TRIGGER_DEFAULT_MS

    @property
    def source_entity(self) -> str:
        """The source without the part of it that holds dead letters."""
        for ending in DEAD_LETTERS:
            if self.source.lower().endswith(ending):
                return self.source[: -len(ending)]
        return self.source

    @property
    def reader_name(self) -> str:
        """The name under which it reads; empty where it was told to do without."""
        return self.source_options.get("readerName", f"pipeline-{self.name.lower()}")

    @property
    def consumes(self) -> bool:
        """Whether it takes its messages out of the source."""
        return self.source_options.get("mode", "").lower() == "consume"


def check_pipeline_name(name: object) -> str:
    """The name of a pipeline, if it may be one; it is a file's name, too."""
    checked = check_plain_name(name, PIPELINE_NAME_MAX)
    if checked.startswith("."):
        raise InvalidDescription("Name", name, "a name that begins with no dot")
    return checked


def read_pipeline(name: str, properties: Mapping[str, Plain]) -> PipelineDescription:
    """The pipeline that these properties declare."""
    for given, value in properties.items():
        if given not in PROPERTIES:
            raise unknown_property(given, value, PROPERTIES)
    _one_of(properties, "Sql", "Function")
    _one_of(properties, "Target", "TargetDirectory")
    return PipelineDescription(
        name=check_pipeline_name(name),
        source=_source(properties),
        source_options=_source_options(properties.get("SourceOptions", {})),
        watermark_ms=_duration("Watermark", properties.get("Watermark", "PT0S"), 0),
        sql=_sql(properties["Sql"]) if "Sql" in properties else "",
        function=_function(properties["Function"]) if "Function" in properties else "",
        target=_text("Target", properties.get("Target", "")),
        target_directory=_text("TargetDirectory", properties.get("TargetDirectory", "")),
        trigger_ms=_trigger(properties.get("Trigger")),
    )


def _one_of(properties: Mapping[str, Plain], first: str, second: str) -> None:
    if (first in properties) == (second in properties):
        found = "both are given" if first in properties else "neither is given"
        raise InvalidDescription(
            first, None, "", f"a pipeline has {first} or {second}, and {found}"
        )
    chosen = first if first in properties else second
    if not properties[chosen]:
        raise InvalidDescription(chosen, properties[chosen], "something that is not empty")


def _source(properties: Mapping[str, Plain]) -> str:
    source = _text("Source", properties.get("Source", ""))
    if not source:
        raise InvalidDescription(
            "Source", None, "", "a queue or subscription to read from is needed here"
        )
    return source.strip("/")


def _source_options(value: Plain) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidDescription("SourceOptions", value, "an object with options of the reader")
    spelled = {each.lower(): each for each in SOURCE_OPTIONS}
    options: dict[str, str] = {}
    for name, given in value.items():
        if name.lower() not in spelled:
            wrong = unknown_property(name, given, SOURCE_OPTIONS)
            raise InvalidDescription(f"SourceOptions.{name}", given, wrong.allowed, wrong.problem)
        if isinstance(given, bool):
            given = "true" if given else "false"
        if not isinstance(given, (str, int)):
            raise InvalidDescription(
                f"SourceOptions.{name}", given, "text, a whole number, true or false"
            )
        options[spelled[name.lower()]] = str(given)
    return options


def _sql(value: Plain) -> str:
    """Text, or a list of lines: JSON has no text of several lines."""
    given = value if isinstance(value, list) else [value]
    lines = [line for line in given if isinstance(line, str)]
    if len(lines) < len(given):
        raise InvalidDescription("Sql", value, "a statement as text, or as a list of its lines")
    sql = "\n".join(lines)
    if len(sql) > SQL_CHARACTERS_MAX:
        raise InvalidDescription("Sql", "...", f"at most {SQL_CHARACTERS_MAX} characters")
    return sql


def _function(value: Plain) -> str:
    if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
        raise InvalidDescription("Function", value, "module:function, a DataFrame to a DataFrame")
    return value


def _text(name: str, value: Plain) -> str:
    if not isinstance(value, str):
        raise InvalidDescription(name, value, "text")
    return value


def _trigger(value: Plain) -> int:
    if value is None:
        return TRIGGER_DEFAULT_MS
    if isinstance(value, str) and value.lower() == AVAILABLE_NOW.lower():
        return 0
    return _duration("Trigger", value, TRIGGER_LEAST_MS, f", or {AVAILABLE_NOW}")


def _duration(name: str, value: Plain, least_ms: int, more: str = "") -> int:
    found = parse_duration(value) if isinstance(value, str) else None
    if found is None or not least_ms <= found <= TRIGGER_MOST_MS:
        raise InvalidDescription(name, value, f"a duration of at most a day, such as PT10S{more}")
    return found
