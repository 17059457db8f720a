"""Who may do what: shared access rules, the tokens signed with their keys, and their rights.

A rule is a name with two keys and some rights, on the namespace or on one entity. A token (SAS)
names a resource, an end and a rule, and is signed with one of the rule's keys. Here a token is
checked and becomes a Grant. Which connection holds which grants is the door's business; where
rules are kept is the catalog's. Time is an argument.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from hmac import compare_digest
from hmac import digest as hmac_digest
from urllib.parse import unquote, unquote_plus

from partibus.broker.errors import Refusal, Unauthorized
from partibus.broker.names import ACCESS_RULE_NAME_MAX, check_plain_name
from partibus.broker.properties import InvalidDescription

TOKEN_PREFIX = "SharedAccessSignature "  # noqa: S105 - the scheme's name, not a secret
# A signed token has four short fields; a resource is a URI of a few hundred characters.
TOKEN_LENGTH_MAX = 8_192
# Unix seconds of the year 9999 have twelve digits.
EXPIRY_DIGITS_MAX = 12
_HTTP = ("http", "https")
_TOKEN_FIELDS = frozenset(("sr", "sig", "se", "skn"))


class Right(Flag):
    """What a rule allows. Manage includes the other two."""

    LISTEN = auto()
    SEND = auto()
    MANAGE = auto()


ALL_RIGHTS = Right.LISTEN | Right.SEND | Right.MANAGE
NO_RIGHTS = Right(0)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A name, two keys so that one can be replaced while the other is in use, and rights."""

    name: str
    primary_key: str
    secondary_key: str
    rights: Right

    def accepted_keys(self) -> tuple[str, ...]:
        """The keys that open; an empty one never does."""
        return tuple(key for key in (self.primary_key, self.secondary_key) if key)


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules that stand on one resource: the namespace (path "") or an entity."""

    path: str
    rules: Sequence[AccessRule]


@dataclass(frozen=True, slots=True)
class Signer:
    """The key that signed a token or was shown itself, and the rule that it is one of."""

    # The path of the resource on which the rule stands.
    scope: str
    rule: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a checked token allows: rights on a path and what belongs to it, until it ends."""

    path: str
    rights: Right
    # 0: it does not end (a key was shown instead of a token).
    expires_ms: int = 0
    # By whom it was given; it stands only while that key is one of that rule.
    signer: Signer | None = field(default=None, compare=False, repr=False)

    def allows(self, path: str, right: Right, now_ms: int) -> bool:
        """Whether it gives this right (one of several, where several are named) on this path."""
        if self.expires_ms and now_ms >= self.expires_ms:
            return False
        return rights_allow(self.rights, right) and belongs(path, self.path)


def check_access_rule(rule: AccessRule) -> AccessRule:
    """The rule, if it may be one. Who writes rules asks here, whatever asked them."""
    check_plain_name(rule.name, ACCESS_RULE_NAME_MAX, "KeyName")
    if not rule.rights:
        raise InvalidDescription("Rights", [], "one or more of Listen, Send and Manage")
    if not rule.primary_key:
        # Keys are secrets: not even an empty one is repeated.
        raise InvalidDescription("PrimaryKey", "", "a key", "a rule needs a primary key")
    return rule


class TokenMalformed(Refusal):
    """The token is not one that could be checked."""

    condition = "com.microsoft:auth-failed"
    status = 400


def rights_allow(held: Right, wanted: Right) -> bool:
    """Whether what is held includes one of what is wanted."""
    return bool(held & (wanted | Right.MANAGE))


def resource_path(uri: str) -> str:
    """The path that an address, audience or signed resource means, as it is compared.

    Scheme, host and port go: clients spell the same namespace as `sb`, `amqp`, `amqps` or `http`,
    with and without a port, and reach it under more than one host name. Names compare without
    regard to case. The Go client signs the whole URL of an HTTP request, with its query.
    """
    scheme, separator, rest = uri.partition("://")
    if separator and "/" not in scheme:
        _, _, rest = rest.partition("/")
        if scheme.lower() in _HTTP:
            rest = rest.partition("?")[0]
    else:
        rest = uri
    return unquote(rest).strip("/").lower()


def covers(resource: str, path: str) -> bool:
    """Whether path is the resource or lies below it: by segments, so `q` does not cover `q2`."""
    return not resource or path == resource or path.startswith(resource + "/")


def belongs(path: str, entity: str) -> bool:
    """Whether path is the entity or a part of it: a subscription, a sub-queue, `$management`.

    Narrower than `covers`, because an entity named `a/b` is not a part of the entity `a`.
    """
    if not entity or path == entity:
        return True
    if not path.startswith(entity + "/"):
        return False
    rest = path[len(entity) + 1 :]
    return rest == "subscriptions" or rest.startswith(("$", "subscriptions/"))


def check_token(token: str, path: str, scopes: Iterable[Scope], now_ms: int) -> Grant:
    """What the token grants on this path, by the rules of the scopes. Raises where it does not.

    The signature is over the resource exactly as it was sent, still encoded: clients disagree on
    the case of the percent escapes.
    """
    fields = _fields(token)
    resource, expiry = fields["sr"], fields["se"]
    if not (expiry.isascii() and expiry.isdigit()) or len(expiry) > EXPIRY_DIGITS_MAX:
        raise TokenMalformed("MalformedToken: The expiry of the token is not a number of seconds.")
    signed = resource_path(unquote_plus(resource))
    text = f"{resource}\n{expiry}".encode()
    signature = unquote(fields["sig"]).encode()
    # The Python SDK encodes the name of the rule twice, other clients once.
    name = unquote_plus(fields["skn"])
    names = {name, unquote_plus(name), unquote(fields["skn"])}
    found = _signer(text, signature, signed, names, scopes)
    if found is None:
        raise Unauthorized("InvalidSignature: The token has an invalid signature.")
    expires_ms = int(expiry) * 1000
    if expires_ms <= now_ms:
        raise Unauthorized("ExpiredToken: The token is expired.")
    if not covers(signed, path):
        raise Unauthorized(
            "InvalidAudience: The authorization header contains a token signed for "
            "another resource."
        )
    rule, signer = found
    return Grant(path, rule.rights, expires_ms, signer)


def check_key(name: str, key: str, rules: Iterable[AccessRule]) -> Grant | None:
    """What the name and key of a rule of the namespace grant (SASL PLAIN); None: nothing."""
    given = key.encode()
    granted = None
    for rule in rules:
        for own in rule.accepted_keys():
            if compare_digest(own.encode(), given) and rule.name == name:
                granted = Grant("", rule.rights, signer=Signer("", rule.name, own))
    return granted


def still_stands(grant: Grant, scopes: Iterable[Scope]) -> bool:
    """Whether the rule that gave the grant is still there, with that key and those rights.

    Not whether the grant has ended: time is not looked at.
    """
    signer = grant.signer
    return signer is None or any(
        rule.name == signer.rule
        and signer.key in rule.accepted_keys()
        and grant.rights in rule.rights
        for scope in scopes
        if scope.path == signer.scope
        for rule in scope.rules
    )


def _fields(token: str) -> dict[str, str]:
    if len(token) > TOKEN_LENGTH_MAX or not token.startswith(TOKEN_PREFIX):
        raise TokenMalformed("MalformedToken: Only shared access signatures are understood here.")
    fields: dict[str, str] = {}
    for part in token[len(TOKEN_PREFIX) :].strip().split("&"):
        name, separator, value = part.partition("=")
        if not separator or name in fields:
            raise TokenMalformed("MalformedToken: The token is not a list of names and values.")
        fields[name] = value
    missing = sorted(_TOKEN_FIELDS - fields.keys())
    if missing:
        raise TokenMalformed(f"MalformedToken: The token has no {missing[0]}.")
    return fields


def _signer(
    text: bytes, signature: bytes, signed: str, names: set[str], scopes: Iterable[Scope]
) -> tuple[AccessRule, Signer] | None:
    """The rule whose key made the signature, on the signed resource or on a parent of it."""
    for scope in scopes:
        if not belongs(signed, scope.path):
            continue
        for rule in scope.rules:
            if rule.name not in names:
                continue
            for key in rule.accepted_keys():
                made = b64encode(hmac_digest(key.encode(), text, "sha256"))
                if compare_digest(made, signature):
                    return rule, Signer(scope.path, rule.name, key)
    return None
