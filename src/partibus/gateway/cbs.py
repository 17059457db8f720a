"""`$cbs`: a client puts tokens, and they become claims of its connection (SPEC 3.6).

Status codes are those the clients know: 202 good, 400 no token, 401 no good token, 403 too many,
404 no such entity. Attributes are spelled with dashes here, unlike those of `$management`.
"""

from __future__ import annotations

import logging

from partibus.broker.access import TokenMalformed, check_key, resource_path
from partibus.broker.errors import EntityNotFound, Refusal
from partibus.gateway.bindings import Carrier
from partibus.gateway.dialogue import Request, RequestLink
from partibus.gateway.outcomes import as_text
from partibus.runtime.granting import check_grant, entity_at, namespace_rules
from partibus.telemetry import Seldom
from partibus.wire.values import Int

seldom = Seldom(logging.getLogger(__name__))

PUT_TOKEN = "put-token"  # noqa: S105 - an operation's name


class TooManyTokens(Refusal):
    """The connection holds as many tokens as it may."""

    condition = "amqp:resource-limit-exceeded"
    status = 403


def check_plain(carrier: Carrier, response: bytes) -> bool:
    """Whether a SASL PLAIN response is a rule's name and key; the connection is theirs then."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        return False
    name, key = (part.decode("utf-8", "replace") for part in parts[1:])
    # A key may have been made, or taken away, a moment ago at another node.
    carrier.node.refresh()
    rules = namespace_rules(carrier.node.snapshot, dev=carrier.settings.dev)
    grant = check_key(name, key, rules)
    if grant is not None:
        carrier.claims.admit(grant)
    return grant is not None


def answer_cbs(carrier: Carrier, request: Request, origin: RequestLink) -> None:
    """Answer one request on `$cbs`."""
    try:
        _put_token(carrier, request)
        status, text = 202, "Accepted"
    except Refusal as refusal:
        status = refusal.status
        text = carrier.tracking.text(str(refusal), code=status)
        if status in (400, 401):
            _count_bad_token(carrier, str(refusal))
    properties = {"status-code": Int(status), "status-description": text}
    origin.respond(request, properties, None)


def _put_token(carrier: Carrier, request: Request) -> None:
    operation = request.text("operation")
    if operation != PUT_TOKEN:
        raise TokenMalformed(f"The operation '{operation}' is not known; there is only put-token.")
    audience, token = request.text("name"), request.body
    if audience is None or not isinstance(token, (str, bytes)):
        raise TokenMalformed("A put-token request has a name and a token.")
    path = resource_path(audience)
    now_ms = carrier.now_ms()
    # The type that clients name says little: the Python SDK calls its signatures jwt. Only the
    # token itself decides.
    grant = check_grant(carrier.node, as_text(token), path, now_ms, dev=carrier.settings.dev)
    if path and entity_at(carrier.node, path) is None:
        # Said only to who may know: the token was good for this path.
        raise EntityNotFound(_not_found(audience))
    if not carrier.claims.put(grant, now_ms):
        raise TooManyTokens("The connection holds too many tokens.")
    carrier.tokens_changed()


def _not_found(audience: str) -> str:
    """The sentence by which JS and Java clients recognise a missing entity."""
    _, separator, rest = audience.partition("://")
    authority, _, name = rest.partition("/") if separator else ("", "", audience)
    host = authority.partition(":")[0] if not authority.startswith("[") else authority
    return f"The messaging entity 'sb://{host}/{name.strip('/')}' could not be found."


def _count_bad_token(carrier: Carrier, text: str) -> None:
    claims = carrier.claims
    claims.bad_tokens += 1
    if claims.bad_tokens >= carrier.node.wrong_tokens.shown(carrier.now_ms()):
        seldom.warning("connection closed: bad tokens count=%d last=%r", claims.bad_tokens, text)
        claims.struck_out = True
        carrier.hang_up("amqp:unauthorized-access", "Tokens were shown that are no good.")
