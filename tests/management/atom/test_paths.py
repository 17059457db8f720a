"""What a path names."""

from __future__ import annotations

import pytest

from partibus.management.atom.paths import Kind, Target, read_path


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("q", Target(Kind.ENTITY, "q")),
        ("a/b/c", Target(Kind.ENTITY, "a/b/c")),
        ("", Target(Kind.ENTITY, "")),
        ("$Resources/queues", Target(Kind.ENTITIES, "queues")),
        ("$resources/Topics", Target(Kind.ENTITIES, "topics")),
        ("$namespaceInfo", Target(Kind.NAMESPACE)),
        ("t/Subscriptions", Target(Kind.SUBSCRIPTIONS, "t")),
        ("a/t/subscriptions/s", Target(Kind.SUBSCRIPTION, "a/t", "s")),
        ("t/subscriptions/s/rules", Target(Kind.RULES, "t", "s")),
        ("t/subscriptions/s/Rules/$Default", Target(Kind.RULE, "t", "s", "$Default")),
        ("t/subscriptions/rules", Target(Kind.SUBSCRIPTION, "t", "rules")),
        ("subscriptions", Target(Kind.ENTITY, "subscriptions")),
    ],
)
def test_a_path_names_its_target(path: str, target: Target) -> None:
    assert read_path(path) == target
