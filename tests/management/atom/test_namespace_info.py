"""What a namespace says of itself."""

from __future__ import annotations

from pathlib import Path

from partibus.testing.atom_client import ask, queue
from partibus.testing.http_world import World, in_world


def test_the_namespace_says_what_it_is(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        found = await ask(world, "GET", "/$namespaceinfo")
        assert found.description["Name"] == "test"
        assert found.description["MessagingSKU"] == "Standard"
        assert found.description["NamespaceType"] == "Messaging"
        assert (await ask(world, "PUT", "/$namespaceinfo", queue())).status == 405

    in_world(tmp_path, use)


def test_a_premium_namespace_says_how_many_fragments_its_entities_have(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        found = (await ask(world, "GET", "/$NamespaceInfo")).description
        assert (found["MessagingSKU"], found["MessagingUnits"]) == ("Premium", "2")

    in_world(tmp_path, use, profile="premium")
