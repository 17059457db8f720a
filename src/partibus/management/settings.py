"""What the HTTP door of one node is told when it starts, and the limits of its connections."""

from __future__ import annotations

from dataclasses import dataclass

# A request line and headers together; a token alone may have 8 KB.
HEAD_BYTES_MAX = 64 * 1024
# How long a client may take for them, and for the body behind them unless an operation says more.
HEAD_S_MAX = 10.0
BODY_S_MAX = 30.0
# How long an answered connection may wait for its next request.
KEEP_ALIVE_S = 60
# Who does not read what is written is cut off after this.
WRITE_S_MAX = 60.0
# How long the rest of a body is read that nobody wants, so that the client sees the answer.
LINGER_S = 2.0
DISCARD_BYTES_MAX = 4 * 1024 * 1024
# It is read in pieces with pauses, so that who pours takes no time from others.
DISCARD_PAUSE_S = 0.05
# How long requests under way may take when the node ends.
SHUTDOWN_S = 5.0


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The door's own settings; entities and rules come from the node."""

    # The name of the namespace, in answers and tracking texts.
    namespace: str = "partibus"
    # Which of the alike nodes this is: the n in _G<n> of tracking ids.
    node: int = 0
    # Development: the emulator's well-known key is good, and so is no key at all.
    dev: bool = False
    connections_max: int = 1_000
