"""The tokens of one connection: put on `$cbs` before an entity is used, and again before they end.

Sans-IO like the rest: it is told the time and says when it wants to be told again (SPEC 3.6).
"""

from __future__ import annotations

import logging
from typing import Final

from partibus.client.dialogue import Dialogue, Response
from partibus.client.errors import MessagingError, error_of_status
from partibus.client.pending import Pending
from partibus.client.tokens import Credentials
from partibus.wire.values import Timestamp

log = logging.getLogger(__name__)

TOKEN_TYPE: Final = "servicebus.windows.net:sastoken"  # noqa: S105 - the name of a type
# Renewed at nine tenths of its life, a token leaves six minutes for what may go wrong.
RENEW_AT: Final = 0.9
# After a renewal that failed. The links live on the old token until it ends.
RENEW_AGAIN_MS: Final = 30_000


class Authorisation:
    """What this connection may use, by entity."""

    def __init__(self, dialogue: Dialogue, credentials: Credentials, host: str) -> None:
        self.dialogue = dialogue
        self._credentials = credentials
        self._host = host
        self._put: dict[str, Pending[None]] = {}
        self._renew_ms: dict[str, int] = {}

    def put(self, entity: str, now_ms: int) -> Pending[None]:
        """Put a token for an entity, unless a good one was put already."""
        known = self._put.get(entity)
        if known is not None and (not known.is_done or known.error is None):
            return known
        self._put[entity] = self._send(entity, now_ms)
        return self._put[entity]

    def next_deadline_ms(self) -> int | None:
        """When the next token must be renewed."""
        return min(self._renew_ms.values(), default=None)

    def advance(self, now_ms: int) -> None:
        """Renew what is due."""
        for entity in [name for name, due_ms in self._renew_ms.items() if due_ms <= now_ms]:
            # To be told of this one again, should its answer never come.
            self._renew_ms[entity] = now_ms + RENEW_AGAIN_MS
            self._note(entity, self._send(entity, now_ms))

    def _note(self, entity: str, renewal: Pending[None]) -> None:
        def done() -> None:
            if renewal.error is not None:
                log.warning("token not renewed entity=%s error=%s", entity, renewal.error)

        renewal.then(done)

    def _send(self, entity: str, now_ms: int) -> Pending[None]:
        resource = f"sb://{self._host}/{entity}"
        token = self._credentials.token(resource, now_ms)
        answer = self.dialogue.ask(
            {
                "operation": "put-token",
                "type": TOKEN_TYPE,
                "name": resource,
                "expiration": Timestamp(token.expires_ms),
            },
            token.text,
        )
        done: Pending[None] = Pending()

        def answered() -> None:
            error = answer.error or _refusal(answer.result())
            if error is not None:
                done.fail(error)
                return
            if token.is_renewable:
                life_ms = token.expires_ms - now_ms
                self._renew_ms[entity] = now_ms + int(life_ms * RENEW_AT)
            done.resolve(None)

        answer.then(answered)
        return done


def _refusal(response: Response) -> MessagingError | None:
    if 200 <= response.status < 300:
        return None
    return error_of_status(response.status, response.condition, response.text)
