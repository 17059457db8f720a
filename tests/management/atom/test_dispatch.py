"""Every path has its methods, and refuses the others by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.management.atom.dispatch import routes
from partibus.testing.atom_client import ask
from partibus.testing.http_world import World, in_world

WHOLE = {"get", "put", "delete"}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/q", WHOLE),
        ("/t/subscriptions/s", WHOLE),
        ("/t/subscriptions/s/rules/r", WHOLE),
        ("/t/subscriptions", {"get"}),
        ("/t/subscriptions/s/rules", {"get"}),
        ("/$Resources/queues", {"get"}),
        ("/$namespaceinfo", {"get"}),
    ],
)
def test_A2_other_methods_are_refused_and_those_there_are_named(
    path: str, allowed: set[str], tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        assert len(routes(world.door.service)) == 1
        for method in {"get", "put", "post", "delete", "patch"} - allowed:
            answer = await ask(world, method.upper(), path)
            assert (answer.status, answer.detail[:13]) == (405, "SubCode=40500")
            assert set(answer.headers["allow"].split(", ")) >= allowed
        assert (await ask(world, "HEAD", path)).body == ""

    in_world(tmp_path, use)
