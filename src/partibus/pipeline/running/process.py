"""The process that runs the pipelines of a namespace, from its start by the supervisor to its end.

It tells the supervisor that it lives, ends in order on SIGTERM and at once when the supervisor is
gone. When Spark itself is gone it ends too, and is started again with the queries where they were.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline.java import JavaMissing
from partibus.pipeline.running.pipeline import RunningPipeline
from partibus.pipeline.running.query import Surroundings, start_query
from partibus.pipeline.running.waiting import waiting
from partibus.pipeline_files import FAILED, Declared, PipelineFiles, PipelineState
from partibus.telemetry import start_logging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TURN_S = 1.0
MS_PER_S = 1000
EXIT_ORPHANED = 9
EXIT_FAILED = 1
# What is said to the supervisor: as nodes do.
READY = b"R"
ALIVE = b"."

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Queries share the cores fairly, instead of each batch waiting for all tasks of another.
    "spark.scheduler.mode": "FAIR",
}


def run_pipelines(data: Path, status_fd: int, lifeline_fd: int) -> int:
    """Run all pipelines until SIGTERM; returns the exit code."""
    files = PipelineFiles(data)
    declared = files.declared()
    if declared is None:
        return 0
    start_logging("pipelines", declared.log_level, declared.log_format)
    # What Spark, Java and functions print is for the log: standard output is the supervisor's.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for inherited in (status_fd, lifeline_fd):
        os.set_inheritable(inherited, False)
    threading.Thread(
        target=_end_with_supervisor, args=(lifeline_fd,), name="lifeline", daemon=True
    ).start()
    stop = threading.Event()
    # Ctrl-C is the supervisor's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.write(status_fd, ALIVE)
    try:
        spark = _session(declared)
    except (JavaMissing, RuntimeError) as error:
        log.error("Spark does not start error=%s", error)  # noqa: TRY400 - the text says it all
        failed = (_failed(each.name, str(error)) for each in declared.pipelines)
        files.tell(tuple(failed), _now_ms())
        return EXIT_FAILED
    # Spark has taken it for itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(status_fd, READY)
    return _run(declared, files, spark, stop, status_fd)


def _run(
    declared: Declared,
    files: PipelineFiles,
    spark: SparkSession,
    stop: threading.Event,
    status_fd: int,
) -> int:
    pipelines = [_pipeline(each, declared, files, spark) for each in declared.pipelines]
    log.info("pipelines begin pipelines=%d", len(pipelines))
    while not stop.is_set():
        for each in pipelines:
            # After each: Spark may take many seconds to start one.
            files.tell(tuple(each.state for each in pipelines), _now_ms())
            os.write(status_fd, ALIVE)
            # One after another: each start begins processes, for which Spark waits ten seconds.
            may_begin = not any(other.is_beginning for other in pipelines)
            if not _turn(each, files, spark, may_begin):
                log.error("Spark has ended")
                return EXIT_FAILED
        files.tell(tuple(each.state for each in pipelines), _now_ms())
        stop.wait(TURN_S)
    log.info("pipelines end")
    for each in pipelines:
        each.stop()
    spark.stop()
    return 0


def _pipeline(
    description: PipelineDescription, declared: Declared, files: PipelineFiles, spark: SparkSession
) -> RunningPipeline:
    where = Surroundings(
        spark=spark,
        connection_string=declared.connection_string,
        checkpoint=files.checkpoint(description.name),
        directory=files.directory.parent,
    )
    start = partial(start_query, description, where)
    asking = partial(waiting, description, declared.connection_string, where.checkpoint)
    return RunningPipeline(description, start, files.order(description.name), asking)


def _session(declared: Declared) -> SparkSession:
    if declared.python_path:
        # For this process, and by the variable for the workers that Spark starts.
        sys.path.insert(0, declared.python_path)
        paths = [declared.python_path, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # Here, because it loads all of Spark.
    from partibus.pipeline.session import local_session

    # What is wrong with a statement is logged once, by us, and not with its whole plan.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return local_session("partibus-pipelines", settings=SETTINGS)


def _turn(
    pipeline: RunningPipeline, files: PipelineFiles, spark: SparkSession, may_begin: bool
) -> bool:
    """Look after one pipeline; False when Spark is gone."""
    from py4j.protocol import Py4JError

    try:
        order = files.order(pipeline.description.name)
        pipeline.turn(order, _now_ms(), may_begin=may_begin)
    except (Py4JError, OSError):
        if _is_there(spark):
            raise
    return _is_there(spark)


def _is_there(spark: SparkSession) -> bool:
    """Whether Spark's Java process answers and has not given up."""
    from py4j.protocol import Py4JError

    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _failed(name: str, error: str) -> PipelineState:
    return PipelineState(name=name, state=FAILED, since_ms=_now_ms(), failures=1, error=error)


def _now_ms() -> int:
    return round(time.time() * MS_PER_S)


def _end_with_supervisor(lifeline_fd: int) -> None:
    """Wait for the end of the lifeline, which nobody writes to. Java ends with this process."""
    os.read(lifeline_fd, 1)
    os._exit(EXIT_ORPHANED)
