"""What one connection has been granted, and until when.

Grants come from tokens (by the path they were put for) or from a key shown at the beginning of
the connection. A later token for the same path takes the place of the earlier one. Whether a
token is good is decided in broker.access.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.access import Grant, Right

# A client asks for two paths an entity (itself and its $management).
GRANTS_MAX = 4_096


class Claims:
    """The grants of one connection."""

    __slots__ = ("_anonymous", "_by_path", "_of_connection", "bad_tokens", "shown", "struck_out")

    def __init__(self, *, anonymous: bool) -> None:
        # Development: whoever shows nothing may do anything. Who shows a token is held to it.
        self._anonymous = anonymous
        self._by_path: dict[str, Grant] = {}
        self._of_connection: Grant | None = None
        # Whether the peer has ever shown something that was good.
        self.shown = False
        self.bad_tokens = 0
        # Too many of them: no more is looked at.
        self.struck_out = False

    @property
    def established(self) -> bool:
        """Whether the connection may stay: its peer has shown something, or need not."""
        return self.shown or self._anonymous

    def admit(self, grant: Grant) -> None:
        """Grant the whole connection what the name and key of a rule give (SASL PLAIN)."""
        self.shown = True
        self._of_connection = grant

    def put(self, grant: Grant, now_ms: int) -> bool:
        """Keep a grant; False where there is no room for more."""
        if grant.path not in self._by_path and len(self._by_path) >= GRANTS_MAX:
            self.forget_ended(now_ms)
            if len(self._by_path) >= GRANTS_MAX:
                return False
        self.shown = True
        self._by_path[grant.path] = grant
        return True

    def allows(self, path: str, right: Right, now_ms: int) -> bool:
        """Whether some grant gives this right (one of them) on this path."""
        if self._anonymous and not self.shown:
            return True
        if self._of_connection is not None and self._of_connection.allows(path, right, now_ms):
            return True
        # Parents too: an entity's grant is good for its parts, the namespace's for everything.
        candidate = path
        while True:
            grant = self._by_path.get(candidate)
            if grant is not None and grant.allows(path, right, now_ms):
                return True
            if not candidate:
                return False
            candidate = candidate.rpartition("/")[0]

    def revoke(self, is_revoked: Callable[[Grant], bool]) -> bool:
        """Drop grants whose rule or key is no more; whether there were any."""
        revoked = [path for path, grant in self._by_path.items() if is_revoked(grant)]
        for path in revoked:
            del self._by_path[path]
        if self._of_connection is not None and is_revoked(self._of_connection):
            self._of_connection = None
            return True
        return bool(revoked)

    def next_end_ms(self) -> int | None:
        """When the next grant ends."""
        return min((grant.expires_ms for grant in self._by_path.values()), default=None)

    def forget_ended(self, now_ms: int) -> bool:
        """Drop grants that are over; whether there were any."""
        ended = [path for path, grant in self._by_path.items() if grant.expires_ms <= now_ms]
        for path in ended:
            del self._by_path[path]
        return bool(ended)
