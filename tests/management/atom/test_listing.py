"""Lists in pages: every entity once, a next link only where there is more."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.testing.atom_client import ask, entry, queue
from partibus.testing.http_world import World, in_world


async def links(world: World, path: str) -> tuple[list[str], list[str]]:
    """The titles on a page, and where its links lead."""
    answer = await ask(world, "GET", path)
    assert answer.status == 200
    return answer.titles, [each.attributes["href"] for each in answer.root.each("link")]


def test_pages_follow_each_other_until_all_were_seen(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for name in ("d", "B", "a", "c", "e"):
            await ask(world, "PUT", f"/{name}", queue())
        await ask(world, "PUT", "/topic", entry("TopicDescription"))
        seen: list[str] = []
        path = "/$Resources/queues?$top=2"
        pages = 0
        while path:
            titles, found = await links(world, path)
            seen += titles
            pages += 1
            assert len(found) <= 2
            path = found[1].removeprefix("http://test").partition("&api")[0] if found[1:] else ""
        assert (seen, pages) == (["a", "B", "c", "d", "e"], 3)
        assert (await links(world, "/$resources/Topics"))[0] == ["topic"]
        assert (await links(world, "/$Resources/queues?$skip=4&$top=1000"))[0] == ["e"]
        assert (await links(world, "/$Resources/queues?$skip=50"))[0] == []
        assert (await ask(world, "GET", "/$Resources/nothing")).status == 404

    in_world(tmp_path, use)


@pytest.mark.parametrize("query", ["$skip=-1", "$top=all", "$skip=9999999999999"])
def test_a_page_that_is_none_is_refused(query: str, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        refused = await ask(world, "GET", f"/$Resources/queues?{query}")
        assert (refused.status, "whole number" in refused.detail) == (400, True)

    in_world(tmp_path, use)
