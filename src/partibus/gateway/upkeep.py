"""What a connection does by itself as time passes: silence and the end of tokens (SPEC 3.2, 3.4).

Pure: told the time, it says what to close and when to be asked again. Activity only moves
deadlines back, so nobody sets a timer for it: whoever comes early finds nothing due.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from partibus.gateway.bindings import Binding
from partibus.gateway.claims import Claims

FIRST_TOKEN_MS = 20_000
NO_LINK_YET_MS = 60_000
NO_LINK_LEFT_MS = 300_000
LINK_IDLE_MS = 600_000

TOKEN_ENDED = "ExpiredToken: The token of the link is expired."  # noqa: S105 - a sentence
KEY_REVOKED = "InvalidSignature: The rule or key that opened the link was taken away."


@dataclass(frozen=True, slots=True)
class Overdue:
    """A link, or (None) the whole connection, that is to be closed."""

    binding: Binding | None
    condition: str
    sentence: str


class Upkeep:
    """The deadlines of one connection."""

    __slots__ = ("_had_links", "_linkless_since_ms", "_token_due_ms")

    def __init__(self, now_ms: int) -> None:
        self._token_due_ms = now_ms + FIRST_TOKEN_MS
        self._linkless_since_ms = now_ms
        self._had_links = False

    def links_changed(self, count: int, now_ms: int) -> None:
        """A link was attached or is gone; this many are left."""
        if count:
            self._had_links = True
        self._linkless_since_ms = now_ms

    def next_deadline_ms(self, bindings: Collection[Binding], claims: Claims) -> int:
        """When something may be due next."""
        deadlines = [b.active_ms + LINK_IDLE_MS for b in bindings if b.may_idle_out]
        if not bindings:
            deadlines.append(self._linkless_since_ms + self._linkless_ms)
        if not claims.established:
            deadlines.append(self._token_due_ms)
        token_end = claims.next_end_ms()
        if token_end is not None:
            deadlines.append(token_end)
        return min(deadlines, default=self._linkless_since_ms + LINK_IDLE_MS)

    def due(self, bindings: Collection[Binding], claims: Claims, now_ms: int) -> list[Overdue]:
        """What is to be closed now."""
        if not claims.established and now_ms >= self._token_due_ms:
            seconds = FIRST_TOKEN_MS // 1000
            return [
                Overdue(
                    None,
                    "amqp:unauthorized-access",
                    f"No valid token was put within {seconds} seconds.",
                )
            ]
        if not bindings and now_ms >= self._linkless_since_ms + self._linkless_ms:
            return [
                Overdue(
                    None,
                    "amqp:connection:forced",
                    "The connection was inactive for more than the allowed "
                    f"{self._linkless_ms} milliseconds and is closed.",
                )
            ]
        overdue = []
        if claims.forget_ended(now_ms):
            overdue += unauthorised(bindings, claims, now_ms, TOKEN_ENDED)
        overdue += [
            _idle(binding)
            for binding in bindings
            if binding.may_idle_out and now_ms >= binding.active_ms + LINK_IDLE_MS
        ]
        return overdue

    @property
    def _linkless_ms(self) -> int:
        return NO_LINK_LEFT_MS if self._had_links else NO_LINK_YET_MS


def _is_allowed(binding: Binding, claims: Claims, now_ms: int) -> bool:
    if not binding.right:
        return True
    paths = [binding.path, binding.second_path] if binding.second_path else [binding.path]
    return all(claims.allows(path, binding.right, now_ms) for path in paths)


def unauthorised(
    bindings: Collection[Binding], claims: Claims, now_ms: int, sentence: str
) -> list[Overdue]:
    """The links that nothing allows any more."""
    return [
        Overdue(binding, "amqp:unauthorized-access", sentence)
        for binding in bindings
        if not _is_allowed(binding, claims, now_ms)
    ]


def _idle(binding: Binding) -> Overdue:
    return Overdue(binding, "amqp:link:detach-forced", "IdleTimerExpired: Idle timeout: 00:10:00.")
