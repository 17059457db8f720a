"""What a node is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from partibus.runtime.node_settings import (
    ListeningFile,
    NodeSettings,
    read_node_settings,
    write_node_settings,
)

SETTINGS = NodeSettings(
    index=1,
    data=Path("/some where/ü"),
    hop_addresses=("unix:/a", "unix:/b"),
    clock_base_ms=123,
    namespace="ns",
    listening=(ListeningFile(fd=3), ListeningFile(fd=4, tls_only=True)),
    status_fd=5,
    lifeline_fd=6,
    tls_cert=Path("/certificate.pem"),
    tls_key=Path("/key.pem"),
    dev=True,
)


def test_a_node_reads_what_the_supervisor_wrote() -> None:
    assert read_node_settings(write_node_settings(SETTINGS)) == SETTINGS


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"index": "x"}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_node_settings(text)
