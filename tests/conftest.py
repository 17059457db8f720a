"""How tests run: property tests are the same in every run, so a change is red or green.

With `-n` (make test) files run side by side, because tests with real clients mostly wait. What
shares something dear stays together: one Spark session for all its tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "check",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))

TESTS = Path(__file__).parent
# Folders whose files run one after another, the longest first: nobody waits for them at the end.
TOGETHER = ("pipeline", "chaos")


# First, because the workers read the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests belong together, and begin with those that take longest."""
    for item in items:
        path = item.path.relative_to(TESTS)
        folder = path.parts[0]
        item.add_marker(pytest.mark.xdist_group(folder if folder in TOGETHER else str(path)))
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return TOGETHER.index(folder) if folder in TOGETHER else len(TOGETHER)
