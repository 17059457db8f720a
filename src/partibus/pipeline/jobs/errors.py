"""What a job fails with, told in one line whoever noticed it: we, the broker, or Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from partibus.pipeline.door import DoorRefused, DoorUnavailable
from partibus.pipeline.options import WrongOption

# An error of ours that Spark has wrapped in its own, with the traces of two languages.
_OURS = re.compile(r"(?:DoorRefused|DoorUnavailable|WrongOption|WrongSchema|DataLost): (.+)")
_TEXT_MAX = 500


class JobFailed(Exception):
    """A job that could not do what it was told; nothing is half done unless it says so."""


class Discrepancy(Exception):
    """A check that found something wrong: the job was done, and its answer is no."""


@contextmanager
def told() -> Iterator[None]:
    """Turn what Spark or the broker say into a JobFailed of one line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (DoorRefused, DoorUnavailable, WrongOption) as error:
        raise JobFailed(str(error)) from error
    except (PySparkException, Py4JJavaError) as error:
        raise JobFailed(_line(str(error))) from error


def _line(text: str) -> str:
    found = _OURS.findall(text)
    line = found[0] if found else text.strip().partition("\n")[0]
    return str(line).strip()[:_TEXT_MAX]
