"""Pipelines over HTTP: any node tells how they are and takes orders, for who may manage."""

from __future__ import annotations

import json
from pathlib import Path

from partibus.broker.pipelines import PipelineDescription
from partibus.pipeline_files import (
    FAILED,
    RUNNING,
    Declared,
    Lag,
    PipelineFiles,
    PipelineState,
)
from partibus.testing.http_world import World, in_world

WELL = PipelineDescription(name="sums", source="orders", sql="SELECT 1", target="totals")
ILL = PipelineDescription(
    name="Copies", source="orders", function="m:f", target_directory="copies", trigger_ms=0
)
STATES = (
    PipelineState(
        name="sums", state=RUNNING, messages=70, rate=1.5, lag=(Lag(1, 2), Lag(2, 5)), batch=9
    ),
    PipelineState(name="Copies", state=FAILED, failures=3, error="there is no module 'm'"),
)
PATH = "/$partibus/pipelines"


async def ask(world: World, method: str, path: str) -> tuple[int, dict[str, object]]:
    status, _, body = await world.ask(method, path, Authorization=world.token())
    return status, json.loads(body) if status == 200 else {}


def with_pipelines(tmp_path: Path, world: World) -> PipelineFiles:
    files = PipelineFiles(tmp_path)
    files.declare(Declared(pipelines=(WELL, ILL), connection_string="Endpoint=sb://x;Key=secret"))
    files.tell(STATES, world.node.clock.now_ms())
    return files


def test_S5_state_rate_and_lag_are_shown(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert await ask(world, "GET", PATH) == (200, {"pipelines": []})
        assert (await ask(world, "GET", f"{PATH}/sums"))[0] == 404
        with_pipelines(tmp_path, world)
        _, found = await ask(world, "GET", PATH)
        assert [
            (each["name"], each["state"], each["lag"], each["messagesPerSecond"])
            for each in found["pipelines"]  # type: ignore[attr-defined]
        ] == [("sums", "running", 7, 1.5), ("Copies", "failed", 0, 0.0)]
        _, sums = await ask(world, "GET", f"{PATH}/SUMS")
        assert (sums["lagByFragment"], sums["trigger"]) == ({"1": 2, "2": 5}, "PT5S")
        _, copies = await ask(world, "GET", f"{PATH}/copies")
        assert (copies["error"], copies["trigger"]) == ("there is no module 'm'", "AvailableNow")
        assert "secret" not in str([found, sums, copies])

    in_world(tmp_path, use, data=tmp_path)


def test_S5_a_pipeline_is_paused_and_resumed(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        files = with_pipelines(tmp_path, world)
        assert await ask(world, "POST", f"{PATH}/SUMS/pause") == (
            200,
            {"name": "sums", "paused": True},
        )
        assert files.order("sums").paused
        assert not files.order("Copies").paused
        assert (await ask(world, "GET", f"{PATH}/sums"))[1]["paused"] is True
        await ask(world, "POST", f"{PATH}/sums/resume")
        assert not files.order("sums").paused
        assert (await ask(world, "POST", f"{PATH}/none/pause"))[0] == 404

    in_world(tmp_path, use, data=tmp_path)


def test_S5_health_and_metrics_tell_of_pipelines(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert "pipelines" not in (await ask(world, "GET", "/health"))[1]
        with_pipelines(tmp_path, world)
        status, health = await ask(world, "GET", "/health")
        assert (status, health["status"]) == (200, "healthy")
        assert health["pipelines"] == {"total": 2, "down": ["Copies"]}
        _, _, text = await world.ask("GET", "/metrics", Authorization=world.token())
        for line in (
            'partibus_pipeline_up{pipeline="sums"} 1',
            'partibus_pipeline_up{pipeline="Copies"} 0',
            'partibus_pipeline_messages_total{pipeline="sums"} 70',
            'partibus_pipeline_messages_per_second{pipeline="sums"} 1.5',
            'partibus_pipeline_lag{pipeline="sums"} 7',
            'partibus_pipeline_failures_total{pipeline="Copies"} 3',
        ):
            assert line in text.splitlines()

    in_world(tmp_path, use, data=tmp_path)


def test_A4_pipelines_need_the_right_to_manage(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_pipelines(tmp_path, world)
        for method, path in (
            ("GET", PATH),
            ("GET", f"{PATH}/sums"),
            ("POST", f"{PATH}/sums/pause"),
        ):
            assert (await world.ask(method, path))[0] == 401

    in_world(tmp_path, use, data=tmp_path)
