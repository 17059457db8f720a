"""How tests run: property tests are the same in every run, so a change is red or green.

With `-n` (make test) files run side by side, because tests with real clients mostly wait.
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
# What takes longest comes first when files run side by side: nobody waits for it at the end.
LONGEST = ("pipeline", "chaos", "conformance")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)
