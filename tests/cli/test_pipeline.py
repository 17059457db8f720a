"""Jobs from the shell: what is wrong is told before anything is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.testing.serve import LiveBroker


def test_S3_an_entity_that_is_not_there_is_told(
    partibus: Callable[..., Any], broker: LiveBroker, tmp_path: Any
) -> None:
    pytest.importorskip("pyspark")
    missing = partibus(
        "pipeline", "capture", "there-is-none", str(tmp_path), "--master", "local[1]"
    )
    assert missing.code in (8, 9)
    assert "there-is-none" in missing.err
    assert "Traceback" not in missing.err
