"""Log lines: one for each thing that an operator would act on, in a shape that can be searched.

A line is time, level, process and text; the text ends in key=value pairs, which are fields of
their own where lines are JSON. Bodies of messages and access keys are never logged. Only runtime
and the doors log; the pure rooms count.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

# How often at most a line is logged that anybody can cause, without any key.
SELDOM_S = 10.0
# Refusals are logged one by one, so many at once and so many a second; the rest is counted.
REFUSALS_AT_ONCE = 100
REFUSALS_PER_S = 10.0
LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(processName)s %(name)s: %(message)s"
_TIME = "%Y-%m-%dT%H:%M:%S"
# What log lines are made of: `key=%d` is a field, `%s` without a key a part of the text.
_PLACE = re.compile(r"(?:(?P<space> ?)(?P<key>\w+)=)?(?P<place>%[-#0 +]*[\d.]*[a-zA-Z])|%%")
_OWN = frozenset(("time", "level", "process", "logger", "text", "exception"))


def start_logging(process_name: str, level: str = "info", log_format: str = "text") -> None:
    """Log to standard error, with this name for the process."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonLines(datefmt=_TIME) if log_format == "json" else _OneLine(_FORMAT, _TIME)
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(_Named(process_name))
    own = logging.getLogger("partibus")
    own.handlers = [handler]
    own.setLevel(level.upper())
    own.propagate = False
    # What the event loop and libraries have to say, which is not little where they are wrong.
    others = logging.getLogger()
    others.handlers = [handler]
    others.setLevel(logging.WARNING)


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


class Rationed:
    """A log of what clients cause one by one: some at once, a few a second, the rest counted.

    On level debug nothing is left out.
    """

    def __init__(
        self,
        log: logging.Logger,
        at_once: int = REFUSALS_AT_ONCE,
        per_s: float = REFUSALS_PER_S,
    ) -> None:
        self._log = log
        self._at_once = at_once
        self._per_s = per_s
        self._left = float(at_once)
        self._filled_s = time.monotonic()
        self._left_out = 0

    def info(self, text: str, *arguments: object) -> None:
        """Log this, while there is some of the ration left."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        now_s = time.monotonic()
        self._left = min(self._at_once, self._left + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        if self._left < 1 and not self._log.isEnabledFor(logging.DEBUG):
            self._left_out += 1
            return
        self._left -= 1
        if self._left_out:
            self._log.info("refusals not logged left_out=%d", self._left_out)
            self._left_out = 0
        self._log.info(text, *arguments)


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


class _JsonLines(logging.Formatter):
    """One JSON object a line; what the text has as key=value is a field of its own."""

    def format(self, record: logging.LogRecord) -> str:
        text, fields = _told(record)
        line: dict[str, object] = {
            "time": f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": record.processName,
            "logger": record.name,
            "text": text,
        }
        line |= fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _told(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The text of a line without its fields, and these."""
    arguments = record.args
    if not isinstance(arguments, tuple) or not isinstance(record.msg, str):
        return record.getMessage(), {}
    fields: dict[str, object] = {}
    left = iter(arguments)

    def tell(found: re.Match[str]) -> str:
        if found["place"] is None:
            return "%"
        value = next(left)
        key = found["key"]
        if key is None or key in _OWN:
            return found[0] % (value,)
        is_plain = value is None or isinstance(value, (str, int, float, bool))
        fields[key] = value if is_plain else found["place"] % (value,)
        return ""

    try:
        return _PLACE.sub(tell, record.msg), fields
    except (StopIteration, TypeError, ValueError):
        # A line of some library's that is made in another way.
        return record.getMessage(), {}
