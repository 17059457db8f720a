"""Changes of the catalog for clients: all or nothing, known here when they return (M1)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import EntityAlreadyExists, FragmentUnavailable
from partibus.runtime import catalog_changes
from partibus.store.catalog import Catalog
from partibus.testing.http_world import World, in_world


def test_M1_a_change_is_known_when_it_returns_and_a_refused_one_leaves_nothing(
    tmp_path: Path,
) -> None:
    def both(catalog: Catalog) -> None:
        catalog.create_queue(QueueDescription("b"), 0)
        catalog.create_queue(QueueDescription("a"), 0)

    async def use(world: World) -> None:
        await world.node.changes.make(lambda c: c.create_queue(QueueDescription("a"), 0))
        assert world.node.snapshot.find("a") is not None
        with pytest.raises(EntityAlreadyExists):
            await world.node.changes.make(both)
        world.node.refresh()
        assert world.node.snapshot.find("b") is None

    in_world(tmp_path, use)


def test_the_loop_goes_on_while_a_change_waits_for_another_node(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        other = Catalog.open(tmp_path / "catalog.sqlite")
        with other.together():
            other.create_queue(QueueDescription("other"), 0)
            waiting = asyncio.create_task(
                world.node.changes.make(lambda c: c.create_queue(QueueDescription("mine"), 0))
            )
            await asyncio.sleep(0.05)
            assert not waiting.done()
        other.close()
        await waiting
        assert {"other", "mine"} <= set(world.node.snapshot.entities)

    in_world(tmp_path, use)


def test_too_many_changes_at_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_changes, "WAITING_MAX", 1)

    async def use(world: World) -> None:
        held = threading.Event()
        first = asyncio.create_task(world.node.changes.make(lambda _: held.wait(10)))
        await asyncio.sleep(0)
        with pytest.raises(FragmentUnavailable):
            await world.node.changes.make(lambda _: None)
        held.set()
        assert await first

    in_world(tmp_path, use)
