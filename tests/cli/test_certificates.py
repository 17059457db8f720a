"""What a client needs to trust the broker, from the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from partibus.testing.serve import LiveBroker


def test_A4_the_authority_is_shown_and_exported_without_its_key(
    partibus: Callable[..., Any], broker: LiveBroker, tmp_path: Path
) -> None:
    assert "localhost" in partibus("cert", "show", "--data", str(broker.data)).out
    file = tmp_path / "authority.pem"
    assert partibus("cert", "export", str(file), "--data", str(broker.data)).code == 0
    assert file.read_bytes() == broker.authority.read_bytes()
    assert b"PRIVATE KEY" not in file.read_bytes()
    assert partibus("cert", "show", "--data", str(tmp_path)).code == 5
