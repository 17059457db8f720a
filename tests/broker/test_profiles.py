"""What each kind of namespace allows (P6, P7, P9)."""

from __future__ import annotations

import pytest

from partibus.broker.profiles import DEFAULT_PROFILE, PROFILES, profile_of


@pytest.mark.parametrize("name", ["basic", "standard"])
def test_partitioned_entities_have_sixteen_fragments_of_one_to_five_gigabytes(name: str) -> None:
    profile = profile_of(name)
    assert profile.fragments == 16
    assert profile.sizes_mb == (1024, 2048, 3072, 4096, 5120)
    assert (profile.partitioned_max, profile.entities_max) == (100, 10_000)


def test_a_premium_namespace_says_how_many_fragments_every_entity_has() -> None:
    assert profile_of("premium").fragments == 2
    assert profile_of("premium", 4).fragments == 4
    assert profile_of("premium", 4).always_partitioned
    assert not profile_of("premium", 1).always_partitioned


def test_the_default_is_one_of_the_profiles() -> None:
    assert DEFAULT_PROFILE in PROFILES
