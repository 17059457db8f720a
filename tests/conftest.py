"""How tests run: property tests are the same in every run, so a change is red or green."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "check",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))
