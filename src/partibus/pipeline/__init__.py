"""Spark: queues and subscriptions as DataFrames, both ways.

A client of the broker's HTTP door; of the rooms behind it only the pure rules of routing are
used. What needs PySpark is imported when it is asked for, so that the rest of partibus works
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partibus.pipeline.lag import LagListener
    from partibus.pipeline.partitioning import arranged, fragment_of
    from partibus.pipeline.session import local_session
    from partibus.pipeline.source import ServiceBusDataSource

__all__ = ["LagListener", "ServiceBusDataSource", "arranged", "fragment_of", "local_session"]

_HOMES = {
    "LagListener": "partibus.pipeline.lag",
    "ServiceBusDataSource": "partibus.pipeline.source",
    "arranged": "partibus.pipeline.partitioning",
    "fragment_of": "partibus.pipeline.partitioning",
    "local_session": "partibus.pipeline.session",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
