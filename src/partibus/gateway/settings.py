"""What one gateway is told when it starts. Limits that nobody changes stand where they are used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The gateway's own settings; entities and rules come from the node."""

    # Named in tracking texts only: clients reach one namespace under any host name.
    namespace: str = "partibus"
    # Which of the alike nodes this is: the n in _G<n> of tracking ids.
    node: int = 0
    # Development: the emulator's well-known key is good, and so is no key at all.
    dev: bool = False
    connections_max: int = 10_000
