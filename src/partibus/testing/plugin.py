"""The pytest plugin: a broker for the tests of applications, as a fixture.

pytest imports this module wherever partibus is installed, so it imports nothing heavy at the top:
the broker is imported when a test first asks for it. See docs/TESTING.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from partibus.testing.namespace import Namespace


@pytest.fixture
def servicebus_namespace() -> Iterator[Namespace]:
    """A Service Bus namespace of the test's own, in this process, with messages in memory."""
    from partibus.testing.namespace import Namespace

    with Namespace() as namespace:
        yield namespace


@pytest.fixture
def durable_servicebus_namespace(tmp_path: Path) -> Iterator[Namespace]:
    """The same with messages on disk, below tmp_path: they survive restart()."""
    from partibus.testing.namespace import Namespace

    with Namespace(tmp_path) as namespace:
        yield namespace
