"""Configuration files, checked from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from partibus.testing.serve import LiveBroker


def test_a_file_is_checked_without_starting_anything(
    partibus: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "Config.json"
    file.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}}')
    good = partibus("config", "validate", str(file))
    assert (good.code, "1 queues" in good.out) == (0, True)
    file.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Nam": "q"}]}]}}')
    bad = partibus("config", "validate", str(file))
    assert (bad.code, "Nam" in bad.err) == (3, True)


def test_S5_the_configuration_of_the_demonstration_is_in_order(
    partibus: Callable[..., Any],
) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "pipeline" / "Config.json"
    checked = partibus("config", "validate", str(example))
    assert (checked.code, "1 pipelines" in checked.out) == (0, True)


def test_M4_what_is_exported_makes_the_same_namespace_again(
    partibus: Callable[..., Any], tmp_path: Path
) -> None:
    partibus("queue", "create", "export-q", "--sessions", "--set", "LockDuration=PT30S")
    partibus("topic", "create", "export-t", "--no-partitioned")
    partibus("subscription", "create", "export-t", "s", "--set", "ForwardTo=export-t2")
    partibus("rule", "create", "export-t", "s", "r", "--sql", "a = 1", "--action", "SET b = 2")
    partibus("rule", "create", "export-t", "s", "c", "--correlation", "Label=x")
    printed = partibus("config", "export").out
    assert "PrimaryKey" not in printed
    assert "PrimaryKey" in partibus("config", "export", "--keys").out
    file = tmp_path / "Config.json"
    file.write_text(printed)
    assert partibus("config", "validate", str(file)).code == 0
    with LiveBroker(tmp_path, nodes=1, options=("--config", str(file))) as again:
        second = partibus("config", "export", connection=again.connection_string).out
    assert json.loads(second) == json.loads(printed)
