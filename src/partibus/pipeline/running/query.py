"""Makes a streaming query of a pipeline's description, and starts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from partibus.broker.pipelines import DEAD_LETTERS, PipelineDescription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

# What a statement calls the messages of its source.
VIEW = "messages"
SUB_QUEUES = dict(zip(DEAD_LETTERS, ("transferdeadletter", "deadletter"), strict=True))


class PipelineWrong(Exception):
    """The pipeline cannot run as it was declared."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a pipeline runs."""

    spark: SparkSession
    connection_string: str
    checkpoint: Path
    # What a directory that is not absolute begins in.
    directory: Path


def start_query(pipeline: PipelineDescription, where: Surroundings) -> StreamingQuery:
    """Start it, where its checkpoint says it was. Whatever is wrong with it is raised."""
    # A session of its own: each pipeline has a view of this name, and may change settings.
    session = where.spark.newSession()
    frame = _reader(session, pipeline, where).load()
    if pipeline.watermark_ms:
        frame = frame.withWatermark("enqueuedTime", f"{pipeline.watermark_ms} milliseconds")
    if pipeline.sql:
        frame.createOrReplaceTempView(VIEW)
        result = session.sql(pipeline.sql)
    else:
        result = _result_of(load_function(pipeline.function), frame, pipeline.function)
    if not result.isStreaming:
        raise PipelineWrong(f"the result is not made of the source: read from {VIEW}")
    writer = _writer(result, pipeline, where)
    return writer.start()


def _reader(
    session: SparkSession, pipeline: PipelineDescription, where: Surroundings
) -> DataStreamReader:
    options = source_options(pipeline, where.connection_string)
    return session.readStream.format("servicebus").options(**options)


def source_options(pipeline: PipelineDescription, connection_string: str) -> dict[str, str]:
    """The options of `format("servicebus")` that read a pipeline's source."""
    entity = pipeline.source_entity
    options = {
        # What lay there before the pipeline was declared belongs to it.
        "startingOffsets": "earliest",
        # So does what consumers complete before it comes to it.
        "readerName": pipeline.reader_name,
        **pipeline.source_options,
        "connectionString": connection_string,
    }
    if "startingTimestamp" in pipeline.source_options:
        del options["startingOffsets"]
    topic, middle, subscription = _subscription(entity)
    if middle:
        options |= {"topic": topic, "subscription": subscription}
    else:
        options["queue"] = entity
    if entity != pipeline.source:
        options["subQueue"] = SUB_QUEUES[pipeline.source[len(entity) :].lower()]
    return options


def _subscription(entity: str) -> tuple[str, str, str]:
    place = entity.lower().rfind("/subscriptions/")
    if place < 0:
        return entity, "", ""
    middle = len("/subscriptions/")
    return entity[:place], entity[place : place + middle], entity[place + middle :]


def _writer(
    result: DataFrame, pipeline: PipelineDescription, where: Surroundings
) -> DataStreamWriter:
    writer = result.writeStream.queryName(pipeline.name).option(
        "checkpointLocation", str(where.checkpoint)
    )
    if pipeline.trigger_ms:
        writer = writer.trigger(processingTime=f"{pipeline.trigger_ms} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    if pipeline.target:
        # Queues and topics have their names in common, and the broker knows which it is.
        return writer.format("servicebus").options(
            connectionString=where.connection_string, queue=pipeline.target
        )
    return writer.format("parquet").option("path", str(where.directory / pipeline.target_directory))


def load_function(name: str) -> Callable[[DataFrame], DataFrame]:
    """The function that `module:function` names."""
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise PipelineWrong(
            f"there is no module {error.name!r}; modules are looked for where Python has its "
            "packages, and beside the configuration file"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise PipelineWrong(f"module {module_name!r} has no function {function_name!r}")
    found: Callable[[DataFrame], DataFrame] = function
    return found


def _result_of(
    function: Callable[[DataFrame], DataFrame], frame: DataFrame, name: str
) -> DataFrame:
    result = function(frame)
    if not hasattr(result, "writeStream"):
        raise PipelineWrong(f"{name} returned {type(result).__name__}, not a DataFrame")
    return result
