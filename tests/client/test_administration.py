"""Entities through our own client: properties by the names of the documents, errors by kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from partibus.client import administration
from partibus.client.administration import PAGE, Administration
from partibus.client.errors import (
    ConnectionLost,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    Unauthorized,
)
from partibus.testing.http_world import KEY, World, in_world


def string(world: World, key: str = KEY) -> str:
    return (
        f"Endpoint=sb://127.0.0.1:{world.port};SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true"
    )


def managed(directory: Path, use: Callable[[Administration], None], key: str = KEY) -> None:
    def block(world: World) -> None:
        with Administration.from_connection_string(string(world, key)) as admin:
            use(admin)

    async def run(world: World) -> None:
        await asyncio.to_thread(block, world)

    in_world(directory, run)


def test_M4_a_queue_is_made_changed_and_deleted(tmp_path: Path) -> None:
    def use(admin: Administration) -> None:
        made = admin.create("Queue", "q", {"EnablePartitioning": True, "UserMetadata": "<&>"})
        assert (made["Name"], made["EnablePartitioning"]) == ("q", "true")
        changed = admin.update("Queue", "q", {"MaxDeliveryCount": 4})
        assert (changed["MaxDeliveryCount"], changed["UserMetadata"]) == ("4", "<&>")
        assert admin.get("q")["CountDetails"]
        admin.delete("q")
        with pytest.raises(EntityNotFound):
            admin.get("q")

    managed(tmp_path, use)


def test_a_list_is_read_to_its_end(tmp_path: Path) -> None:
    def use(admin: Administration) -> None:
        names = [f"q{number:03}" for number in range(PAGE + 1)]
        for name in names:
            admin.create("Queue", name, {})
        assert [each["Name"] for each in admin.list("$Resources/queues")] == names

    managed(tmp_path, use)


def test_refusals_are_errors_of_their_kind(tmp_path: Path) -> None:
    def use(admin: Administration) -> None:
        admin.create("Queue", "q", {})
        with pytest.raises(EntityAlreadyExists, match="SubCode=40900"):
            admin.create("Queue", "q", {})
        with pytest.raises(InvalidArgument, match="LockDuration"):
            admin.create("Queue", "p", {"LockDuration": "PT1H"})
        with pytest.raises(EntityNotFound):
            admin.update("Queue", "none", {"MaxDeliveryCount": 1})

    managed(tmp_path, use)


def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    def use(admin: Administration) -> None:
        with pytest.raises(Unauthorized):
            admin.get("q")

    managed(tmp_path, use, key="d3Jvbmc=")


def test_nobody_there_is_an_error_that_says_so() -> None:
    text = "Endpoint=sb://127.0.0.1:9;UseDevelopmentEmulator=true"
    with (
        Administration.from_connection_string(text) as admin,
        pytest.raises(ConnectionLost, match="did not answer"),
    ):
        admin.get("q")


def test_typed_values_of_a_rule_travel(tmp_path: Path) -> None:
    def use(admin: Administration) -> None:
        admin.create("Topic", "t", {})
        admin.create("Subscription", "t/subscriptions/s", {})
        value: dict[str, Any] = {"Key": "n", "Value": {"type": "string", "text": "7"}}
        parts = {"KeyValueOfstringanyType": [value, {**value, "Key": "m"}]}
        rule = {"Filter": {"type": "CorrelationFilter", "Properties": parts}, "Name": "r"}
        made: Any = admin.create("Rule", "t/subscriptions/s/rules/r", rule)
        found = made["Filter"]["Properties"]["KeyValueOfstringanyType"]
        assert [each["Key"] for each in found] == ["n", "m"]

    managed(tmp_path, use)


def test_a_connection_that_was_idle_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "IDLE_S_MAX", 0.0)

    def use(admin: Administration) -> None:
        admin.create("Queue", "q", {})
        before = admin._connection
        assert admin.get("q")["Name"] == "q"
        assert admin._connection is not before

    managed(tmp_path, use)
