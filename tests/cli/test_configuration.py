"""Configuration files, checked from the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


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
