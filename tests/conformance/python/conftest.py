"""Queues of both kinds in a live namespace, for the vendor's Python client."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from partibus.testing.serve import LiveBroker

_numbers = itertools.count()


@pytest.fixture
def new_queue(live_namespace: LiveBroker) -> Callable[..., str]:
    """Make a queue that no other test has used."""

    def make(**properties: Any) -> str:
        return live_namespace.create_queue(f"queue-{next(_numbers)}", **properties)

    return make


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, new_queue: Callable[..., str]) -> str:
    """A new queue of either kind."""
    return new_queue(enable_partitioning=request.param)


@pytest.fixture
def wrong_key_string(live_namespace: LiveBroker) -> str:
    """A connection string with a key that is not the namespace's."""
    return re.sub(
        "SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=", live_namespace.connection_string
    )
