"""The scripted service is imported by its name from every test beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted_service import ScriptedService


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as service:
        yield service
