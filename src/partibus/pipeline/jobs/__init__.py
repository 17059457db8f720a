"""Jobs on whole entities: capture, replay, audit, plan, report, migrate.

Each is a function of a Spark session and what it works on, and returns what it did; the command
line is one of its callers. What needs PySpark is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import Discrepancy, JobFailed

if TYPE_CHECKING:
    from partibus.pipeline.jobs.audit import audit
    from partibus.pipeline.jobs.capture import capture
    from partibus.pipeline.jobs.migrate import migrate
    from partibus.pipeline.jobs.plan import plan
    from partibus.pipeline.jobs.replay import replay
    from partibus.pipeline.jobs.report import report

__all__ = [
    "Broker",
    "Discrepancy",
    "JobFailed",
    "audit",
    "capture",
    "migrate",
    "plan",
    "replay",
    "report",
]

_JOBS = ("audit", "capture", "migrate", "plan", "replay", "report")


def __getattr__(name: str) -> object:
    if name not in _JOBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{name}"), name)
    # The module of a job has its name; who asks for the job means the function.
    globals()[name] = found
    return found
