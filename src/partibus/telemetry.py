"""Log lines: one for each thing that an operator would act on, in a shape that can be searched.

A line is time, level, process and text; the text ends in key=value pairs. Bodies of messages and
access keys are never logged. Only runtime and the doors log; the pure rooms count.
"""

from __future__ import annotations

import logging
import sys
import time

# How often at most a line is logged that anybody can cause, without any key.
SELDOM_S = 10.0
LEVELS = ("debug", "info", "warning", "error")
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(processName)s %(name)s: %(message)s"
_TIME = "%Y-%m-%dT%H:%M:%S"


def start_logging(process_name: str, level: str = "info") -> None:
    """Log to standard error, with this name for the process."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _OneLine(_FORMAT, _TIME)
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(_Named(process_name))
    root = logging.getLogger("partibus")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class Seldom:
    """A log that strangers could fill: one line in a while, which counts those left out."""

    def __init__(self, log: logging.Logger, every_s: float = SELDOM_S) -> None:
        self._log = log
        self._every_s = every_s
        self._next_s = 0.0
        self._left_out = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log this, unless something was logged a moment ago."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        self._log.warning(f"{text} left_out=%d", *arguments, self._left_out)
        self._next_s = now_s + self._every_s
        self._left_out = 0


class _Named(logging.Filter):
    """Gives every line the name of its process: supervisor, node-0, node-1."""

    def __init__(self, process_name: str) -> None:
        super().__init__()
        self._process_name = process_name

    def filter(self, record: logging.LogRecord) -> bool:
        record.processName = self._process_name
        return True


class _OneLine(logging.Formatter):
    """Keeps what others said (names, error texts) from starting a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
