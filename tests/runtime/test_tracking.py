"""Tracking texts: what people and support tools search for."""

from __future__ import annotations

import re

from partibus.runtime.entropy import Entropy
from partibus.runtime.tracking import TrackingTexts
from partibus.testing.clock import ManualClock


def test_a_text_ends_with_id_tracker_and_time() -> None:
    texts = TrackingTexts("ns", 3, ManualClock(), Entropy())
    text = texts.text("It failed.", "q")
    assert re.fullmatch(
        r"It failed\. TrackingId:[0-9a-f-]{36}_G3, SystemTracker:ns:Queue:q, Timestamp:[\d:T-]+",
        text,
    )
    assert "SystemTracker:gateway" in texts.text("It failed.")
