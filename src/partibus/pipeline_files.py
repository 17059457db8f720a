"""The files by which a namespace and the process that runs its pipelines know of each other.

`partibus serve` writes down which pipelines there are and how the broker is reached; the process
writes how they are, once a second; any node reads that, and writes down whether a pipeline is to be
paused, which holds over restarts. Every file is replaced whole, so a reader sees the old one or the
new one. Checkpoints are Spark's own and lie beside them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from partibus.broker.pipelines import PipelineDescription

DIRECTORY_NAME = "pipelines"
DECLARED_NAME = "declared.json"
STATES_NAME = "states.json"
READERS_NAME = "readers.json"
# A process that has told nothing for so long is not there; starting one query may take a while.
SILENT_MS = 30_000

STARTING = "starting"
RUNNING = "running"
FAILED = "failed"
PAUSED = "paused"
FINISHED = "finished"
DOWN = "down"
# Not declared any more, while the broker still keeps messages for its reader.
REMOVED = "removed"

T = TypeVar("T")


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told: the pipelines, and the way to the broker, which has a key in it."""

    pipelines: tuple[PipelineDescription, ...]
    connection_string: str
    # Where the modules of functions lie besides where Python looks anyway.
    python_path: str = ""
    log_level: str = "info"
    log_format: str = "text"


class Lag(msgspec.Struct, frozen=True):
    """How many messages of a fragment wait to be read."""

    partition: int
    messages: int


class PipelineState(msgspec.Struct, frozen=True, kw_only=True):
    """How a pipeline is."""

    name: str
    state: str = STARTING
    since_ms: int = 0
    # What was read since the process began, and per second over the last minute.
    messages: int = 0
    rate: float = 0.0
    # After the last batch.
    lag: tuple[Lag, ...] = ()
    batch: int = -1
    batch_ms: int = 0
    # How often it failed since the process began, and why the last time.
    failures: int = 0
    error: str = ""

    @property
    def lag_messages(self) -> int:
        """Over all fragments."""
        return sum(each.messages for each in self.lag)


class States(msgspec.Struct, frozen=True):
    """How all pipelines are, and when that was."""

    written_ms: int
    states: tuple[PipelineState, ...]


class Reading(msgspec.Struct, frozen=True):
    """Under which name a pipeline reads what: messages are kept or reserved for it."""

    pipeline: str
    source: str
    reader: str
    consumes: bool = False


class Order(msgspec.Struct, frozen=True):
    """What an operator wants of a pipeline. The number tells a new order from an old one."""

    number: int = 0
    paused: bool = False


class PipelineFiles:
    """The files in one data directory."""

    def __init__(self, data: Path) -> None:
        self.directory = data / DIRECTORY_NAME

    def checkpoint(self, name: str) -> Path:
        """Where Spark keeps how far a pipeline is."""
        return self.directory / name.lower() / "checkpoint"

    # What there is ----------------------------------------------------------------------------

    def declare(self, declared: Declared) -> None:
        """These are the pipelines from now on; how they are is not known yet."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        (self.directory / STATES_NAME).unlink(missing_ok=True)
        # First, so that no reader is ever forgotten.
        known = dict.fromkeys([*self._readings(), *map(_reading, declared.pipelines)])
        self._write(READERS_NAME, [each for each in known if each.reader])
        self._write(DECLARED_NAME, declared)

    def forget(self) -> None:
        """There are no pipelines. Their checkpoints and orders stay, in case they come back."""
        for name in (DECLARED_NAME, STATES_NAME):
            (self.directory / name).unlink(missing_ok=True)

    def declared(self) -> Declared | None:
        """What was declared; None where there are no pipelines."""
        return self._read(DECLARED_NAME, Declared)

    def left_over(self, pipeline: str = "") -> list[Reading]:
        """What pipelines, or one of them, have read under a name and do not any more."""
        declared = self.declared()
        used = {_key(_reading(each)) for each in declared.pipelines} if declared else set()
        return [
            each
            for each in self._readings()
            if _key(each) not in used and pipeline.lower() in ("", each.pipeline.lower())
        ]

    def remove(self, left_over: list[Reading]) -> None:
        """These readers are no more; of who is not declared, nothing else is left either."""
        declared = self.declared()
        names = {each.name.lower() for each in declared.pipelines} if declared else set()
        for name in {each.pipeline.lower() for each in left_over} - names:
            shutil.rmtree(self.directory / name, ignore_errors=True)
            (self.directory / _order_name(name)).unlink(missing_ok=True)
        self._write(READERS_NAME, [each for each in self._readings() if each not in left_over])

    def _readings(self) -> list[Reading]:
        return self._read(READERS_NAME, list[Reading]) or []

    # How they are -----------------------------------------------------------------------------

    def tell(self, states: tuple[PipelineState, ...], now_ms: int) -> None:
        """How all of them are now."""
        self._write(STATES_NAME, States(now_ms, states))

    def states(self, now_ms: int) -> tuple[PipelineState, ...]:
        """How each pipeline is that was declared."""
        declared = self.declared()
        if declared is None:
            return ()
        told = self._read(STATES_NAME, States)
        known = {each.name: each for each in told.states} if told else {}
        is_silent = told is not None and now_ms - told.written_ms > SILENT_MS
        found = (known.get(each.name, PipelineState(name=each.name)) for each in declared.pipelines)
        return tuple(msgspec.structs.replace(each, state=DOWN) if is_silent else each
                     for each in found)  # fmt: skip

    # What is wanted of them -------------------------------------------------------------------

    def order(self, name: str) -> Order:
        """What is wanted of a pipeline."""
        return self._read(_order_name(name), Order) or Order()

    def give_order(self, name: str, *, paused: bool) -> None:
        """Pause a pipeline, or run it; one that has finished or failed then begins at once."""
        self._write(_order_name(name), Order(self.order(name).number + 1, paused))

    # Steps of the above -----------------------------------------------------------------------

    def _write(self, name: str, content: msgspec.Struct | list[Reading]) -> None:
        path = self.directory / name
        new = path.with_name(f"{name}.{os.getpid()}.new")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(msgspec.json.encode(content))
        new.replace(path)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            content = (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content, type=kind)


def _order_name(name: str) -> str:
    return f"{name.lower()}.order.json"


def _reading(pipeline: PipelineDescription) -> Reading:
    return Reading(pipeline.name, pipeline.source, pipeline.reader_name, pipeline.consumes)


def _key(reading: Reading) -> tuple[str, str, bool]:
    """What two are one by: readers have the case they were given."""
    return reading.source.lower(), reading.reader, reading.consumes
