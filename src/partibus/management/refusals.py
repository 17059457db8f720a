"""How refusals are told over HTTP: a status, a SubCode and the error body that clients parse.

The body is `<Error><Code>…</Code><Detail>SubCode=…. text</Detail></Error>` (SPEC 7.3). Clients
look for some SubCodes in the text, so they stand first. Nothing is refused here.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from partibus.broker.access import TokenMalformed
from partibus.broker.errors import EntityDisabled, Refusal
from partibus.runtime.tracking import Now, TrackingTexts
from partibus.runtime.wrong_tokens import WrongTokens
from partibus.store import StoreDamaged, StoreError

# What tokens are refused for, as the text begins (broker.access).
_TOKEN_SUBCODES = {
    "MissingToken": 40102,
    "InvalidSignature": 40103,
    "InvalidAudience": 40104,
    "MalformedToken": 40105,
    "ExpiredToken": 40106,
}
_BUSY = 50004
NOT_HOSTED = "No service is hosted at the specified address."
# What XML 1.0 cannot carry.
UNPRINTABLE = {
    code: " "
    for code in (*range(32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
    if chr(code) not in "\t\n\r"
}


class BodyTooLarge(Refusal):
    """The body of a request is longer than the operation allows."""

    condition = "amqp:link:message-size-exceeded"
    status = 413

    def __init__(self, most: int) -> None:
        super().__init__(f"The body is too long; at most {most} bytes are allowed here.")


class MethodNotAllowed(Refusal):
    """There is something at this path, but not with this method."""

    condition = "amqp:not-allowed"
    status = 405

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not allowed here; allowed: {', '.join(allowed)}.")
        self.allowed = allowed


class Refusals:
    """Turns what handlers raise into answers."""

    def __init__(self, tracking: TrackingTexts, wrong_tokens: WrongTokens, clock: Now) -> None:
        self._tracking = tracking
        self._wrong_tokens = wrong_tokens
        self._clock = clock

    async def refused(self, request: Request, error: Exception) -> Response:
        """The rules say no."""
        assert isinstance(error, Refusal)
        status, subcode = code_of(error)
        response = self._response(status, subcode, str(error))
        if isinstance(error, MethodNotAllowed):
            response.headers["allow"] = ", ".join(error.allowed)
        if status == 401:
            response.headers["www-authenticate"] = "SharedAccessSignature"
            connection = request.state.connection
            if "authorization" in request.headers:
                connection.bad_tokens += 1
                if connection.bad_tokens >= self._wrong_tokens.shown(self._clock.now_ms()):
                    response.headers["connection"] = "close"
        return response

    async def not_routed(self, _: Request, error: Exception) -> Response:
        """There is nothing at this path."""
        assert isinstance(error, HTTPException)
        return self._response(error.status_code, error.status_code * 100, NOT_HOSTED)

    async def failed(self, _: Request, error: Exception) -> Response:
        """The catalog could not be read or written; nothing happened."""
        assert isinstance(error, StoreError)
        if isinstance(error, StoreDamaged):
            return self._response(500, 50002, "The catalog of the namespace is damaged.")
        return self._response(503, _BUSY, "The catalog of the namespace is busy; try again.")

    async def wrong(self, _: Request, __: Exception) -> Response:
        """We are wrong. The failure itself is logged by who runs the request."""
        return self._response(500, 50000, "The request failed; the broker's log says more.")

    async def left(self, _: Request, error: Exception) -> Response:
        """The client went away before its request was whole: nobody reads this."""
        assert isinstance(error, ClientDisconnect)
        return Response(status_code=400)

    def _response(self, status: int, subcode: int, text: str) -> Response:
        sentence = text if text.endswith(".") else f"{text}."
        detail = self._tracking.text(f"SubCode={subcode}. {sentence}", code=status)
        content = error_body(status, detail)
        headers = {"retry-after": "1"} if status == 503 else None
        return Response(content, status, headers, "application/xml; charset=utf-8")


def code_of(refusal: Refusal) -> tuple[int, int]:
    """The status and SubCode of a refusal."""
    status = refusal.status
    if isinstance(refusal, EntityDisabled):
        status = 403
    elif isinstance(refusal, TokenMalformed):
        status = 401
    if status == 401:
        return status, _TOKEN_SUBCODES.get(str(refusal).partition(":")[0], 40100)
    if status == 503:
        return status, _BUSY
    return status, status * 100


def error_body(status: int, detail: str) -> str:
    """The error as clients parse it."""
    text = escape(detail.translate(UNPRINTABLE))
    return f"<Error><Code>{status}</Code><Detail>{text}</Detail></Error>"
