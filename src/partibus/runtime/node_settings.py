"""What the supervisor tells a node when it starts it: one JSON object on the command line.

No secret is in it: keys lie in the catalog. Numbers of open files are those that the node
inherits.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class ListeningFile(msgspec.Struct, frozen=True, kw_only=True):
    """A listening socket that a node inherits."""

    fd: int
    # Nothing is served in the clear on it.
    tls_only: bool = False


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node needs that is not in the data directory."""

    index: int
    data: Path
    # The address of each node's hop, by index.
    hop_addresses: tuple[str, ...]
    # Wall clock minus steady clock, the same for all nodes.
    clock_base_ms: int
    namespace: str
    # Files that the node inherits: listening sockets, where it says that it lives, and where it
    # learns that the supervisor does not.
    listening: tuple[ListeningFile, ...]
    status_fd: int
    lifeline_fd: int
    # Certificate and key, which may be the same file.
    tls_cert: Path
    tls_key: Path
    dev: bool = False
    log_level: str = "info"
    log_format: str = "text"


def write_node_settings(settings: NodeSettings) -> str:
    """The settings as text for a command line."""
    return msgspec.json.encode(settings, enc_hook=str).decode()


def read_node_settings(text: str) -> NodeSettings:
    """The settings that such a text holds; msgspec.ValidationError where it holds none."""
    return msgspec.json.decode(text, type=NodeSettings, dec_hook=lambda kind, value: kind(value))
